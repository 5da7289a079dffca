/** Some rows of a matrix, as they are stored: a part of a tensor whose rows alternate between two uses. */

import { type MatrixRows, type MatrixSource, rowBytes } from '../device/weights.js';
import type { RowPick } from './layout.js';

/** Rows of a run that is read by itself, at least. */
const SHORT = 16;

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
      const placeOf = (row: number): number => Math.floor(row / take) * of + from + (row % take);
      const copy = (run: MatrixRows, first: number, row: number, next: number): void => {
        for (const array of ARRAYS) {
          const part = run[array];
          if (part === undefined) continue;
          rows[array] ??= new Uint8Array((end - start) * bytes[array]);
          const at = (placeOf(row) - first) * bytes[array];
          rows[array].set(part.subarray(at, at + (next - row) * bytes[array]), (row - start) * bytes[array]);
        }
      };
      // Where runs are short all between them is read along: a read costs more than a few rows.
      const together = take < SHORT ? await source.readRows(placeOf(start), placeOf(end - 1) + 1) : undefined;
      for (let row = start; row < end; ) {
        const next = Math.min(end, (Math.floor(row / take) + 1) * take);
        const at = placeOf(row);
        if (together === undefined) copy(await source.readRows(at, at + next - row), at, row, next);
        else copy(together, placeOf(start), row, next);
        row = next;
      }
      return rows;
    },
  };
}
