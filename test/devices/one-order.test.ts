/** Products of programs that want one order of sums: a row has the same bits in a step of few rows and of many, wherever it stands. */
import { afterAll, beforeAll, describe, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import type { MatrixFormat } from '../../src/device/weights.js';
import { realGpu } from '../setup/swiftshader.js';
import { devices, narrowSubgroups } from './devices.js';
import { Random } from './numbers.js';
import { LIMITS, record, stepOf, withProgram } from './run.js';
import { expectSameBits } from './same-bits.js';
import { randomMatrix } from './sources.js';

/** Few features of a long K: a large GPU would share these along K, otherwise for every number of rows. */
const [FEATURES, COLUMNS] = realGpu ? [896, 4096] : [48, 64];
const ROWS = realGpu ? [1, 3, 8, 20, 60, 100, 300, 1020] : [1, 3, 8, 20];
const FORMATS: readonly MatrixFormat[] = [
  { kind: 'float', dtype: 'f16' },
  { kind: 'affine', bits: 4, groupSize: 32, dtype: 'f16' },
];

describe.each([...devices, ...narrowSubgroups])('products in one order on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each(FORMATS)('give rows the same bits alone and behind others: $kind', async (format) => {
    const random = new Random(5);
    const most = Math.max(...ROWS);
    const [own, others] = [random.normals(most * COLUMNS), random.normals((most + 5) * COLUMNS)];
    const load = (rows: number, cols: number) =>
      device.loadMatrix([randomMatrix(random, rows, cols, format).source], { use: 'linear' });
    const [first, square] = [await load(FEATURES, COLUMNS), await load(COLUMNS, COLUMNS)];
    const { graph, tensors } = record((ops) => {
      const x = ops.input('tokens', COLUMNS);
      const sum = ops.linear(x, square, x);
      const seen = ops.keep(ops.linear(ops.selectOutputs(sum), first));
      return { x, sum: ops.keep(sum), seen };
    });
    const limits = { ...LIMITS, maxTokens: 2 * most + 5, maxOutputs: 2 * most + 5, oneOrder: true };
    await withProgram(
      device,
      graph,
      null,
      async (program) => {
        /** The last rows of a step, which has so many others before them. */
        const run = async (rows: number, before: number): Promise<readonly [Float32Array, Float32Array]> => {
          const all = before + rows;
          const data = new Float32Array(all * COLUMNS);
          data.set(others.subarray(0, before * COLUMNS));
          data.set(own.subarray(0, rows * COLUMNS), before * COLUMNS);
          program.write(tensors.x, data);
          const step = stepOf([all], undefined, undefined, limits);
          step.outputCount = all;
          for (let row = 0; row < all; row++) step.outputs[row] = row;
          await program.submit(step);
          const [sums, seen] = [await program.read(tensors.sum, all), await program.read(tensors.seen, all)];
          return [sums.slice(before * COLUMNS), seen.slice(before * FEATURES)];
        };
        for (const rows of ROWS) {
          const alone = await run(rows, 0);
          for (const before of [1, 5, most]) {
            const behind = await run(rows, before);
            for (const [i, values] of alone.entries()) expectSameBits(behind[i]!, values);
          }
        }
      },
      limits,
    );
  });
});
