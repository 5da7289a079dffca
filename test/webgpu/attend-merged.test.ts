/**
 * Of one row and few splits the product behind attention merges what the splits left, with the bits that the launch of the merge
 * and the product give.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device, Program } from '../../src/device/device.js';
import type { Tensor } from '../../src/device/graph.js';
import type { KvFormat } from '../../src/device/kv.js';
import { makeRopeTable } from '../../src/device/rope.js';
import type { WebGpuProgram } from '../../src/device/webgpu/program.js';
import { devices, narrowSubgroups } from '../devices/devices.js';
import { affine, F16, F32, turbo } from '../devices/kv-cases.js';
import { Random } from '../devices/numbers.js';
import { LIMITS, record, stepOf } from '../devices/run.js';
import { randomMatrix } from '../devices/sources.js';
import { casesOf } from '../setup/every-case.js';

const HEADS = 4;
const KV_HEADS = 2;
const HEAD_DIM = 64;
const WIDTH = 128;
const QKV = (HEADS + 2 * KV_HEADS) * HEAD_DIM;
const CONTEXT = 1536;
const BLOCK = 32;

const here =
  narrowSubgroups.length > 0 ? narrowSubgroups : devices.filter((d) => d.name === 'webgpu default');

interface Layer {
  readonly program: Program;
  readonly qkv: Tensor;
  readonly residual: Tensor;
  readonly out: Tensor;
}

describe.each(here)('attention merged in the product behind it on $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  /** Where what attention leaves is kept, nothing can take it in. */
  async function layer(format: KvFormat, keep: boolean): Promise<Layer> {
    const { source } = randomMatrix(new Random(7), WIDTH, HEADS * HEAD_DIM, {
      kind: 'affine',
      bits: 4,
      groupSize: 64,
      dtype: 'f16',
    });
    const weight = await device.loadMatrix([source], { use: 'linear' });
    const pool = device.createKvPool({
      layers: [{ kvHeads: KV_HEADS, headDim: HEAD_DIM, key: format, value: format, group: 0 }],
      blocks: CONTEXT / BLOCK,
      blockTokens: BLOCK,
      slots: 1,
      maxBlocksPerSlot: CONTEXT / BLOCK,
    });
    pool.setBlocks(
      0,
      0,
      Uint32Array.from({ length: CONTEXT / BLOCK }, (_, i) => i),
    );
    const rope = makeRopeTable({
      dims: HEAD_DIM,
      style: 'half',
      frequencies: Float64Array.from({ length: HEAD_DIM / 2 }, (_, i) => 10000 ** ((-2 * i) / HEAD_DIM)),
      attentionFactor: 1,
      maxContext: LIMITS.maxContext,
    });
    const shape = { layer: 0, heads: HEADS, kvHeads: KV_HEADS, headDim: HEAD_DIM };
    const { graph, tensors } = record((ops) => {
      const qkv = ops.input('tokens', QKV);
      const residual = ops.input('tokens', WIDTH);
      const attended = ops.attend(ops.ropeAppend(qkv, { ...shape, norm: null, rope }), shape);
      if (keep) ops.keep(attended);
      return { qkv, residual, out: ops.keep(ops.linear(attended, weight, residual)) };
    });
    return { program: await device.compile(graph, { ...LIMITS, maxSequences: 2 }, pool), ...tensors };
  }

  it.each(
    casesOf<[string, KvFormat, boolean]>(
      [
        ['f16', F16, true],
        ['turbo4', turbo(4), false],
      ],
      [
        ['f32', F32, true],
        ['affine4', affine(4, 64), true],
      ],
    ),
  )('%s: the same bits, for one split and several', async (_, format, taken) => {
    const [plain, merged] = [await layer(format, true), await layer(format, false)];
    const isTaken = ({ program }: Layer): boolean =>
      (program as WebGpuProgram).describe(1, 0).some((label) => label.startsWith('attend merged'));
    expect([isTaken(plain), isTaken(merged)]).toEqual([false, taken]);
    const random = new Random(3);
    let position = 0;
    const step = async (tokens: number): Promise<Float32Array[]> => {
      const [x, residual] = [random.normals(tokens * QKV), random.normals(tokens * WIDTH)];
      const results: Float32Array[] = [];
      for (const { program, ...tensors } of [plain, merged]) {
        program.write(tensors.qkv, x);
        program.write(tensors.residual, residual);
        await program.submit(stepOf([tokens], [position], [0]));
        results.push(await program.read(tensors.out, tokens));
      }
      position += tokens;
      return results;
    };
    // One split, its border, two, four, and five: those are merged by the launch.
    for (const context of [1, 17, 255, 256, 400, 700, 1000, 1023, 1024, 1100]) {
      while (position < context - 1) await step(Math.min(LIMITS.maxTokens, context - 1 - position));
      const [expected, got] = await step(1);
      expect(got!.some((v) => v !== 0)).toBe(true);
      expect(new Uint32Array(got!.buffer), `context ${context}`).toEqual(new Uint32Array(expected!.buffer));
    }
  });
});
