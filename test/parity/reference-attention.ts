/** Attention of the float64 device: q and k normed and rotated, k and v stored, and each query over what its sequence has stored. */
import type { NodeOf } from '../../src/device/graph.js';
import { ROPE_FINE, type RopeTable } from '../../src/device/rope.js';
import { f16ToNumber, numberToF16 } from '../../src/weights/dtypes.js';
import * as reference from '../devices/reference.js';
import type { ReferencePool, ReferenceVector } from './reference-storage.js';

export function ropeAppend(
  pool: ReferencePool,
  int8: boolean,
  node: NodeOf<'rope-append'>,
  qkv: Float64Array,
  slots: number[],
  positions: number[],
): Float64Array {
  const { heads, kvHeads, headDim } = node.shape;
  const others = node.shape.valueDim === undefined ? 2 * kvHeads : kvHeads;
  const all = heads + (node.queriesOnly === true ? 0 : others);
  const width = all * headDim;
  const out = new Float64Array(slots.length * heads * headDim);
  for (let t = 0; t < slots.length; t++) {
    for (let h = 0; h < all; h++) {
      let head: Float64Array = qkv.slice(t * width + h * headDim, t * width + (h + 1) * headDim);
      const norm = h < heads ? node.norm?.q : node.norm?.k;
      if (h < heads + kvHeads) {
        const normed = (): void => {
          const { values } = norm as ReferenceVector;
          head = reference.rmsNorm(head, values, 1, headDim, node.norm?.eps as number);
        };
        const after = node.norm?.order === 'after';
        if (norm !== undefined && !after) normed();
        if (node.rope !== null) rotate(head, node.rope, positions[t]!);
        if (norm !== undefined && after) normed();
      }
      if (h < heads) {
        if (node.queryGrowth !== null) {
          const { beta, every } = node.queryGrowth;
          const growth = 1 + beta * Math.log(1 + Math.floor(positions[t]! / every));
          head = head.map((x) => x * growth);
        }
        out.set(head, (t * heads + h) * headDim);
      } else {
        const store = h < heads + kvHeads ? pool.keys : pool.values;
        const layer = pool.spec.layers[node.layer]!;
        const format = h < heads + kvHeads ? layer.key : layer.value;
        if (int8 && format.kind === 'float' && format.dtype === 'f16')
          head = head.map((x) => f16ToNumber(numberToF16(x)));
        const row = pool.row(slots[t]!, positions[t]!);
        store[node.layer]!.set(head, (row * kvHeads + ((h - heads) % kvHeads)) * headDim);
      }
    }
  }
  return out;
}

/** `ends`: behind the last position that each token sees. */
export function attend(
  pool: ReferencePool,
  node: NodeOf<'attend'>,
  q: Float64Array,
  slots: number[],
  positions: number[],
  ends: number[],
): Float64Array {
  const { heads, kvHeads, headDim, valueDim = headDim } = node.shape;
  const latent = node.shape.valueDim !== undefined;
  const out = new Float64Array((q.length / headDim) * valueDim);
  for (let t = 0; t < slots.length; t++) {
    for (let h = 0; h < heads; h++) {
      const kvHead = Math.floor(h / (heads / kvHeads));
      const vectors = (store: Float64Array): Float64Array[] =>
        Array.from({ length: ends[t]! }, (_, p) => {
          const at = (pool.row(slots[t]!, p) * kvHeads + kvHead) * headDim;
          return store.subarray(at, at + headDim);
        });
      const at = (t * heads + h) * headDim;
      const keys = vectors(pool.keys[node.layer]!);
      const sinks = (node.sinks as ReferenceVector | null | undefined)?.values;
      const how = { ...node, position: positions[t]!, ...(sinks && { sink: sinks[h]! }) };
      const values = latent
        ? keys.map((key) => key.subarray(headDim - valueDim))
        : vectors(pool.values[node.layer]!);
      out.set(
        reference.attendOne(q.subarray(at, at + headDim), keys, values, how),
        (t * heads + h) * valueDim,
      );
    }
  }
  return out;
}

/** As the tables say: coarse and fine angle added; the halves of what rotates are pairs, or neighbours are. */
function rotate(head: Float64Array, { dims, style, fine, coarse }: RopeTable, position: number): void {
  const half = dims / 2;
  for (let i = 0; i < half; i++) {
    const f = ((position % ROPE_FINE) * half + i) * 2;
    const c = (Math.floor(position / ROPE_FINE) * half + i) * 2;
    const cos = coarse[c]! * fine[f]! - coarse[c + 1]! * fine[f + 1]!;
    const sin = coarse[c + 1]! * fine[f]! + coarse[c]! * fine[f + 1]!;
    const [a, b] = style === 'half' ? [i, i + half] : [2 * i, 2 * i + 1];
    const x = head[a]!;
    const y = head[b]!;
    head[a] = x * cos - y * sin;
    head[b] = x * sin + y * cos;
  }
}
