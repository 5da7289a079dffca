/** A program whose product is large enough for dp4a: what lies between their two launches, for every number of rows. */
import { describe, expect, it } from 'vitest';
import type { WebGpuProgram } from '../../src/device/webgpu/program.js';
import { devices, narrowSubgroups } from '../devices/devices.js';
import { Random, worstRow } from '../devices/numbers.js';
import * as reference from '../devices/reference.js';
import { record, rowsStep, withProgram } from '../devices/run.js';
import { randomMatrix, vectorSource } from '../devices/sources.js';

const here =
  narrowSubgroups.length > 0 ? narrowSubgroups : devices.filter((d) => d.name === 'webgpu default');
const [HIDDEN, WIDE, MOST] = [512, 16384 * 2, 9];

describe.each(here)('dp4a in a program on $name', (spec) => {
  it('agree with float64, with 16 bits of x for two rows and 8 for more', async () => {
    await using device = await spec.create();
    const random = new Random(3);
    const format = { kind: 'affine', bits: 4, groupSize: 64, dtype: 'f16' } as const;
    const { source, values } = randomMatrix(random, WIDE, HIDDEN, format);
    const weight = await device.loadMatrix([source], { use: 'linear' });
    const gains = random.normals(HIDDEN);
    const gain = await device.loadVector(vectorSource(gains));
    const limits = { maxTokens: MOST, maxOutputs: 1, maxSequences: MOST, maxContext: 64, inFlight: 1 };
    const { graph, tensors } = record((ops) => {
      const x = ops.input('tokens', HIDDEN);
      return { x, out: ops.keep(ops.linear(ops.rmsNorm(x, gain, 1e-6), weight)) };
    });
    await withProgram(
      device,
      graph,
      null,
      async (program) => {
        for (const rows of [1, 2, 3, 8, 5, 9, 1]) {
          const labels = (program as WebGpuProgram).describe(rows, 0);
          expect(labels.some((label) => label.startsWith('dp4a'))).toBe(rows <= 8);
          const x = random.normals(rows * HIDDEN);
          program.write(tensors.x, x);
          await program.submit(rowsStep(rows, limits));
          const normed = reference.rmsNorm(x, gains, rows, HIDDEN, 1e-6);
          const wanted = reference.linear(normed, values, rows, HIDDEN, WIDE);
          const error = worstRow(await program.read(tensors.out, rows), wanted, rows, WIDE);
          // What the CPU may lose, which has bytes too: gains make some numbers large beside the others of their piece.
          expect(error, `${rows} rows`).toBeLessThan(rows <= 2 ? 1e-4 : rows <= 8 ? 2e-2 : 2e-3);
        }
      },
      limits,
    );
  });
});
