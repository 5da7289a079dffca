/** Some rows of a matrix, as they are stored: a part of a tensor whose rows alternate between two uses. */

import { type MatrixRows, type MatrixSource, rowBytes } from '../device/weights.js';
import type { RowPick } from './layout.js';

const ARRAYS = ['data', 'scales', 'biases', 'subscales'] as const;

/** @param source its rows are a multiple of `of` */
export function pickedRows(source: MatrixSource, { take, of, from }: RowPick): MatrixSource {
  const { cols, format, name } = source;
  const bytes = rowBytes(cols, format);
  return {
    name,
    rows: (source.rows / of) * take,
    cols,
    format,
    async readRows(start, end): Promise<MatrixRows> {
      const rows: { -readonly [K in keyof MatrixRows]: MatrixRows[K] } = {
        data: new Uint8Array((end - start) * bytes.data),
      };
      for (let row = start; row < end; ) {
        const next = Math.min(end, (Math.floor(row / take) + 1) * take);
        const at = Math.floor(row / take) * of + from + (row % take);
        const run = await source.readRows(at, at + next - row);
        for (const array of ARRAYS) {
          const part = run[array];
          if (part === undefined) continue;
          rows[array] ??= new Uint8Array((end - start) * bytes[array]);
          rows[array].set(part, (row - start) * bytes[array]);
        }
        row = next;
      }
      return rows;
    },
  };
}
