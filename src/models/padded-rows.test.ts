import { describe, expect, it } from 'vitest';
import type { MatrixFormat, MatrixSource } from '../device/weights.js';
import { rowBytes } from '../device/weights.js';
import { paddedMatrix, paddedVector } from './padded-rows.js';

const FORMATS: readonly MatrixFormat[] = [
  { kind: 'float', dtype: 'f16' },
  { kind: 'affine', bits: 4, groupSize: 32, dtype: 'f16' },
];

function numbered(rows: number, cols: number, format: MatrixFormat): MatrixSource {
  const bytes = rowBytes(cols, format);
  const fill = (start: number, end: number, each: number): Uint8Array =>
    Uint8Array.from({ length: (end - start) * each }, (_, i) => 1 + ((start * each + i) % 250));
  return {
    name: 'm',
    rows,
    cols,
    format,
    readRows: async (start, end) => {
      if (end > rows) throw new Error('a row that is not there');
      return {
        data: fill(start, end, bytes.data),
        ...(bytes.scales > 0 && { scales: fill(start, end, bytes.scales) }),
        ...(bytes.biases > 0 && { biases: fill(start, end, bytes.biases) }),
      };
    },
  };
}

describe('paddedMatrix', () => {
  it.each(FORMATS)('adds zeros behind rows and columns of $kind', async (format) => {
    const source = numbered(5, 64, format);
    const padded = paddedMatrix(source, 8, 96);
    expect(padded).toMatchObject({ rows: 8, cols: 96, format });
    const [from, to] = [rowBytes(64, format), rowBytes(96, format)];
    const all = await padded.readRows(0, 8);
    const own = await source.readRows(0, 5);
    for (const array of ['data', 'scales', 'biases'] as const) {
      const [got, want] = [all[array], own[array]];
      expect(got === undefined).toBe(want === undefined);
      if (got === undefined || want === undefined) continue;
      for (let r = 0; r < 8; r++) {
        const row = got.subarray(r * to[array], (r + 1) * to[array]);
        const there = r < 5 ? [...want.subarray(r * from[array], (r + 1) * from[array])] : [];
        expect([...row]).toEqual([...there, ...new Array(to[array] - there.length).fill(0)]);
      }
    }
    // Any cut gives the same rows, also where it begins behind the last that is there.
    for (const [start, end] of [
      [3, 7],
      [6, 8],
    ] as const)
      expect((await padded.readRows(start, end)).data).toEqual(
        all.data.slice(start * to.data, end * to.data),
      );
  });

  it('pads vectors', async () => {
    const source = { name: 'v', length: 2, read: async () => Float32Array.of(3, 4) };
    expect(await paddedVector(source, 4).read()).toEqual(Float32Array.of(3, 4, 0, 0));
  });
});
