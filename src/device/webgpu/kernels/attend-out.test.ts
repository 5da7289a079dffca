import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { affine, F16, F32, turbo } from '../../../../test/devices/kv-cases.js';
import { randomKvWords } from '../../../../test/devices/kv-words.js';
import { LARGE } from '../../../../test/devices/large-gpu.js';
import { Random } from '../../../../test/devices/numbers.js';
import { emulateMatrices } from '../../../../test/setup/emulate-matrices.js';
import { uploadTo } from '../../../../test/setup/raw-buffers.js';
import { openTestDevice } from '../../../../test/setup/swiftshader.js';
import type { KvFormat } from '../../kv.js';
import { StepInputs } from '../../step.js';
import type { WebGpuDevice } from '../device.js';
import type { Stage } from '../kernel.js';
import { StepPacker } from '../step-buffer.js';
import { type AttendShape, portableItems, portableTiles } from './attend.js';
import { prefillKernel } from './attend-fast.js';
import { attendScratch } from './attend-plan.js';
import { type PrefillConfig, planPrefill } from './attend-prefill-plan.js';
import { reduceStage } from './attend-reduce.js';
import type { KvPlace } from './kv-layout.js';
import { allRows } from './kv-rows.js';

const BLOCK = 16;
const HEADS = 4;
const KV_HEADS = 2;
/** Prompts long and short, and rows that decode, over one split and several: `[position, length]`. */
const SEQUENCES = [
  [0, 21],
  [270, 1],
  [40, 17],
  [5, 1],
  [1030, 18],
  [600, 1],
] as const;
/** Of them: those whose blocks are float-start, where there are such. */
const FLOAT_START = [1, 2];
const TOKENS = SEQUENCES.reduce((n, [, length]) => n + length, 0);
const PER_SLOT = Math.ceil(1048 / BLOCK);
const BLOCKS = SEQUENCES.length * PER_SLOT;

/** Matrices that are emulated, with subgroups of one thread. */
const MATRICES: PrefillConfig = {
  matrix: { m: 4, n: 4, k: 4, component: 'f32', result: 'f32' },
  subgroupSize: 1,
  keys: 8,
  rows: 8,
  workgroupBytes: 32768,
};

interface Case {
  readonly name: string;
  readonly key: KvFormat;
  readonly value: KvFormat;
  readonly headDim?: number;
  readonly window?: number;
  readonly floatStart?: boolean;
  /** On matrices. */
  readonly tiles?: 'whole' | 'parts';
  readonly slices?: number;
  /** Times what values are: of f32. */
  readonly huge?: number;
}

const CASES: readonly Case[] = [
  { name: 'f16, merged strictly in order', key: F16, value: F16 },
  {
    name: 'affine, merged in slices, a window',
    key: affine(4, 32),
    value: affine(4, 32),
    slices: 4,
    window: 300,
  },
  { name: 'TurboQuant, rotated as it is merged', key: turbo(3), value: turbo(4), slices: 4 },
  { name: 'TurboQuant, rotated by a matrix', key: turbo(3), value: turbo(4), headDim: 80 },
  { name: 'rows of two kinds', key: turbo(4), value: turbo(2), floatStart: true },
  { name: 'numbers that no half holds', key: F16, value: F32, huge: 1e6 },
  { name: 'tiles on matrices', key: F16, value: F16, headDim: 8, tiles: 'whole' },
  { name: 'tiles on matrices, in parts', key: F16, value: F16, headDim: 8, tiles: 'parts' },
  { name: 'tiles on matrices, rotated after', key: turbo(3), value: turbo(4), headDim: 8, tiles: 'parts' },
];

/**
 * Halves are widened to f32 here, for a software GPU has none: what is tested is that every kernel leaves every row, in its
 * place, in the form that is asked for. Real ones are in test/webgpu/attend-handed.test.ts, on a GPU.
 */
describe('what attention leaves as halves', () => {
  let device: WebGpuDevice;
  let raw: GPUDevice;
  beforeAll(async () => {
    ({ device, raw } = await openTestDevice());
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each(CASES)('is what it leaves as f32: $name', async (c) => {
    const { key, value, headDim = 32, floatStart = false } = c;
    const random = new Random(11);
    const scale = 0.4;
    const more = { heads: HEADS, kvHeads: KV_HEADS, headDim, blockTokens: BLOCK, maxBlocksPerSlot: PER_SLOT };
    const place = { headDim, kvHeads: KV_HEADS, blockTokens: BLOCK, blocks: BLOCKS };
    const whole: AttendShape = {
      ...more,
      key,
      value,
      scale,
      window: c.window ?? null,
      softcap: null,
      maxItems: 64,
      rows: { ...allRows(BLOCKS), only: floatStart ? 'quantised' : null },
    };
    const only = { only: 'floatStart', border: BLOCKS, keyBase: BLOCKS, valueBase: BLOCKS } as const;
    const rows = { ...only, keyBlocks: BLOCKS, valueBlocks: BLOCKS };
    const kinds = [whole, ...(floatStart ? [{ ...whole, key: F16, value: F16, rows }] : [])];
    // Blocks in reverse, so that a table that is not looked up shows.
    const tables = Uint32Array.from({ length: BLOCKS }, (_, i) => {
      const isFloatStart = floatStart && FLOAT_START.includes(Math.floor(i / PER_SLOT));
      return BLOCKS - 1 - i + (isFloatStart ? BLOCKS : 0);
    });
    const caches = kinds.map((shape) => ({
      keys: randomKvWords(shape.key, 'key', place, random).words,
      values: valuesOf(shape.value, place, random, c.huge),
    }));
    const q = random.normals(TOKENS * HEADS * headDim);
    // Rows that went wrong: one that decodes, and one of a prompt (where matrices are emulated exp2 makes numbers of NaN).
    for (const token of c.tiles ? [21] : [3, 21])
      q.fill(Number.NaN, token * HEADS * headDim, (token + 1) * HEADS * headDim);

    const packer = packed();
    if (c.tiles === 'parts') packer.tileWorkgroups = KV_HEADS * planPrefill(whole, MATRICES).rowBlocks;
    const words = packer.pack(step());
    expect(packer.facts.items).toBeGreaterThan(packer.facts.itemRows);
    expect(packer.facts.tileParts).toBe(c.tiles === 'parts' ? 2 : 1);

    const floats = await run(false);
    const halves = await run(true);
    const most = 65504;
    const wanted = floats.map((v) => (Number.isFinite(v) ? Math.max(-most, Math.min(most, v)) : v));
    expect(halves).toEqual(wanted);
    // The case is one: all rows are there, those that went wrong too, and what is too large where it is to be.
    for (let at = 0; at < floats.length; at += headDim)
      expect(
        floats.subarray(at, at + headDim).some((v) => v !== 0),
        `${at / headDim}`,
      ).toBe(true);
    expect(floats.some(Number.isNaN)).toBe(true);
    expect(floats.some((v) => Math.abs(v) > most)).toBe(c.huge !== undefined);

    async function run(outHanded: boolean): Promise<Float32Array> {
      const shapes = kinds.map((shape) => ({ ...shape, outHanded }));
      const of = (index: number, stages: readonly Stage[]) => stages.map((stage) => ({ index, stage }));
      const built = shapes.map((shape) =>
        c.tiles ? prefillKernel(shape, MATRICES) : portableTiles.build(LARGE, shape),
      );
      const launches = [
        ...shapes.flatMap((shape, i) => of(i, portableItems.build(LARGE, shape).stages)),
        ...of(0, [reduceStage(shapes[0]!, c.slices ?? 1)]),
        ...built.flatMap(({ stages }, i) => of(i, stages)),
      ];
      const bytes = q.byteLength;
      const roles: Record<string, GPUBuffer> = {
        step: uploadTo(raw, packer.words.slice(0, words)),
        q: uploadTo(raw, q),
        tables: uploadTo(raw, tables),
        out: raw.createBuffer({ size: bytes, usage: 128 | 4 }),
        scratchHanded: raw.createBuffer({ size: bytes, usage: 128 | 4 }),
      };
      for (const scratch of [attendScratch(whole), ...built.map((kernel) => kernel.scratch ?? {})])
        for (const [name, size] of Object.entries(scratch))
          roles[name] ??= raw.createBuffer({ size, usage: 128 });
      const own = caches.map(({ keys, values }) => ({
        keys: uploadTo(raw, keys),
        values: uploadTo(raw, values),
      }));
      raw.pushErrorScope('validation');
      const encoder = raw.createCommandEncoder();
      for (const { index, stage } of launches) {
        const size: [number, number, number] = [0, 0, 0];
        stage.workgroups(packer.facts, size);
        if (size[0] === 0) continue;
        const layout = raw.createBindGroupLayout({
          entries: stage.bindings.map(({ access }, binding) => {
            const type = { read: 'read-only-storage', read_write: 'storage', uniform: 'uniform' } as const;
            return { binding, visibility: 4, buffer: { type: type[access] } };
          }),
        });
        const module = raw.createShaderModule({ code: widened(stage.wgsl) });
        const pipeline = await raw.createComputePipelineAsync({
          layout: raw.createPipelineLayout({ bindGroupLayouts: [layout] }),
          compute: { module },
        });
        const entries = stage.bindings.map(({ name }, binding) => {
          const params = name === 'params' ? uploadTo(raw, stage.params!, 64 | 8) : undefined;
          const buffer = params ?? own[index]![name as 'keys'] ?? roles[name]!;
          return { binding, resource: { buffer } };
        });
        const pass = encoder.beginComputePass();
        pass.setPipeline(pipeline);
        pass.setBindGroup(0, raw.createBindGroup({ layout, entries }));
        pass.dispatchWorkgroups(...size);
        pass.end();
      }
      const staging = raw.createBuffer({ size: bytes, usage: 1 | 8 });
      encoder.copyBufferToBuffer(outHanded ? roles.scratchHanded! : roles.out!, 0, staging, 0, bytes);
      raw.queue.submit([encoder.finish()]);
      expect((await raw.popErrorScope())?.message).toBeUndefined();
      await staging.mapAsync(1);
      const got = new Float32Array(staging.getMappedRange()).slice();
      for (const buffer of [...Object.values(roles), ...own.flatMap((o) => Object.values(o)), staging])
        buffer.destroy();
      return got;
    }
  });
});

/** Random values of a format; of f32, normal and so large. */
function valuesOf(format: KvFormat, place: KvPlace, random: Random, huge: number | undefined): Uint32Array {
  if (huge === undefined) return randomKvWords(format, 'value', place, random).words;
  return new Uint32Array(random.normals(BLOCKS * BLOCK * KV_HEADS * place.headDim, huge).buffer);
}

/** A kernel of halves as one of f32. */
function widened(wgsl: string): string {
  if (wgsl.includes('subgroup_matrix')) return emulateMatrices(wgsl, MATRICES.matrix.m);
  return wgsl.replace('enable f16;', '').replace(/\bf16\b/g, 'f32');
}

function packed(): StepPacker {
  const limits = {
    maxTokens: TOKENS,
    maxOutputs: 1,
    maxSequences: SEQUENCES.length,
    maxContext: PER_SLOT * BLOCK,
    inFlight: 1,
  };
  return new StepPacker(limits, { slots: SEQUENCES.length, positions: PER_SLOT * BLOCK }, 64, true);
}

function step(): StepInputs {
  const inputs = new StepInputs(TOKENS, SEQUENCES.length, 1);
  inputs.tokenCount = TOKENS;
  inputs.sequenceCount = SEQUENCES.length;
  let start = 0;
  SEQUENCES.forEach(([position, length], s) => {
    inputs.seqSlot[s] = s;
    inputs.seqStart[s] = start;
    inputs.seqLength[s] = length;
    inputs.seqPosition[s] = position;
    start += length;
  });
  return inputs;
}
