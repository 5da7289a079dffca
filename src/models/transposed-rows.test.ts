import { describe, expect, it } from 'vitest';
import { Random } from '../../test/devices/numbers.js';
import { randomMatrix } from '../../test/devices/sources.js';
import type { MatrixFormat } from '../device/weights.js';
import { decodeFloats, f16ToNumber, numberToF16 } from '../weights/dtypes.js';
import { transposedRuns } from './transposed-rows.js';

const FORMATS: readonly MatrixFormat[] = [
  { kind: 'float', dtype: 'f32' },
  { kind: 'float', dtype: 'bf16' },
  { kind: 'affine', bits: 4, groupSize: 64, dtype: 'bf16' },
];

describe('runs of rows that are transposed', () => {
  // Three heads with 5 rows of one kind and 3 of the other, of 64 columns.
  const [heads, take, of, from, n] = [3, 5, 8, 1, 64];

  it.each(FORMATS)('of %j', async (format) => {
    const { source, values } = randomMatrix(new Random(3), heads * of, n, format);
    const made = transposedRuns(source, { take, of, from });
    expect([made.rows, made.cols]).toEqual([heads * n, take]);
    // What is quantised is f16 then, for groups would run across.
    const dtype = format.kind === 'float' ? format.dtype : 'f16';
    expect(made.format).toEqual({ kind: 'float', dtype });
    const expected = Float32Array.from({ length: heads * n * take }, (_, i) => {
      const [row, at] = [Math.floor(i / take), i % take];
      const value = values[(Math.floor(row / n) * of + from + at) * n + (row % n)]!;
      return format.kind === 'float' ? value : f16ToNumber(numberToF16(Math.fround(value)));
    });
    // Pieces that end within a run, and at its end.
    const pieces: number[] = [];
    for (const [start, end] of [
      [0, 10],
      [10, 64],
      [64, 190],
      [190, 192],
    ] as const) {
      const { data } = await made.readRows(start, end);
      const part = new Float32Array((end - start) * take);
      decodeFloats(data, dtype, part);
      pieces.push(...part);
    }
    expect(Float32Array.from(pieces)).toEqual(expected);
  });
});
