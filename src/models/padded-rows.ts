/** Matrices and vectors with zeros behind their rows and columns. */

import { type MatrixRows, type MatrixSource, rowBytes, type VectorSource } from '../device/weights.js';

const ARRAYS = ['data', 'scales', 'biases', 'subscales'] as const;

/**
 * `[rows, cols]` of a source with fewer: what is added is zeros. A code of zero with a scale and a bias of zero is zero in every format,
 * so columns are added by whole groups.
 */
export function paddedMatrix(source: MatrixSource, rows: number, cols: number): MatrixSource {
  const { name, format } = source;
  const from = rowBytes(source.cols, format);
  const to = rowBytes(cols, format);
  return {
    name,
    rows,
    cols,
    format,
    async readRows(start, end): Promise<MatrixRows> {
      const last = Math.min(end, source.rows);
      const read = start < last ? await source.readRows(start, last) : null;
      const out: { -readonly [K in keyof MatrixRows]: MatrixRows[K] } = {
        data: new Uint8Array((end - start) * to.data),
      };
      for (const array of ARRAYS) {
        if (to[array] === 0) continue;
        out[array] ??= new Uint8Array((end - start) * to[array]);
        const part = read?.[array];
        if (part === undefined) continue;
        for (let r = 0; r < last - start; r++)
          out[array].set(part.subarray(r * from[array], (r + 1) * from[array]), r * to[array]);
      }
      return out;
    },
  };
}

export function paddedVector(source: VectorSource, length: number): VectorSource {
  return {
    name: source.name,
    length,
    async read() {
      const values = new Float32Array(length);
      values.set(await source.read());
      return values;
    },
  };
}
