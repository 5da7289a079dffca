import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import type { Tensor } from '../../src/device/graph.js';
import type { WebGpuProgram } from '../../src/device/webgpu/program.js';
import type { MatrixFormat } from '../../src/device/weights.js';
import { type DeviceSpec, devices, narrowSubgroups } from './devices.js';
import { Random, worstRow } from './numbers.js';
import * as reference from './reference.js';
import { LIMITS, record, rowsStep, stepOf, withProgram } from './run.js';
import { randomMatrix, vectorSource } from './sources.js';

const HIDDEN = 256;
const WIDE = 96;
const EPS = 1e-5;

/** Three linears in a row add up: int8 activations on the CPU, f16 operands on a GPU, rounding in f32. */
function bound(spec: DeviceSpec): number {
  if (spec.precision === 'reference') return 5e-5;
  return spec.kind === 'cpu' ? 5e-2 : 5e-3;
}

/** A gated MLP with its norm and residual, and float64 for it. */
async function makeMlp(device: Device, random: Random, format: MatrixFormat) {
  const gain = random.normals(HIDDEN);
  const gateUp = randomMatrix(random, 2 * WIDE, HIDDEN, format);
  const down = randomMatrix(random, HIDDEN, WIDE, { kind: 'float', dtype: 'f16' });
  const norm = await device.loadVector(vectorSource(gain));
  const first = await device.loadMatrix([gateUp.source], { use: 'linear' });
  const second = await device.loadMatrix([down.source], { use: 'linear' });
  const recorded = (keepAll: boolean) =>
    record((ops) => {
      const x = ops.input('tokens', HIDDEN);
      const normed = ops.rmsNorm(x, norm, EPS);
      const both = ops.linear(normed, first);
      const y = ops.linear(ops.glu(both, 'silu'), second, x);
      // Narrow again, without a residual: the input of this norm is read by nobody else.
      const z = ops.linear(ops.rmsNorm(y, norm, EPS), first);
      for (const t of keepAll ? [normed, both, y, z] : [z]) ops.keep(t);
      return { x, normed, both, z };
    });
  const expected = (x: Float32Array, rows: number) => {
    const normed = reference.rmsNorm(x, gain, rows, HIDDEN, EPS);
    const both = reference.linear(normed, gateUp.values, rows, HIDDEN, 2 * WIDE);
    const gated = reference.glu(both, rows, WIDE, 'silu');
    const y = reference.linear(gated, down.values, rows, WIDE, HIDDEN, undefined, x);
    const again = reference.rmsNorm(y, gain, rows, HIDDEN, EPS);
    return { normed, both, z: reference.linear(again, gateUp.values, rows, HIDDEN, 2 * WIDE) };
  };
  return { recorded, expected };
}

describe.each([...devices, ...narrowSubgroups])('fusion on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it('a norm, a gated MLP and a residual agree with float64', async () => {
    for (const format of [
      { kind: 'affine', bits: 4, groupSize: 64, dtype: 'f16' },
      { kind: 'float', dtype: 'bf16' },
    ] as const) {
      const random = new Random(31);
      const { recorded, expected } = await makeMlp(device, random, format);
      const { graph, tensors } = recorded(false);
      await withProgram(device, graph, null, async (program) => {
        for (const rows of [1, 3, 8, 21, 64]) {
          const x = random.normals(rows * HIDDEN);
          program.write(tensors.x, x);
          await program.submit(rowsStep(rows));
          const z = await program.read(tensors.z, rows);
          expect(worstRow(z, expected(x, rows).z, rows, 2 * WIDE), `${rows} rows`).toBeLessThan(bound(spec));
        }
      });
    }
  });

  it('a tensor that is kept is made although it could be fused away', async () => {
    const random = new Random(32);
    const { recorded, expected } = await makeMlp(device, random, {
      kind: 'affine',
      bits: 8,
      groupSize: 32,
      dtype: 'f16',
    });
    const { graph, tensors } = recorded(true);
    await withProgram(device, graph, null, async (program) => {
      const rows = 3;
      const x = random.normals(rows * HIDDEN);
      program.write(tensors.x, x);
      await program.submit(rowsStep(rows));
      const want = expected(x, rows);
      const check = async (tensor: Tensor, values: Float64Array) =>
        expect(worstRow(await program.read(tensor, rows), values, rows, values.length / rows)).toBeLessThan(
          bound(spec),
        );
      await check(tensors.normed, want.normed);
      await check(tensors.both, want.both);
      await check(tensors.z, want.z);
    });
  });
});

describe.each(narrowSubgroups)('kernels on subgroups, $name', (spec) => {
  let device: Device;
  let portable: Device;
  beforeAll(async () => {
    device = await spec.create();
    portable = await devices.find((d) => d.name === 'webgpu reference')!.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
    await portable[Symbol.asyncDispose]();
  });

  it('leave no launch for norms and glus at one row, and the portable ones do', async () => {
    const labels = async (on: Device): Promise<string[]> => {
      const { recorded } = await makeMlp(on, new Random(33), { kind: 'float', dtype: 'f16' });
      return withProgram(on, recorded(false).graph, null, async (program) =>
        (program as WebGpuProgram).describe(1, 0),
      );
    };
    expect(await labels(device)).toHaveLength(3);
    expect((await labels(portable)).filter((l) => /rms-norm|glu/.test(l))).toHaveLength(3);
  });

  it('attend as the portable ones do, over one split and over several', async () => {
    const shape = { heads: 4, kvHeads: 2, headDim: 64 };
    const run = async (on: Device): Promise<Float32Array> => {
      const random = new Random(34);
      const f16 = { kind: 'float', dtype: 'f16' } as const;
      const pool = on.createKvPool({
        layers: [{ kvHeads: 2, headDim: 64, key: f16, value: f16, group: 0 }],
        blocks: 80,
        blockTokens: 16,
        slots: 2,
        maxBlocksPerSlot: 40,
      });
      for (const slot of [0, 1])
        pool.setBlocks(
          slot,
          0,
          Uint32Array.from({ length: 40 }, (_, i) => slot + 2 * i),
        );
      const { graph, tensors } = record((ops) => {
        const qkv = ops.input('tokens', 8 * 64);
        const q = ops.ropeAppend(qkv, { layer: 0, ...shape, rope: null });
        const out = ops.attend(q, { layer: 0, ...shape });
        ops.keep(out);
        return { qkv, out };
      });
      const out = await withProgram(on, graph, pool, async (program) => {
        for (let at = 0; at < 600; at += 200) {
          program.write(tensors.qkv, random.normals(220 * 512));
          await program.submit(stepOf([200, at === 0 ? 20 : 1], [at, at === 0 ? 0 : 19 + at / 200]));
        }
        program.write(tensors.qkv, random.normals(2 * 512));
        await program.submit(stepOf([1, 1], [600, 22]));
        return program.read(tensors.out, 2);
      });
      pool.dispose();
      return out;
    };
    expect(LIMITS.maxTokens).toBeGreaterThanOrEqual(220);
    expect(worstRow(await run(device), await run(portable), 2, 256)).toBeLessThan(1e-4);
  });
});
