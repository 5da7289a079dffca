/** Packing of matrices: what is refused, what is counted, and rows that come back as they were. */
import { beforeAll, describe, expect, it } from 'vitest';
import { bench, FORMATS, openBuilds } from '../../../test/devices/cpu-builds.js';
import { BUILDS, memorySource, testMatrix, vectorSource } from '../../../test/devices/cpu-products.js';
import { formatLabel } from '../../../test/devices/sources.js';
import type { MatrixFormat, MatrixSource } from '../weights.js';
import { columnUnit } from '../weights.js';
import { packMatrix, stackedBytes } from './pack.js';

beforeAll(openBuilds);

describe('packing', () => {
  it('refuses what cannot be multiplied with', async () => {
    const device = bench('simd');
    const f32 = { kind: 'float', dtype: 'f32' } as const;
    const group = { kind: 'affine', bits: 4, groupSize: 64, dtype: 'bf16' } as const;
    const source = (rows: number, cols: number, format: MatrixFormat): MatrixSource => ({
      ...testMatrix(1, 64, format, 1).source,
      rows,
      cols,
    });
    expect(() => stackedBytes([])).toThrow(/at least one part/);
    expect(() => stackedBytes([source(2, 6, f32)])).toThrow(/multiple of 4/);
    expect(() => stackedBytes([source(2, 96, group)])).toThrow(/multiple of the group/);
    expect(() => stackedBytes([source(2, 64, group), source(2, 128, group)])).toThrow(/stacked/);
    await expect(device.pack([source(2, 128, group)])).rejects.toThrow(/wrong number of bytes/);
    const bias = [vectorSource(new Float32Array(3))];
    await expect(device.pack([source(1, 64, group)], bias)).rejects.toThrow(/bias of 3/);
    const infinite = memorySource(
      'inf',
      1,
      4,
      { kind: 'float', dtype: 'f16' },
      Uint8Array.of(0, 0, 0, 0x7c, 0, 0, 0, 0),
    );
    await expect(device.pack([infinite])).rejects.toMatchObject({ code: 'weights-not-finite', where: 'inf' });
  });

  it('reports the bytes it takes in', async () => {
    const device = bench('simd');
    const { source } = testMatrix(9, 64, { kind: 'affine', bits: 4, groupSize: 64, dtype: 'bf16' }, 2);
    let bytes = 0;
    const at = device.allocate(stackedBytes([source]));
    await packMatrix(device.memory, at, [source], {
      build: 'simd',
      scratch: (size) => device.scratch(size),
      onBytes: (n) => (bytes += n),
    });
    expect(bytes).toBe(9 * (32 + 4));
  });
});

describe.each(BUILDS)('rows of a packed matrix, %s', (build) => {
  it.each(FORMATS.map((format) => [formatLabel(format), format] as const))(
    'gathers exactly: %s',
    async (_, format) => {
      const device = bench(build);
      const cols = format.kind === 'float' ? 36 : columnUnit(format) * 2;
      const first = testMatrix(13, cols, { kind: 'float', dtype: 'f32' }, 41);
      const second = testMatrix(11, cols, format, 42);
      const matrix = await device.pack([first.source, second.source]);
      const row = device.f32(device.allocate((matrix.rows + 1) * cols * 4), (matrix.rows + 1) * cols);
      device.gather(matrix, 1, row);
      for (let r = 0; r < matrix.rows; r++) {
        const [weights, local] = r < 13 ? [first.weights, r] : [second.weights, r - 13];
        for (let c = 0; c < cols; c++) {
          const exact = weights[local * cols + c]!;
          const got = row[r * cols + c]!;
          // f32 scales round the product before the bias is added; all else is one rounding.
          const slack = format.kind === 'affine' && format.dtype === 'f32' ? 2 ** -23 : 0;
          if (Math.abs(got - Math.fround(exact)) > slack)
            expect.fail(`row ${r}, col ${c}: ${got}, not ${exact}`);
        }
      }
      // An id outside the table.
      expect(row.subarray(matrix.rows * cols).every((v) => v === 0)).toBe(true);
      device.gather(matrix, 8, row);
      for (let c = 0; c < cols; c++) expect(row[c]).toBe(8 * first.weights[c]!);
    },
  );
});
