/** Matrices that are stored with their columns as rows. */

import { floatBytes, type MatrixSource } from '../device/weights.js';
import { KvantError } from '../errors.js';
import { dequantiseRows } from '../weights/dequantise.js';
import { encodeFloats } from '../weights/dtypes.js';
import type { RowPick } from './layout.js';

/**
 * Of rows `[first, first + count)` of a source `[…, n]` the matrix `[n, count]`. It is held from the first read until the last row is read.
 *
 * @throws KvantError `weights-tensor-dtype` where they are quantised: groups would run across
 */
export function transposedRows(source: MatrixSource, first: number, count: number): MatrixSource {
  const { name, cols: rows, format } = source;
  if (format.kind !== 'float')
    throw new KvantError(
      'weights-tensor-dtype',
      `${name} is quantised, and stored with its columns as rows`,
      {
        kind: 'model',
        where: name,
        fix: 'Use a checkpoint with these weights as floats, or as their publisher quantised them.',
      },
    );
  const size = floatBytes(format.dtype);
  let turned: Promise<Uint8Array> | undefined;
  const turn = async (): Promise<Uint8Array> => {
    const { data } = await source.readRows(first, first + count);
    return transposed(data, count, rows, size);
  };
  return {
    name,
    rows,
    cols: count,
    format,
    async readRows(start, end) {
      turned ??= turn();
      const all = await turned;
      if (end === rows) turned = undefined;
      return { data: all.slice(start * count * size, end * count * size) };
    },
  };
}

/**
 * Of every `of` rows of a source `[…, n]` those that are picked, each run transposed by itself: `[runs · n, take]`. What is quantised
 * becomes f16, for its groups would run across. One run is held at a time.
 */
export function transposedRuns(source: MatrixSource, { take, of, from }: RowPick): MatrixSource {
  const { name, rows, cols: n, format } = source;
  const dtype = format.kind === 'float' ? format.dtype : 'f16';
  const size = floatBytes(dtype);
  let held: { readonly run: number; readonly data: Promise<Uint8Array> } | undefined;
  const turn = async (run: number): Promise<Uint8Array> => {
    const first = run * of + from;
    const piece = await source.readRows(first, first + take);
    if (format.kind === 'float') return transposed(piece.data, take, n, size);
    const values = new Float32Array(take * n);
    dequantiseRows(piece, take, n, format, values);
    const halves = new Uint8Array(values.length * size);
    encodeFloats(values, dtype, halves);
    return transposed(halves, take, n, size);
  };
  return {
    name,
    rows: (rows / of) * n,
    cols: take,
    format: { kind: 'float', dtype },
    async readRows(start, end) {
      const data = new Uint8Array((end - start) * take * size);
      for (let row = start; row < end; ) {
        const run = Math.floor(row / n);
        const next = Math.min(end, (run + 1) * n);
        if (held?.run !== run) held = { run, data: turn(run) };
        const whole = await held.data;
        const part = whole.subarray((row - run * n) * take * size, (next - run * n) * take * size);
        data.set(part, (row - start) * take * size);
        row = next;
      }
      if (end === (rows / of) * n) held = undefined;
      return { data };
    },
  };
}

/** `[rows, cols]` of numbers of `size` bytes as `[cols, rows]`. */
function transposed(data: Uint8Array, rows: number, cols: number, size: number): Uint8Array {
  // A copy: what is read may lie at any address.
  const own = data.slice().buffer;
  const out = new ArrayBuffer(data.length);
  const [from, to] =
    size === 2 ? [new Uint16Array(own), new Uint16Array(out)] : [new Uint32Array(own), new Uint32Array(out)];
  for (let r = 0; r < rows; r++) for (let c = 0; c < cols; c++) to[c * rows + r] = from[r * cols + c]!;
  return new Uint8Array(out);
}
