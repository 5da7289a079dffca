/**
 * Partials of attention of single-token rows on subgroups that the device has not, against float64; devices/attention*.test.ts
 * run it on those that it has.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { KvFormat } from '../../src/device/kv.js';
import { StepInputs } from '../../src/device/step.js';
import type { WebGpuDevice } from '../../src/device/webgpu/device.js';
import type { AttendShape } from '../../src/device/webgpu/kernels/attend.js';
import { decodeStage } from '../../src/device/webgpu/kernels/attend-decode.js';
import { type DecodeConfig, decodeFits } from '../../src/device/webgpu/kernels/attend-decode-plan.js';
import { allRows } from '../../src/device/webgpu/kernels/kv-rows.js';
import { StepPacker } from '../../src/device/webgpu/step-buffer.js';
import { affine, F16, turbo } from '../devices/kv-cases.js';
import { randomKvWords } from '../devices/kv-words.js';
import { Random } from '../devices/numbers.js';
import { uploadTo } from '../setup/raw-buffers.js';
import { openTestDevice } from '../setup/swiftshader.js';

const POSITIONS = [300, 4, 255, 511];
const CONTEXT = 512;
const SPLIT = 256;
const ITEMS = 16;

interface Case {
  readonly name: string;
  readonly key: KvFormat;
  readonly value: KvFormat;
  readonly group: number;
  readonly kvHeads?: number;
  readonly config: Omit<DecodeConfig, 'split'>;
  readonly more?: Partial<AttendShape>;
}

const CASES: readonly Case[] = [
  {
    name: '32 lanes, f16',
    key: F16,
    value: F16,
    group: 8,
    config: { subgroupSize: 32, threads: 64, unroll: 1, valueUnroll: 1 },
    more: { headDim: 64 },
  },
  {
    name: '32 lanes, affine 8, GQA 4',
    key: affine(8),
    value: affine(8),
    group: 4,
    config: { subgroupSize: 32, threads: 128, unroll: 4, valueUnroll: 8 },
  },
  {
    name: '32 lanes, TurboQuant 3 and 4, loads a turn ahead, halves of planes',
    key: turbo(3),
    value: turbo(4),
    group: 8,
    config: { subgroupSize: 32, threads: 64, unroll: 2, valueUnroll: 4, ahead: true },
  },
  {
    name: '32 lanes, GQA 3, a window, loads a turn ahead',
    key: affine(4),
    value: affine(4),
    group: 3,
    config: { subgroupSize: 32, threads: 128, unroll: 2, valueUnroll: 4, ahead: true },
    more: { window: 100 },
  },
  {
    name: '32 lanes, GQA 5 of two subgroups, a soft cap',
    key: affine(5),
    value: turbo(8),
    group: 5,
    kvHeads: 3,
    config: { subgroupSize: 32, threads: 64, unroll: 1, valueUnroll: 4 },
    more: { softcap: 3 },
  },
  {
    name: '16 lanes, MHA',
    key: F16,
    value: turbo(3),
    group: 1,
    kvHeads: 3,
    config: { subgroupSize: 16, threads: 128, unroll: 2, valueUnroll: 4 },
    more: { headDim: 64 },
  },
  {
    name: '64 lanes, groups of 32',
    key: affine(8),
    value: affine(4, 32),
    group: 4,
    config: { subgroupSize: 64, threads: 128, unroll: 2, valueUnroll: 4 },
  },
];

/**
 * Lanes exchange through workgroup memory; integers are what comes of the sums of bytes. What scores and weights take the place
 * of is NaN: GPUs are asked not to clear workgroup memory.
 */
function emulated(wgsl: string): string {
  const threads = Number(/@workgroup_size\((\d+)\)/.exec(wgsl)![1]);
  const [, type, length] = /cells: array<([\w<>]+), (\d+)>/.exec(wgsl)!;
  const poison = `for (var i = lid; i < ${length}u; i += ${threads}u) { cells[i] = ${type}(bitcast<f32>(0x7fc00000u | min(groups.z, 1u))); }`;
  const integers = wgsl.includes('var s0 = 0;');
  const given = new Map<string, string>();
  const typeOf = (name: string): string =>
    given.get(name) ?? (integers && /^(s|all)\d+$/.test(name) ? 'i32' : 'f32');
  const lines = wgsl.replace('enable subgroups;', '').split('\n');
  const text = lines.map((line) => {
    const give = /let (give\w+) = select\((\w+),/.exec(line);
    if (give !== null) given.set(give[1]!, typeOf(give[2]!));
    return line.replace(
      /subgroupShuffleXor\((\w+), (\d+u)\)/g,
      (_, name: string, mask: string) =>
        `bitcast<${typeOf(name)}>(other_lane(bitcast<u32>(${name}), lid ^ ${mask}, lid))`,
    );
  });
  if (text.some((line) => line.includes('subgroup'))) throw new Error('something is not emulated');
  return `${text.join('\n').replace(/\n *let lane = /, (line) => `\n${poison}${line}`)}
var<workgroup> exchanged: array<u32, ${threads}>;
fn other_lane(v: u32, other: u32, own: u32) -> u32 {
  workgroupBarrier();
  exchanged[own] = v;
  workgroupBarrier();
  return exchanged[other];
}`;
}

let device: WebGpuDevice;
let raw: GPUDevice;
beforeAll(async () => {
  ({ device, raw } = await openTestDevice());
});
afterAll(async () => {
  await device[Symbol.asyncDispose]();
});

it.each(CASES)('$name', async ({ key, value, group, kvHeads = 2, config: sizes, more = {} }) => {
  const heads = group * kvHeads;
  const blockTokens = 16;
  const maxBlocksPerSlot = CONTEXT / blockTokens;
  const n = POSITIONS.length;
  const blocks = n * maxBlocksPerSlot;
  const shape: AttendShape = {
    heads,
    kvHeads,
    headDim: 128,
    key,
    value,
    blockTokens,
    maxBlocksPerSlot,
    scale: 0.1,
    window: null,
    softcap: null,
    maxItems: ITEMS,
    rows: allRows(blocks),
    ...more,
  };
  const { headDim, window, softcap } = shape;
  const config = { ...sizes, split: SPLIT };
  expect(decodeFits(shape, config, 32_000)).toBe(true);
  const random = new Random(7);
  const tables = Uint32Array.from({ length: blocks }, (_, i) => blocks - 1 - i);
  const place = { headDim, kvHeads, blockTokens, blocks };
  const keys = randomKvWords(key, 'key', place, random);
  const values = randomKvWords(value, 'value', place, random);
  const q = random.normals(n * heads * headDim);

  const inputs = new StepInputs(n, n, 1);
  inputs.tokenCount = n;
  inputs.sequenceCount = n;
  POSITIONS.forEach((position, s) => {
    inputs.seqSlot[s] = s;
    inputs.seqStart[s] = s;
    inputs.seqLength[s] = 1;
    inputs.seqPosition[s] = position;
  });
  const limits = { maxTokens: n, maxOutputs: 1, maxSequences: n, maxContext: CONTEXT, inFlight: 1 };
  const packer = new StepPacker(limits, { slots: n, positions: CONTEXT }, ITEMS, true);
  const stepWords = packer.pack(inputs);

  const sumBytes = ITEMS * heads * headDim * 4;
  const topBytes = ITEMS * heads * 8;
  const roles: Record<string, GPUBuffer> = {
    step: uploadTo(raw, packer.words.slice(0, stepWords)),
    q: uploadTo(raw, q),
    keys: uploadTo(raw, keys.words),
    values: uploadTo(raw, values.words),
    tables: uploadTo(raw, tables),
    scratchSums: raw.createBuffer({ size: sumBytes, usage: 128 | 4 }),
    scratchTops: raw.createBuffer({ size: topBytes, usage: 128 | 4 }),
  };
  const staging = raw.createBuffer({ size: sumBytes + topBytes, usage: 1 | 8 });
  const stage = decodeStage(shape, config);
  const pipeline = await raw.createComputePipelineAsync({
    layout: 'auto',
    compute: { module: raw.createShaderModule({ code: emulated(stage.wgsl) }) },
  });
  const entries = stage.bindings.map(({ name }, binding) => ({
    binding,
    resource: { buffer: roles[name]! },
  }));
  const workgroups: [number, number, number] = [0, 0, 0];
  stage.workgroups(packer.facts, workgroups);
  const encoder = raw.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, raw.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
  pass.dispatchWorkgroups(...workgroups);
  pass.end();
  encoder.copyBufferToBuffer(roles.scratchSums!, 0, staging, 0, sumBytes);
  encoder.copyBufferToBuffer(roles.scratchTops!, 0, staging, sumBytes, topBytes);
  raw.queue.submit([encoder.finish()]);
  await staging.mapAsync(1);
  const read = new Float32Array(staging.getMappedRange()).slice();
  const tops = read.subarray(sumBytes / 4);
  for (const buffer of [...Object.values(roles), staging]) buffer.destroy();

  let item = 0;
  POSITIONS.forEach((position, s) => {
    const splits = Math.floor(position / SPLIT) + 1;
    for (let head = 0; head < heads; head++) {
      // An item before the window leaves nothing.
      const parts = Array.from({ length: splits }, (_, i) => (item + i) * heads + head).filter(
        (at) => tops[2 * at + 1] !== 0,
      );
      const top = Math.max(...parts.map((at) => tops[2 * at]!));
      const factors = parts.map((at) => Math.exp(tops[2 * at]! - top));
      const total = parts.reduce((sum, at, i) => sum + factors[i]! * tops[2 * at + 1]!, 0);
      const want = attend(s, position, head);
      const off = want.map(
        (v, d) => v - parts.reduce((sum, at, i) => sum + factors[i]! * read[at * headDim + d]!, 0) / total,
      );
      expect(Math.hypot(...off) / Math.hypot(...want), `row ${s}, head ${head}`).toBeLessThan(2e-4);
    }
    item += splits;
  });

  /** In float64; of TurboQuant's values as they lie, rotated. */
  function attend(slot: number, position: number, head: number): number[] {
    const kv = Math.floor(head / group);
    const sum = new Array<number>(headDim).fill(0);
    let all = 0;
    for (let t = Math.max(0, position + 1 - (window ?? CONTEXT)); t <= position; t++) {
      const block = tables[slot * maxBlocksPerSlot + Math.floor(t / blockTokens)]!;
      let score = 0;
      keys.vector(block, kv, t % blockTokens).forEach((k, d) => {
        score += k * q[(slot * heads + head) * headDim + d]!;
      });
      score *= shape.scale;
      if (softcap !== null) score = softcap * Math.tanh(score / softcap);
      const weight = Math.exp(score);
      all += weight;
      values.vector(block, kv, t % blockTokens).forEach((v, d) => {
        sum[d]! += weight * v;
      });
    }
    return sum.map((v) => v / all);
  }
});
