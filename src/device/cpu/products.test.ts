/** Products of every format and build against float64, and a row's bits alone and among others. */
import { beforeAll, describe, expect, it } from 'vitest';
import { bench, FORMATS, openBuilds } from '../../../test/devices/cpu-builds.js';
import {
  activations,
  BUILDS,
  exactProduct,
  int8Bound,
  testMatrix,
} from '../../../test/devices/cpu-products.js';
import { expectSameBits } from '../../../test/devices/same-bits.js';
import { formatLabel } from '../../../test/devices/sources.js';
import { PRECISIONS } from '../device.js';
import type { MatrixFormat } from '../weights.js';
import { columnUnit, groupColumns } from '../weights.js';

const ROWS = [1, 2, 3, 5, 8, 17, 64];

beforeAll(openBuilds);

function colsOf(format: MatrixFormat): number[] {
  return format.kind === 'float' ? [4, 100, 260] : [columnUnit(format), columnUnit(format) * 3];
}

describe.each(BUILDS)('products, %s', (build) => {
  it.each(FORMATS.map((format) => [formatLabel(format), format] as const))('%s', async (_, format) => {
    let seed = 1;
    for (const cols of colsOf(format)) {
      // One block, and as many as tiles of one row take at a time.
      for (const outRows of [1, 8, 53]) {
        const device = bench(build);
        const { source, weights } = testMatrix(outRows, cols, format, seed++);
        const matrix = await device.pack([source]);
        const largest = weights.reduce((top, w) => Math.max(top, Math.abs(w)), 0);
        for (const precision of PRECISIONS) {
          const x = activations(ROWS.at(-1)!, cols, seed++);
          const sizes = Array.from({ length: ROWS.at(-1)! }, (_, r) =>
            x.subarray(r * cols, (r + 1) * cols).reduce((sum, v) => sum + Math.abs(v), 0),
          );
          const all = device.multiply(matrix, x, precision);
          for (let r = 0; r < ROWS.at(-1)!; r++) {
            for (let o = 0; o < outRows; o++) {
              const { sum, magnitude } = exactProduct(weights, x, cols, r, o);
              let bound = (magnitude + 1e-30) * cols * 2 ** -24;
              if (format.kind !== 'float') {
                // Rounding to f32 where `scale · code` and `bias` cancel.
                bound += sizes[r]! * largest * 2 ** -22;
                if (precision === 'default')
                  bound = bound + int8Bound(weights, x, cols, groupColumns(format), r, o) * 1.0001;
              }
              const error = Math.abs(all[r * outRows + o]! - sum);
              if (!(error <= bound))
                expect.fail(`row ${r}, out ${o} of ${outRows}, cols ${cols}: ${error} > ${bound}`);
            }
          }
          // Few rows, one row, and rows at another place of a tile: the same bits.
          for (const rows of ROWS.slice(0, -1)) {
            const first = 7;
            const some = device.multiply(
              matrix,
              x.subarray(first * cols, (first + rows) * cols).slice(0),
              precision,
            );
            expectSameBits(some, all.subarray(first * outRows, first * outRows + some.length));
          }
        }
      }
    }
  });
});

describe('32-bit sums', () => {
  it.each(FORMATS.filter((f) => f.kind === 'affine').map((f) => [formatLabel(f), f] as const))(
    '%s: the same bits as 16-bit sums, for any number of rows',
    async (_, format) => {
      const cols = format.groupSize * 2;
      const { source } = testMatrix(19, cols, format, 31);
      const x = activations(23, cols, 32);
      // Groups whose products fill 16 bits, and tiles without.
      for (let i = 0; i < 9 * cols; i++) x[i] = Math.sign(x[i]!) * (1 + (i % 3) * 0.01);
      for (let rows = 1; rows <= 23; rows++) {
        const [a, b] = await Promise.all(
          (['relaxed', 'dot'] as const).map(async (build) => {
            const device = bench(build);
            const matrix = await device.pack([source]);
            return device.multiply(matrix, x.slice(0, rows * cols), 'default');
          }),
        );
        expectSameBits(a!, b!);
      }
    },
  );
});
