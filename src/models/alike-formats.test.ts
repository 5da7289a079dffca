/** Experts in formats that differ: one format, and the same numbers. */
import { describe, expect, it } from 'vitest';
import { Random } from '../../test/devices/numbers.js';
import { randomMatrix } from '../../test/devices/sources.js';
import type { MatrixFormat, MatrixSource } from '../device/weights.js';
import { unpackAffineRow } from '../weights/affine.js';
import { decodeFloats } from '../weights/dtypes.js';
import { alike } from './alike-formats.js';

type Affine = Extract<MatrixFormat, { kind: 'affine' }>;
const affine = (
  bits: Affine['bits'],
  groupSize: Affine['groupSize'],
  dtype: Affine['dtype'] = 'bf16',
): Affine => ({ kind: 'affine', bits, groupSize, dtype });
const matrix = (format: MatrixFormat, seed = 3): ReturnType<typeof randomMatrix> =>
  randomMatrix(new Random(seed), 6, 256, format);

/** The numbers of rows 1 to 4, read in two pieces. */
async function numbersOf({ format, cols, readRows }: MatrixSource): Promise<Float32Array> {
  const { bits, groupSize, dtype } = format as Affine;
  const out = new Float32Array(4 * cols);
  for (const [start, end] of [
    [1, 2],
    [2, 5],
  ] as const) {
    const { data, scales, biases } = await readRows(start, end);
    const groups = ((end - start) * cols) / groupSize;
    const floats = [scales!, biases!].map((bytes) => {
      const numbers = new Float32Array(groups);
      decodeFloats(bytes, dtype, numbers);
      return numbers;
    });
    for (let row = start; row < end; row++) {
      const [of, each] = [row - start, cols / groupSize];
      const parts = floats.map((all) => all.subarray(of * each, (of + 1) * each));
      unpackAffineRow(
        data.subarray((of * cols * bits) / 8, ((of + 1) * cols * bits) / 8),
        parts[0]!,
        parts[1]!,
        { bits, groupSize },
        out.subarray((row - 1) * cols, row * cols),
      );
    }
  }
  return out;
}

describe('experts in formats that differ', () => {
  it.each([
    [affine(4, 64), affine(6, 64), affine(6, 64)],
    [affine(3, 128), affine(5, 32), affine(5, 32)],
    [affine(8, 128), affine(2, 64), affine(8, 64)],
    [affine(4, 32, 'f16'), affine(4, 128, 'f16'), affine(4, 32, 'f16')],
  ])('%j beside %j are %j, and the same numbers', async (one, other, common) => {
    const sources = [matrix(one), matrix(other, 4)];
    const made = alike(sources.map(({ source }) => source));
    expect(made.map(({ format }) => format)).toEqual([common, common]);
    for (const [i, { source }] of sources.entries())
      expect(await numbersOf(made[i]!)).toEqual(await numbersOf(source));
  });

  it('stay as they are where they are in one', () => {
    const parts = [matrix(affine(4, 64)).source, matrix(affine(4, 64), 4).source];
    expect(alike(parts)).toBe(parts);
    const floats = [matrix({ kind: 'float', dtype: 'bf16' }).source];
    expect(alike(floats)).toBe(floats);
  });

  it.each([
    ['floats', { kind: 'float', dtype: 'bf16' }],
    ['scales of another kind', affine(4, 64, 'f16')],
    ['a table', { kind: 'lut4', bits: 4, table: 'e2m1', scale: 'e8m0', dtype: 'f16' }],
  ] as const)('are refused by name beside %s', (_, format) => {
    const parts = [matrix(affine(4, 64)).source, { ...matrix(format).source, name: 'experts.up_proj' }];
    expect(() => alike(parts)).toThrow(
      expect.objectContaining({ code: 'weights-quantization-unsupported', where: 'experts.up_proj' }),
    );
  });
});
