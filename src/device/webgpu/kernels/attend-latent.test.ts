import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { affine } from '../../../../test/devices/kv-cases.js';
import { randomKvWords } from '../../../../test/devices/kv-words.js';
import { LARGE } from '../../../../test/devices/large-gpu.js';
import { Random } from '../../../../test/devices/numbers.js';
import { emulateMatrices } from '../../../../test/setup/emulate-matrices.js';
import { uploadTo } from '../../../../test/setup/raw-buffers.js';
import { openTestDevice } from '../../../../test/setup/swiftshader.js';
import { StepInputs } from '../../step.js';
import type { WebGpuDevice } from '../device.js';
import { chooseVariant, type Stage } from '../kernel.js';
import { StepPacker } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import { latentStage } from './attend-latent.js';
import { type LatentConfig, latentFits } from './attend-latent-plan.js';
import { attendScratch } from './attend-plan.js';
import { reduceStage } from './attend-reduce.js';
import { allRows } from './kv-rows.js';
import { attendItemsVariants, attendTilesVariants } from './registry.js';

const F16 = { kind: 'float', dtype: 'f16' } as const;
/** Four matrices of scores, two parts of a key each; heads that fill no rows. */
const CONFIG: LatentConfig = {
  matrix: { m: 4, n: 4, k: 4, component: 'f32', result: 'f32' },
  subgroupSize: 1,
  subgroups: 8,
  keys: 8,
  rows: 8,
  workgroupBytes: 32768,
};
const HALVES: LatentConfig = {
  ...CONFIG,
  matrix: { m: 8, n: 8, k: 8, component: 'f16', result: 'f32' },
  subgroups: 8,
  keys: 16,
};
const BLOCK = 16;
const SLOT_BLOCKS = 40;
const SLOTS = 3;

const shapeOf = (of: Partial<AttendShape>): AttendShape => ({
  heads: 5,
  kvHeads: 1,
  headDim: 24,
  valueDim: 16,
  key: F16,
  value: F16,
  blockTokens: BLOCK,
  maxBlocksPerSlot: SLOT_BLOCKS,
  scale: 0.3,
  window: null,
  softcap: null,
  maxItems: 16,
  rows: allRows(SLOTS * SLOT_BLOCKS),
  ...of,
});

/** Tokens of slots from a position on. */
type Work = readonly (readonly [slot: number, position: number, length: number])[];

const CASES: readonly (readonly [string, Partial<AttendShape>, LatentConfig, Work])[] = [
  [
    'tokens and prompts, over several splits',
    {},
    CONFIG,
    [
      [0, 300, 1],
      [1, 250, 21],
      [2, 0, 1],
    ],
  ],
  [
    'one matrix of rows, values that subgroups have none of, sinks and a cap',
    { heads: 3, sinks: true, softcap: 4 },
    { ...CONFIG, rows: 4 },
    [
      [2, 255, 1],
      [0, 3, 18],
    ],
  ],
  [
    'more values than subgroups, more heads than rows',
    { heads: 11, headDim: 48, valueDim: 40 },
    CONFIG,
    [
      [1, 37, 1],
      [0, 0, 7],
    ],
  ],
  [
    'codes in an order of their own',
    { headDim: 96, valueDim: 64, key: affine(8, 32), value: affine(8, 32) },
    HALVES,
    [
      [0, 40, 1],
      [1, 20, 3],
    ],
  ],
  [
    'codes read word by word',
    { headDim: 96, valueDim: 64, key: affine(5, 32), value: affine(5, 32) },
    HALVES,
    [
      [2, 17, 1],
      [0, 0, 2],
    ],
  ],
];

/** Matrices as loops: what is tested here is the arithmetic of places. On a GPU the device suite has the real ones. */
describe('attention over latents on matrices, emulated', () => {
  let device: WebGpuDevice;
  let raw: GPUDevice;
  beforeAll(async () => {
    ({ device, raw } = await openTestDevice());
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  /** A layer with random latents: what it makes of a step, `[tokens, heads, valueDim]`, and what that should be. */
  function layerOf(shape: AttendShape, config: LatentConfig) {
    const { heads, headDim, valueDim = headDim } = shape;
    const random = new Random(7);
    const blocks = SLOTS * SLOT_BLOCKS;
    // Blocks in reverse, so that a table that is not looked up shows.
    const tables = Uint32Array.from({ length: blocks }, (_, i) => blocks - 1 - i);
    const place = { headDim, kvHeads: 1, blockTokens: BLOCK, blocks };
    const keys = randomKvWords(shape.key, 'key', place, random);
    const sinks = random.normals(heads);
    const own = new Map<string, Float32Array>();
    /** The queries of a token, whatever it is computed with. */
    const queryOf = (slot: number, position: number): Float32Array => {
      const name = `${slot} ${position}`;
      if (!own.has(name)) own.set(name, new Random(1000 * slot + position).normals(heads * headDim));
      return own.get(name)!;
    };
    const stages = [
      latentStage(shape, config, 'items'),
      reduceStage({ ...shape, headDim: valueDim }, 1),
      latentStage(shape, config, 'tiles'),
    ];
    const pipelines = new Map<Stage, Promise<GPUComputePipeline>>();
    const pipelineOf = (stage: Stage): Promise<GPUComputePipeline> => {
      const code = stage.wgsl.includes('subgroup_matrix')
        ? emulateMatrices(stage.wgsl, config.matrix.m)
        : stage.wgsl;
      const made =
        pipelines.get(stage) ??
        raw.createComputePipelineAsync({
          layout: 'auto',
          compute: { module: raw.createShaderModule({ code }) },
        });
      pipelines.set(stage, made);
      return made;
    };

    async function run(work: Work): Promise<Float32Array> {
      const tokens = work.reduce((n, [, , length]) => n + length, 0);
      const inputs = new StepInputs(tokens, work.length, 1);
      inputs.tokenCount = tokens;
      inputs.sequenceCount = work.length;
      const q = new Float32Array(tokens * heads * headDim);
      let start = 0;
      work.forEach(([slot, position, length], s) => {
        inputs.seqSlot[s] = slot;
        inputs.seqStart[s] = start;
        inputs.seqLength[s] = length;
        inputs.seqPosition[s] = position;
        for (let i = 0; i < length; i++) q.set(queryOf(slot, position + i), (start + i) * heads * headDim);
        start += length;
      });
      const context = SLOT_BLOCKS * BLOCK;
      const packer = new StepPacker(
        { maxTokens: tokens, maxOutputs: 1, maxSequences: work.length, maxContext: context, inFlight: 1 },
        { slots: SLOTS, positions: context },
        shape.maxItems,
        true,
      );
      const words = packer.pack(inputs);
      const size = tokens * heads * valueDim * 4;
      const roles: Record<string, GPUBuffer> = {
        step: uploadTo(raw, packer.words.slice(0, words)),
        q: uploadTo(raw, q),
        keys: uploadTo(raw, keys.words),
        tables: uploadTo(raw, tables),
        sinks: uploadTo(raw, sinks),
        // What is there from before is never read.
        out: raw.createBuffer({ size, usage: 128 | 8 | 4 }),
      };
      raw.queue.writeBuffer(roles.out!, 0, new Float32Array(size / 4).fill(Number.NaN));
      for (const [name, bytes] of Object.entries(attendScratch(shape)))
        roles[name] = raw.createBuffer({ size: bytes, usage: 128 });
      const staging = raw.createBuffer({ size, usage: 1 | 8 });
      const encoder = raw.createCommandEncoder();
      for (const stage of stages) {
        const workgroups: [number, number, number] = [0, 0, 0];
        stage.workgroups(packer.facts, workgroups);
        if (workgroups.includes(0)) continue;
        const pipeline = await pipelineOf(stage);
        if (stage.params !== undefined) {
          roles.params?.destroy();
          roles.params = raw.createBuffer({ size: stage.params.byteLength, usage: 64 | 8 });
          raw.queue.writeBuffer(roles.params, 0, stage.params);
        }
        const entries = stage.bindings.map(({ name }, binding) => ({
          binding,
          resource: { buffer: roles[name]! },
        }));
        const pass = encoder.beginComputePass();
        pass.setPipeline(pipeline);
        pass.setBindGroup(0, raw.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
        pass.dispatchWorkgroups(...workgroups);
        pass.end();
      }
      encoder.copyBufferToBuffer(roles.out!, 0, staging, 0, size);
      raw.queue.submit([encoder.finish()]);
      await staging.mapAsync(1);
      const got = new Float32Array(staging.getMappedRange()).slice();
      for (const buffer of [...Object.values(roles), staging]) buffer.destroy();
      return got;
    }

    /** In float64, of one token. */
    function expected(slot: number, position: number): Float64Array {
      const out = new Float64Array(heads * valueDim);
      const q = queryOf(slot, position);
      const latents = Array.from({ length: position + 1 }, (_, t) =>
        keys.vector(tables[slot * SLOT_BLOCKS + Math.floor(t / BLOCK)]!, 0, t % BLOCK),
      );
      for (let h = 0; h < heads; h++) {
        let total = shape.sinks === true ? Math.exp(sinks[h]!) : 0;
        for (const latent of latents) {
          let score = latent.reduce((sum, k, d) => sum + k * q[h * headDim + d]!, 0) * shape.scale;
          if (shape.softcap !== null) score = shape.softcap * Math.tanh(score / shape.softcap);
          const weight = Math.exp(score);
          total += weight;
          for (let d = 0; d < valueDim; d++)
            out[h * valueDim + d]! += weight * latent[headDim - valueDim + d]!;
        }
        for (let d = 0; d < valueDim; d++) out[h * valueDim + d]! /= total;
      }
      return out;
    }
    return { run, expected };
  }

  it.each(CASES)('%s', async (_, of, config, work) => {
    const shape = shapeOf(of);
    expect(latentFits(shape, config)).toBe(true);
    const { run, expected } = layerOf(shape, config);
    const got = await run(work);
    const width = got.length / work.reduce((n, [, , length]) => n + length, 0);
    let worst = 0;
    let norm = 0;
    let token = 0;
    for (const [slot, position, length] of work)
      for (let i = 0; i < length; i++, token++) {
        const own = got.subarray(token * width, (token + 1) * width);
        expected(slot, position + i).forEach((v, d) => {
          worst = Math.max(worst, Math.abs(v - own[d]!));
          norm = Math.max(norm, Math.abs(v));
        });
        // The same alone, which is as one token.
        if (i === length - 1) expect(await run([[slot, position + i, 1]])).toEqual(own);
      }
    expect(worst / norm).toBeLessThan(config.matrix.component === 'f16' ? 5e-3 : 1e-5);
  });

  it('are taken by a large GPU, but for windows and f32', () => {
    const names = (of: Partial<AttendShape>) => {
      const shape = shapeOf({ heads: 20, headDim: 576, valueDim: 512, ...of });
      return [attendItemsVariants, attendTilesVariants].map(
        (variants) => chooseVariant(variants, LARGE, shape)?.name,
      );
    };
    const taken = ['latent-items', 'latent-tiles'];
    for (const heads of [16, 20, 128]) expect(names({ heads })).toEqual(taken);
    expect(names({ headDim: 320, valueDim: 256 })).toEqual(taken);
    expect(names({ key: affine(4), value: affine(4) })).toEqual(taken);
    const portable = ['portable-items', 'portable-tiles'];
    expect(names({ window: 100 })).toEqual(portable);
    expect(names({ key: { kind: 'float', dtype: 'f32' } })).toEqual(portable);
  });
});
