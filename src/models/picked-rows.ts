/** Some rows of a matrix, as they are stored: a part of a tensor whose rows alternate between two uses. */

import { type MatrixRows, type MatrixSource, rowDataBytes, rowScaleBytes } from '../device/weights.js';
import type { RowPick } from './layout.js';

/** @param source its rows are a multiple of `of` */
export function pickedRows(source: MatrixSource, { take, of, from }: RowPick): MatrixSource {
  const { cols, format, name } = source;
  const dataBytes = rowDataBytes(cols, format);
  const scaleBytes = rowScaleBytes(cols, format);
  return {
    name,
    rows: (source.rows / of) * take,
    cols,
    format,
    async readRows(start, end): Promise<MatrixRows> {
      const data = new Uint8Array((end - start) * dataBytes);
      const scales = new Uint8Array((end - start) * scaleBytes);
      const biases = new Uint8Array((end - start) * scaleBytes);
      for (let row = start; row < end; ) {
        const next = Math.min(end, (Math.floor(row / take) + 1) * take);
        const at = Math.floor(row / take) * of + from + (row % take);
        const run = await source.readRows(at, at + next - row);
        data.set(run.data, (row - start) * dataBytes);
        if (run.scales !== undefined) scales.set(run.scales, (row - start) * scaleBytes);
        if (run.biases !== undefined) biases.set(run.biases, (row - start) * scaleBytes);
        row = next;
      }
      return format.kind === 'float' ? { data } : { data, scales, biases };
    },
  };
}
