/**
 * Products of the float64 device: one matrix, and experts. With `int8` activations that meet affine weights are rounded as the CPU's default path
 * rounds them.
 */
import type { NodeOf } from '../../src/device/graph.js';
import * as reference from '../devices/reference.js';
import { expertOf, type ReferenceMatrix } from './reference-storage.js';

export function linear(
  int8: boolean,
  w: ReferenceMatrix,
  x: Float64Array,
  rows: number,
  residual?: Float64Array,
  exact = false,
): Float64Array {
  const out = new Float64Array(rows * w.rows);
  for (const { start, rows: outs, groupSize } of w.segments) {
    const input = int8 && groupSize > 0 && !exact ? roundToInt8(x, groupSize) : x;
    const weights = w.values.subarray(start * w.cols, (start + outs) * w.cols);
    const part = reference.linear(input, weights, rows, w.cols, outs, w.bias?.subarray(start, start + outs));
    for (let r = 0; r < rows; r++) out.set(part.subarray(r * outs, (r + 1) * outs), r * w.rows + start);
  }
  if (residual !== undefined) for (let i = 0; i < out.length; i++) out[i]! += residual[i]!;
  return out;
}

export function experts(
  int8: boolean,
  node: NodeOf<'experts'>,
  x: Float64Array,
  route: Float64Array,
  rows: number,
  residual: Float64Array | undefined,
): Float64Array {
  const { count, activation } = node;
  const { cols } = node.x;
  const k = node.route.cols / 2;
  const out = residual?.slice() ?? new Float64Array(rows * node.out.cols);
  for (let r = 0; r < rows; r++) {
    for (let j = 0; j < k; j++) {
      const [id, weight] = [route[r * 2 * k + j]!, route[r * 2 * k + k + j]!];
      const gateUp = expertOf(node.gateUp as ReferenceMatrix, id, count);
      const inner = linear(int8, gateUp, x.slice(r * cols, (r + 1) * cols), 1);
      const half = node.down.cols;
      const hidden = inner
        .subarray(0, half)
        .map((gate, i) => reference.gatedUnit(activation, gate, inner[half + i]!));
      const y = linear(int8, expertOf(node.down as ReferenceMatrix, id, count), hidden, 1);
      y.forEach((v, i) => {
        out[r * y.length + i]! += weight * v;
      });
    }
  }
  return out;
}

function roundToInt8(x: Float64Array, groupSize: number): Float64Array {
  const out = new Float64Array(x.length);
  for (let from = 0; from < x.length; from += groupSize) {
    let top = 0;
    for (let i = from; i < from + groupSize; i++) top = Math.max(top, Math.abs(Math.fround(x[i]!)));
    const scale = Math.fround(top / 127);
    const inverse = Math.fround(127 / top);
    for (let i = from; i < from + groupSize && top > 0; i++)
      out[i] = toNearestEven(Math.fround(Math.fround(x[i]!) * inverse)) * scale;
  }
  return out;
}

function toNearestEven(value: number): number {
  const below = Math.floor(value);
  if (value - below === 0.5) return below % 2 === 0 ? below : below + 1;
  return Math.round(value);
}
