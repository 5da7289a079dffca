import { afterEach, describe, expect, it } from 'vitest';
import { Random } from '../../../test/devices/numbers.js';
import { LIMITS, record, rowsStep, withProgram } from '../../../test/devices/run.js';
import { randomMatrix, vectorSource } from '../../../test/devices/sources.js';
import type { Device } from '../device.js';
import { ACTIVATIONS, type NodeOf, type Tensor } from '../graph.js';
import type { Ops } from '../ops.js';
import type { MatrixFormat } from '../weights.js';
import { findFusions } from './fusion.js';
import { createCpuDevice } from './index.js';

const HIDDEN = 192;
const WIDE = 320;
const AFFINE: MatrixFormat = { kind: 'affine', bits: 4, groupSize: 64, dtype: 'f16' };

let device: Device | undefined;
afterEach(async () => {
  await device?.[Symbol.asyncDispose]();
});

async function makeParts(random: Random, format: MatrixFormat) {
  device = await createCpuDevice({ threads: 3 });
  const norm = await device.loadVector(vectorSource(random.normals(HIDDEN)));
  const up = await device.loadMatrix([randomMatrix(random, 2 * WIDE, HIDDEN, format).source], {
    use: 'linear',
  });
  const down = await device.loadMatrix([randomMatrix(random, HIDDEN, WIDE, format).source], {
    use: 'linear',
  });
  return { device, norm, up, down };
}

describe('norms and glus that are done while a product quantises', () => {
  it.each(ACTIVATIONS)('give the bits of those that are kept, %s', async (activation) => {
    const random = new Random(61);
    const { device, norm, up, down } = await makeParts(random, AFFINE);
    const build = (ops: Ops, keep: boolean) => {
      const x = ops.input('tokens', HIDDEN);
      const normed = ops.rmsNorm(x, norm, 1e-5);
      const gated = ops.glu(ops.linear(normed, up), activation);
      const out = ops.keep(ops.linear(gated, down, x));
      if (keep) for (const tensor of [normed, gated]) ops.keep(tensor);
      return { x, out };
    };
    const rows = LIMITS.maxOutputs;
    const x = random.normals(rows * HIDDEN);
    const run = async (keep: boolean, count: number): Promise<Float32Array> => {
      const { graph, tensors } = record((ops) => build(ops, keep));
      expect(findFusions(graph, () => true).gone.size).toBe(keep ? 0 : 2);
      return withProgram(device, graph, null, async (program) => {
        program.write(tensors.x, x.subarray(0, count * HIDDEN));
        await program.submit(rowsStep(count));
        return program.read(tensors.out, count);
      });
    };
    for (const count of [1, 2, 7, rows]) {
      const made = await run(false, count);
      expect(new Uint32Array(made.slice().buffer)).toEqual(
        new Uint32Array((await run(true, count)).slice().buffer),
      );
    }
  });

  it('are left alone where another reads them, or the product stands apart or wants floats', async () => {
    const { norm, up, down } = await makeParts(new Random(62), AFFINE);
    const fused = (build: (ops: Ops) => Tensor, allows = true): number => {
      const { graph } = record((ops) => {
        ops.keep(build(ops));
        return {};
      });
      return findFusions(graph, (_: NodeOf<'linear'>) => allows).gone.size;
    };
    const plain = (ops: Ops) => ops.linear(ops.rmsNorm(ops.input('tokens', HIDDEN), norm, 1e-5), up);
    expect(fused(plain)).toBe(1);
    expect(fused(plain, false)).toBe(0);
    expect(
      fused((ops) => {
        const normed = ops.rmsNorm(ops.input('tokens', HIDDEN), norm, 1e-5);
        return ops.linear(ops.glu(ops.linear(normed, up), 'silu'), down, normed);
      }),
    ).toBe(1);
    expect(
      fused((ops) => {
        const normed = ops.rmsNorm(ops.input('tokens', HIDDEN), norm, 1e-5);
        const other = ops.input('tokens', 2 * WIDE);
        const gated = ops.glu(other, 'silu');
        return ops.add(ops.linear(normed, up), ops.linear(ops.linear(gated, down), up));
      }),
    ).toBe(0);
  });
});
