/** A matrix of floats that is stored with its columns as rows. */

import { floatBytes, type MatrixSource } from '../device/weights.js';
import { KvantError } from '../errors.js';

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
    // A copy: what is read may lie at any address.
    const own = data.slice().buffer;
    const out = new ArrayBuffer(data.length);
    const [from, to] =
      size === 2
        ? [new Uint16Array(own), new Uint16Array(out)]
        : [new Uint32Array(own), new Uint32Array(out)];
    for (let c = 0; c < count; c++) for (let r = 0; r < rows; r++) to[r * count + c] = from[c * rows + r]!;
    return new Uint8Array(out);
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
