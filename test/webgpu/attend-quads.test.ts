import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { KvFormat } from '../../src/device/kv.js';
import { StepInputs } from '../../src/device/step.js';
import type { WebGpuDevice } from '../../src/device/webgpu/device.js';
import type { AttendShape } from '../../src/device/webgpu/kernels/attend.js';
import { quadsStage } from '../../src/device/webgpu/kernels/attend-quads.js';
import { quadsFits } from '../../src/device/webgpu/kernels/attend-quads-plan.js';
import { reduceStage } from '../../src/device/webgpu/kernels/attend-reduce.js';
import { allRows } from '../../src/device/webgpu/kernels/kv-rows.js';
import { StepPacker } from '../../src/device/webgpu/step-buffer.js';
import { affine, F16, turbo } from '../devices/kv-cases.js';
import { randomKvWords } from '../devices/kv-words.js';
import { Random } from '../devices/numbers.js';
import { emulateLanes } from '../setup/emulate-lanes.js';
import { without } from '../setup/every-case.js';
import { uploadTo } from '../setup/raw-buffers.js';
import { openTestDevice } from '../setup/swiftshader.js';

const POSITIONS = [300, 4];

interface Case {
  readonly name: string;
  readonly key: KvFormat;
  readonly value: KvFormat;
  readonly heads?: number;
  readonly kvHeads?: number;
  readonly more?: Partial<AttendShape>;
  readonly blockTokens?: number;
  /** As many as the device has if omitted. */
  readonly lanes?: number;
  /** A query element of the first row's first head. */
  readonly odd?: number;
  /** What lies before a window, and behind the last position. */
  readonly poisoned?: boolean;
  /** Ids of blocks begin here, and the second row is of the other kind: the kernel leaves it alone. */
  readonly floatStart?: number;
}

const CASES: readonly Case[] = [
  { name: 'affine 8, GQA 4', key: affine(8), value: affine(8), heads: 8 },
  { name: 'affine 8 and 4, GQA 3, groups of 32', key: affine(8, 32), value: affine(4, 32) },
  { name: 'affine 4 and 8, GQA 2, groups of 128', key: affine(4, 128), value: affine(8, 128), heads: 4 },
  { name: 'affine 8, MHA, a soft cap', key: affine(8), value: affine(8), heads: 2, more: { softcap: 3 } },
  { name: 'affine 2 and 6', key: affine(2), value: affine(6), heads: 8 },
  { name: 'affine 5 and 2', key: affine(5), value: affine(2), heads: 8 },
  { name: 'head_dim 64', key: affine(8), value: affine(4), heads: 8, more: { headDim: 64 } },
  {
    name: 'a window, poisoned before it',
    key: affine(6),
    value: affine(8),
    more: { window: 100 },
    poisoned: true,
  },
  { name: 'a NaN stays in its head', key: affine(8), value: affine(4), odd: Number.NaN },
  { name: 'so does an infinity', key: affine(8), value: affine(8), odd: Number.NEGATIVE_INFINITY },
  { name: 'float-start rows', key: affine(4), value: affine(8), heads: 4, floatStart: 1000 },
  { name: 'a tiny query', key: affine(8), value: affine(8), odd: 1e-39 },
  { name: '32 lanes, affine 8, GQA 4', key: affine(8), value: affine(8), heads: 8, lanes: 32 },
  { name: '32 lanes, affine 8 and 4, GQA 4', key: affine(8), value: affine(4), heads: 8, lanes: 32 },
  {
    name: '32 lanes, GQA 3, a window',
    key: affine(4),
    value: affine(8),
    more: { window: 100 },
    poisoned: true,
    lanes: 32,
  },
  { name: '32 lanes, GQA 2, groups of 32', key: affine(4, 32), value: affine(8, 32), heads: 4, lanes: 32 },
  {
    name: '32 lanes, MHA, head_dim 64',
    key: affine(8),
    value: affine(4),
    heads: 2,
    more: { headDim: 64, softcap: 3 },
    lanes: 32,
  },
  { name: '16 lanes, blocks of 32', key: affine(3), value: affine(8), heads: 8, blockTokens: 32, lanes: 16 },
  { name: '64 lanes, GQA 4', key: affine(8), value: affine(8), heads: 8, lanes: 64 },
  { name: '64 lanes, GQA 3, blocks of 64', key: affine(8), value: affine(4), blockTokens: 64, lanes: 64 },
  {
    name: '64 lanes, GQA 2, head_dim 64, a window',
    key: affine(6),
    value: affine(8),
    heads: 4,
    more: { headDim: 64, window: 100 },
    poisoned: true,
    lanes: 64,
  },
  { name: '8 lanes, MHA', key: affine(5), value: affine(6), heads: 2, lanes: 8 },
  {
    name: '16 lanes, GQA 4, head_dim 64: queries lie with the scores',
    key: affine(8),
    value: affine(8),
    heads: 8,
    more: { headDim: 64 },
    lanes: 16,
  },
];

/** Whose formats, groups, lanes and heads come in other cases too, in other company. */
const COVERED = [
  'affine 8, GQA 4',
  'affine 2 and 6',
  'affine 5 and 2',
  'head_dim 64',
  'so does an infinity',
  '32 lanes, affine 8 and 4, GQA 4',
  '32 lanes, affine 8, GQA 4',
  '32 lanes, GQA 2, groups of 32',
  '32 lanes, MHA, head_dim 64',
  '64 lanes, GQA 4',
  '64 lanes, GQA 3, blocks of 64',
];

function shapeOf(
  key: KvFormat,
  value: KvFormat,
  heads: number,
  kvHeads: number,
  maxBlocksPerSlot: number,
  blocks: number,
): AttendShape {
  return {
    heads,
    kvHeads,
    headDim: 128,
    key,
    value,
    blockTokens: 16,
    maxBlocksPerSlot,
    scale: 0.1,
    window: null,
    softcap: null,
    maxItems: 8,
    rows: allRows(blocks),
  };
}

it('attention by quads takes what its lanes and its memory hold', () => {
  const fits = (key: KvFormat, value: KvFormat, more: Partial<AttendShape> = {}, memory = 4500): boolean =>
    quadsFits({ ...shapeOf(key, value, 4, 1, 8, 8), ...more }, 32, memory);
  expect(fits(affine(4), affine(8, 128))).toBe(true);
  expect(fits(affine(3), affine(6))).toBe(true);
  for (const other of [turbo(4), F16]) {
    expect(fits(other, affine(4))).toBe(false);
    expect(fits(affine(4), other)).toBe(false);
  }
  // Sixteen codes of 5 bits are no whole words, and those of 3 lie in pairs.
  expect(fits(affine(8), affine(5))).toBe(false);
  expect(fits(affine(8), affine(3))).toBe(false);
  expect(fits(affine(8), affine(8), { heads: 5 })).toBe(false);
  expect(fits(affine(8), affine(8), { headDim: 96 })).toBe(false);
  expect(fits(affine(8), affine(8), { headDim: 256 })).toBe(false);
  expect(fits(affine(8), affine(8), { blockTokens: 8 })).toBe(false);
  expect(fits(affine(8), affine(8), {}, 4000)).toBe(false);
  expect(quadsFits(shapeOf(affine(8), affine(8), 4, 1, 8, 8), 2, 32768)).toBe(false);
});

/** On subgroups as wide as the device has them, and on wider ones whose exchanges are loops. */
describe('attention by quads', () => {
  let device: WebGpuDevice;
  let raw: GPUDevice;
  beforeAll(async () => {
    ({ device, raw } = await openTestDevice());
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each(without(CASES, COVERED))(
    '$name',
    async ({
      key,
      value,
      heads = 6,
      kvHeads = 2,
      more = {},
      blockTokens = 16,
      lanes: given,
      odd,
      poisoned,
      floatStart,
    }) => {
      const native = device.capabilities.subgroupMinSize;
      const lanes = given ?? native;
      const maxBlocks = Math.ceil((Math.max(...POSITIONS) + 1) / blockTokens);
      const blocks = POSITIONS.length * maxBlocks;
      const shape = {
        ...shapeOf(key, value, heads, kvHeads, maxBlocks, blocks),
        blockTokens,
        ...(floatStart === undefined
          ? {}
          : {
              rows: {
                ...allRows(blocks),
                only: 'floatStart',
                border: floatStart,
                keyBase: floatStart,
                valueBase: floatStart,
              } as const,
            }),
        ...more,
      };
      const { headDim, window } = shape;
      expect(quadsFits(shape, lanes, 16384)).toBe(true);
      const random = new Random(7);
      const tables = Uint32Array.from({ length: blocks }, (_, i) => blocks - 1 - i);
      const place = { headDim, kvHeads, blockTokens, blocks };
      const keys = randomKvWords(key, 'key', place, random);
      const values = randomKvWords(value, 'value', place, random);
      const q = random.normals(POSITIONS.length * heads * headDim);
      if (odd !== undefined) q.fill(odd, 0, 5);
      if (odd === 1e-39) q.fill(odd, 0, headDim);
      const n = POSITIONS.length;
      const inputs = new StepInputs(n, n, 1);
      inputs.tokenCount = n;
      inputs.sequenceCount = n;
      POSITIONS.forEach((position, s) => {
        inputs.seqSlot[s] = s;
        inputs.seqStart[s] = s;
        inputs.seqLength[s] = 1;
        inputs.seqPosition[s] = position;
      });
      const limits = {
        maxTokens: n,
        maxOutputs: 1,
        maxSequences: n,
        maxContext: maxBlocks * blockTokens,
        inFlight: 1,
      };
      const packer = new StepPacker(limits, { slots: n, positions: maxBlocks * blockTokens }, 8, true);
      const stepWords = packer.pack(inputs);
      expect(packer.facts.items).toBe(3);

      /** With NaN in scales of whatever no row may see. */
      const stored = (side: typeof keys, format: KvFormat): Uint32Array => {
        if (poisoned !== true || format.kind !== 'affine') return side.words;
        const words = side.words.slice();
        const groups = headDim / format.groupSize;
        const codes = (blocks * kvHeads * blockTokens * headDim * format.bits) / 32;
        for (let block = 0; block < blocks; block++)
          for (let kv = 0; kv < kvHeads; kv++)
            for (let t = 0; t < blockTokens; t++) {
              const i = tables.indexOf(block);
              const s = Math.floor(i / maxBlocks);
              const position = (i % maxBlocks) * blockTokens + t;
              const last = POSITIONS[s]!;
              if (position <= last && position > last - (window ?? Number.POSITIVE_INFINITY)) continue;
              const at = codes + ((block * kvHeads + kv) * blockTokens + t) * groups;
              words.fill(0xffff_ffff, at, at + groups);
            }
        return words;
      };
      const scratch = (size: number): GPUBuffer => raw.createBuffer({ size, usage: 128 | 4 });
      const roles: Record<string, GPUBuffer> = {
        step: uploadTo(raw, packer.words.slice(0, stepWords)),
        q: uploadTo(raw, q),
        keys: uploadTo(raw, stored(keys, key)),
        values: uploadTo(raw, stored(values, value)),
        tables: uploadTo(
          raw,
          tables.map((block, i) => (i < maxBlocks ? block + (floatStart ?? 0) : block)),
        ),
        out: raw.createBuffer({ size: q.byteLength, usage: 128 | 4 }),
        scratchSums: scratch(8 * heads * headDim * 4),
        scratchTops: scratch(8 * heads * 8),
      };
      const staging = raw.createBuffer({ size: q.byteLength + 8 * heads * 8, usage: 1 | 8 });
      const encoder = raw.createCommandEncoder();
      const quads = quadsStage(shape, lanes);
      const wgsl = lanes === native ? quads.wgsl : emulateLanes(quads.wgsl);
      for (const stage of [{ ...quads, wgsl }, reduceStage(shape)]) {
        const workgroups: [number, number, number] = [0, 0, 0];
        stage.workgroups(packer.facts, workgroups);
        const pipeline = await raw.createComputePipelineAsync({
          layout: 'auto',
          compute: { module: raw.createShaderModule({ code: stage.wgsl }) },
        });
        if (stage.params !== undefined) {
          roles.params = raw.createBuffer({ size: stage.params.byteLength, usage: 64 | 8 });
          raw.queue.writeBuffer(roles.params, 0, stage.params as Uint32Array<ArrayBuffer>);
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
      encoder.copyBufferToBuffer(roles.out!, 0, staging, 0, q.byteLength);
      encoder.copyBufferToBuffer(roles.scratchTops!, 0, staging, q.byteLength, 8 * heads * 8);
      raw.queue.submit([encoder.finish()]);
      await staging.mapAsync(1);
      const read = new Float32Array(staging.getMappedRange()).slice();
      const got = read.subarray(0, q.length);
      const tops = read.subarray(q.length);
      for (const buffer of [...Object.values(roles), staging]) buffer.destroy();

      // Low halves of 4-bit codes are summed with 256 on top of each, and four lanes sum eight times as many as 32.
      const bound = lanes < 16 ? 2e-4 : 1e-4;
      POSITIONS.forEach((position, s) => {
        for (let head = 0; head < heads; head++) {
          const at = (s * heads + head) * headDim;
          if (odd !== undefined && !(Math.abs(odd) < 1) && s === 0 && head === 0) {
            expect(got.subarray(at, at + headDim).every(Number.isNaN)).toBe(true);
            continue;
          }
          if (floatStart !== undefined && s === 1) {
            expect(tops.subarray(2 * 2 * heads, 3 * 2 * heads).every((v) => v === 0)).toBe(true);
            continue;
          }
          const want = attend(s, position, head);
          const difference = want.map((v, d) => v - got[at + d]!);
          expect(Math.hypot(...difference) / Math.hypot(...want), `row ${s}, head ${head}`).toBeLessThan(
            bound,
          );
        }
      });

      /** In float64. */
      function attend(slot: number, position: number, head: number): number[] {
        const kv = Math.floor(head / (heads / kvHeads));
        const sum = new Array<number>(headDim).fill(0);
        let total = 0;
        for (let t = Math.max(0, position + 1 - (window ?? Number.POSITIVE_INFINITY)); t <= position; t++) {
          let score = 0;
          keys.vector(blockOf(slot, t), kv, t % blockTokens).forEach((k, d) => {
            score += k * q[(slot * heads + head) * headDim + d]!;
          });
          score *= shape.scale;
          if (shape.softcap !== null) score = shape.softcap * Math.tanh(score / shape.softcap);
          const weight = Math.exp(score);
          total += weight;
          values.vector(blockOf(slot, t), kv, t % blockTokens).forEach((v, d) => {
            sum[d]! += weight * v;
          });
        }
        return sum.map((v) => v / total);
      }
      function blockOf(slot: number, t: number): number {
        return tables[slot * maxBlocks + Math.floor(t / blockTokens)]!;
      }
    },
  );
});
