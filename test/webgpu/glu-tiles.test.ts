/**
 * A gated MLP over the tokens of a prompt, wide enough for the largest tiles of a GEMM on matrices: there the results of gate
 * and up lie in workgroup memory where the tiles were, and leave it as halves for the product behind them.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { devices } from '../devices/devices.js';
import { Random, worstRow } from '../devices/numbers.js';
import * as reference from '../devices/reference.js';
import { record, rowsStep, withProgram } from '../devices/run.js';
import { randomMatrix } from '../devices/sources.js';

const HIDDEN = 256;
const OUT = 96;
const Q4 = { kind: 'affine', bits: 4, groupSize: 64, dtype: 'f16' } as const;

describe.each(devices.filter((d) => d.name === 'webgpu default'))('the glu of a prompt on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  // 96 tiles of 128 × 128 for 250 rows and more, the last of which are not full; a few where a product takes long.
  const widths = spec.slow ? [192] : [3072, 3200];
  it.each(widths)('agrees with float64, kept and handed on: %i wide', async (wide) => {
    const random = new Random(wide);
    const limits = { maxTokens: 512, maxOutputs: 1, maxSequences: 512, maxContext: 2048, inFlight: 2 };
    const gateUp = randomMatrix(random, 2 * wide, HIDDEN, Q4);
    const down = randomMatrix(random, OUT, wide, Q4);
    const [first, second] = [
      await device.loadMatrix([gateUp.source], { use: 'linear' }),
      await device.loadMatrix([down.source], { use: 'linear' }),
    ];
    for (const keeps of [true, false]) {
      const { graph, tensors } = record((ops) => {
        const x = ops.input('tokens', HIDDEN);
        const gated = ops.glu(ops.linear(x, first), 'silu');
        if (keeps) ops.keep(gated);
        return { x, gated, out: ops.keep(ops.linear(gated, second)) };
      });
      await withProgram(
        device,
        graph,
        null,
        async (program) => {
          for (const rows of spec.slow ? [21, 130] : [250, 301]) {
            const x = random.normals(rows * HIDDEN);
            program.write(tensors.x, x);
            await program.submit(rowsStep(rows, limits));
            const both = reference.linear(x, gateUp.values, rows, HIDDEN, 2 * wide);
            const gated = reference.glu(both, rows, wide, 'silu');
            if (keeps)
              expect(worstRow(await program.read(tensors.gated, rows), gated, rows, wide)).toBeLessThan(3e-3);
            const out = reference.linear(gated, down.values, rows, wide, OUT);
            expect(worstRow(await program.read(tensors.out, rows), out, rows, OUT)).toBeLessThan(5e-3);
          }
        },
        limits,
      );
    }
  });
});
