/** Tensors of an mmproj file that one of a checkpoint is made of. */

import { type MatrixRows, type MatrixSource, rowBytes, type VectorSource } from '../../device/weights.js';
import { dequantiseRows } from '../../weights/dequantise.js';

const ARRAYS = ['data', 'scales', 'biases', 'subscales'] as const;

/** Rows of several matrices, one behind the other. Where they are of several types, as Ollama mixes them, all are widened to f32. */
export function joinedRows(name: string, given: readonly MatrixSource[]): MatrixSource {
  const [one] = given as [MatrixSource];
  if (given.length === 1) return one;
  const alike = given.every((part) => JSON.stringify(part.format) === JSON.stringify(one.format));
  const parts = alike ? given : given.map(widened);
  const { cols, format } = parts[0]!;
  const each = rowBytes(cols, format);
  const rows = parts.reduce((sum, part) => sum + part.rows, 0);
  return {
    name,
    rows,
    cols,
    format,
    async readRows(start, end): Promise<MatrixRows> {
      const out: { -readonly [K in keyof MatrixRows]: MatrixRows[K] } = {
        data: new Uint8Array((end - start) * each.data),
      };
      let first = 0;
      for (const part of parts) {
        const [from, to] = [Math.max(start, first), Math.min(end, first + part.rows)];
        if (from < to) {
          const read = await part.readRows(from - first, to - first);
          for (const array of ARRAYS) {
            const bytes = read[array];
            if (bytes === undefined || each[array] === 0) continue;
            out[array] ??= new Uint8Array((end - start) * each[array]);
            out[array].set(bytes, (from - start) * each[array]);
          }
        }
        first += part.rows;
      }
      return out;
    },
  };
}

/** A matrix as f32 of what its numbers mean. */
function widened(part: MatrixSource): MatrixSource {
  const { name, rows, cols, format } = part;
  return {
    name,
    rows,
    cols,
    format: { kind: 'float', dtype: 'f32' },
    async readRows(start, end): Promise<MatrixRows> {
      const out = new Float32Array((end - start) * cols);
      dequantiseRows(await part.readRows(start, end), end - start, cols, format, out);
      return { data: new Uint8Array(out.buffer) };
    },
  };
}

/** Numbers of several vectors, one behind the other. */
export function joinedNumbers(name: string, parts: readonly VectorSource[]): VectorSource {
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  return {
    name,
    length,
    async read() {
      const out = new Float32Array(length);
      let at = 0;
      for (const part of parts) {
        out.set(await part.read(), at);
        at += part.length;
      }
      return out;
    },
  };
}

/** Numbers in another order. */
export function reorderedNumbers(
  source: VectorSource,
  reordered: (values: Float32Array) => Float32Array,
): VectorSource {
  return { ...source, read: async () => reordered(await source.read()) };
}

/** Convolutions `[rows, channels, y, x]` of the frames as one `[rows, channels, frame, y, x]`. `area`: of a patch. */
export function joinedFrames(name: string, parts: readonly VectorSource[], area: number): VectorSource {
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  return {
    name,
    length,
    async read() {
      const frames = await Promise.all(parts.map((part) => part.read()));
      const out = new Float32Array(length);
      for (let run = 0; run < length / parts.length / area; run++)
        frames.forEach((frame, f) => {
          out.set(frame.subarray(run * area, (run + 1) * area), (run * frames.length + f) * area);
        });
      return out;
    },
  };
}
