import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { randomKvWords } from '../../../../test/devices/kv-words.js';
import { LARGE } from '../../../../test/devices/large-gpu.js';
import { Random } from '../../../../test/devices/numbers.js';
import { emulateMatrices } from '../../../../test/setup/emulate-matrices.js';
import { without } from '../../../../test/setup/every-case.js';
import { uploadTo } from '../../../../test/setup/raw-buffers.js';
import { openTestDevice } from '../../../../test/setup/swiftshader.js';
import {
  CASES,
  CODED,
  CONFIG,
  F16,
  HEADS,
  SMALL_HEAD,
  TAILS,
} from '../../../../test/webgpu/attend-prefill-cases.js';
import type { KvFormat } from '../../kv.js';
import { StepInputs } from '../../step.js';
import type { WebGpuDevice } from '../device.js';
import type { KvHead } from '../shapes.js';
import { StepPacker } from '../step-buffer.js';
import { type AttendShape, portableTiles } from './attend.js';
import { mergePartsStage, partScratch } from './attend-parts.js';
import { tileScratch } from './attend-plan.js';
import { prefillStage } from './attend-prefill.js';
import { planPrefill, prefillFits } from './attend-prefill-plan.js';
import { tailEndStage } from './attend-tail.js';
import { kvLayout } from './kv-layout.js';
import { allRows } from './kv-rows.js';

/** Matrices as loops: what is tested here is the arithmetic of places. On a GPU the device suite has the real ones. */
describe('attention on matrices, emulated', () => {
  let device: WebGpuDevice;
  let raw: GPUDevice;
  beforeAll(async () => {
    ({ device, raw } = await openTestDevice());
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  const left = [
    'f16 in halves',
    'affine 8 and 5',
    'affine 4, two pieces',
    'f16 and TurboQuant 2',
    'TurboQuant 8, word by word',
    ...HEADS.map(({ name }) => name),
    TAILS[1]!.name,
  ];
  it.each(without([...CASES, ...CODED, SMALL_HEAD, ...HEADS, ...TAILS], left))(
    '$name',
    async ({ shape: given, parts = 1, head: headTokens = 0, tail: newest, config: other, sequences }) => {
      const config = { ...CONFIG, ...other };
      const blockTokens = 16;
      const contexts = sequences.map(([position, length]) => position + length);
      const maxBlocks = Math.ceil(Math.max(...contexts) / blockTokens);
      const blocks = sequences.length * maxBlocks;
      const floatHead = headTokens === 0 ? null : headOf(headTokens, given, blocks, blockTokens);
      const shape: AttendShape = {
        heads: 4,
        kvHeads: 2,
        headDim: 8,
        key: F16,
        value: F16,
        blockTokens,
        maxBlocksPerSlot: maxBlocks,
        scale: 0.4,
        window: null,
        softcap: null,
        maxItems: 0,
        rows: {
          ...allRows(blocks),
          ...(floatHead === null ? {} : { only: 'behind', head: floatHead }),
          ...(newest && { tail: { tokens: newest, dtype: 'f16' } }),
        },
        most: { tokens: sequences.reduce((n, [, length]) => n + length, 0), rows: sequences.length },
        ...given,
      };
      expect(prefillFits(shape, config)).toBe(true);
      const { heads, kvHeads, headDim } = shape;
      const random = new Random(7);
      const tokens = sequences.reduce((n, [, length]) => n + length, 0);
      const inputs = new StepInputs(tokens, sequences.length, 1);
      inputs.tokenCount = tokens;
      inputs.sequenceCount = sequences.length;
      let start = 0;
      sequences.forEach(([position, length], s) => {
        inputs.seqSlot[s] = s;
        inputs.seqStart[s] = start;
        inputs.seqLength[s] = length;
        inputs.seqPosition[s] = position;
        start += length;
      });
      const limits = {
        maxTokens: tokens,
        maxOutputs: 1,
        maxSequences: sequences.length,
        maxContext: maxBlocks * blockTokens,
        inFlight: 1,
      };
      const bounds = { slots: sequences.length, positions: maxBlocks * blockTokens };
      const packer = new StepPacker(limits, bounds, 0, true);
      const { rows, rowBlocks } = planPrefill(shape, config);
      packer.tileWorkgroups = shape.kvHeads * rowBlocks;
      const words = packer.pack(inputs);
      expect(packer.facts.tileParts).toBe(parts);
      // Blocks in reverse, so that a table that is not looked up shows.
      const ofHead = headTokens / blockTokens;
      const tables = Uint32Array.from({ length: blocks }, (_, i) =>
        i % maxBlocks < ofHead
          ? blocks + Math.floor(i / maxBlocks) * ofHead + (i % maxBlocks)
          : blocks - 1 - i,
      );
      const place = { headDim, kvHeads, blockTokens, blocks };
      const sideOf = (format: KvFormat, side: 'key' | 'value') => {
        const codes = randomKvWords(format, side, place, random);
        if (floatHead === null) return codes;
        const floats = randomKvWords(F16, side, { ...place, blocks: sequences.length * ofHead }, random);
        const words = new Uint32Array(
          (floatHead.keyFirst! * kvHeads * blockTokens * headDim) / 2 + floats.words.length,
        );
        words.set(codes.words);
        words.set(floats.words, words.length - floats.words.length);
        const vector: typeof codes.vector = (block, kv, token) =>
          block < blocks ? codes.vector(block, kv, token) : floats.vector(block - blocks, kv, token);
        return { words, vector };
      };
      const keys = sideOf(shape.key, 'key');
      const values = sideOf(shape.value, 'value');
      const q = random.normals(tokens * heads * headDim);
      const sinks = random.normals(heads);
      // A pool of its own, whose table is in order. Its kernel is the portable one: SwiftShader does not come to an end with this one's windows.
      const tailShape: AttendShape = {
        ...shape,
        key: F16,
        value: F16,
        window: newest ?? null,
        rows: { ...allRows(blocks), only: 'tail', tail: { tokens: newest ?? 0, dtype: 'f16' } },
      };
      const newestKeys = randomKvWords(F16, 'key', place, random);
      const newestValues = randomKvWords(F16, 'value', place, random);

      const stages = [
        prefillStage(shape, config),
        prefillStage(shape, config, true),
        mergePartsStage(shape, rows, rowBlocks),
        ...(newest === undefined
          ? []
          : [...portableTiles.build(LARGE, tailShape).stages, tailEndStage(shape)]),
      ];
      const out = raw.createBuffer({ size: q.byteLength, usage: 128 | 4 });
      const roles: Record<string, GPUBuffer> = {
        step: uploadTo(raw, packer.words.slice(0, words)),
        q: uploadTo(raw, q),
        keys: uploadTo(raw, keys.words),
        values: uploadTo(raw, values.words),
        tables: uploadTo(raw, tables),
        sinks: uploadTo(raw, sinks),
        out,
      };
      const ofTail: Record<string, GPUBuffer> = {
        keys: uploadTo(raw, newestKeys.words),
        values: uploadTo(raw, newestValues.words),
        tables: uploadTo(
          raw,
          Uint32Array.from({ length: blocks }, (_, i) => i),
        ),
      };
      const scratch = { ...partScratch(shape, rows), ...tileScratch(shape), ...tileScratch(tailShape) };
      for (const [name, size] of Object.entries(scratch))
        roles[name] = raw.createBuffer({ size, usage: 128 });
      const staging = raw.createBuffer({ size: q.byteLength, usage: 1 | 8 });
      const encoder = raw.createCommandEncoder();
      for (const [at, stage] of stages.entries()) {
        if (stage.params !== undefined) roles.params = uploadTo(raw, Uint32Array.from(stage.params), 64 | 8);
        const workgroups: [number, number, number] = [0, 0, 0];
        stage.workgroups(packer.facts, workgroups);
        if (workgroups[0] === 0) continue;
        const pipeline = await raw.createComputePipelineAsync({
          layout: 'auto',
          compute: {
            module: raw.createShaderModule({
              code: stage.wgsl.includes('subgroup_matrix')
                ? emulateMatrices(stage.wgsl, config.matrix.m)
                : stage.wgsl,
            }),
          },
        });
        const entries = stage.bindings.map(({ name }, binding) => ({
          binding,
          resource: { buffer: (at === 3 ? ofTail[name] : undefined) ?? roles[name]! },
        }));
        const pass = encoder.beginComputePass();
        pass.setPipeline(pipeline);
        pass.setBindGroup(0, raw.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
        pass.dispatchWorkgroups(...workgroups);
        pass.end();
      }
      encoder.copyBufferToBuffer(out, 0, staging, 0, q.byteLength);
      raw.queue.submit([encoder.finish()]);
      await staging.mapAsync(1);
      const got = new Float32Array(staging.getMappedRange()).slice();
      for (const buffer of [...Object.values(roles), ...Object.values(ofTail), staging]) buffer.destroy();

      let worst = 0;
      let norm = 0;
      let token = 0;
      sequences.forEach(([position, length], s) => {
        for (let i = 0; i < length; i++, token++) {
          for (let head = 0; head < heads; head++) {
            const at = (token * heads + head) * headDim;
            const want = attend(q.subarray(at, at + headDim), s, position + i, head);
            want.forEach((v, d) => {
              worst = Math.max(worst, Math.abs(v - got[at + d]!));
              norm = Math.max(norm, Math.abs(v));
            });
          }
        }
      });
      // Halves of q, K and V, where the kernel has them.
      expect(worst / norm).toBeLessThan(config.matrix.component === 'f16' ? 5e-3 : 1e-5);

      /** In float64. */
      function attend(query: Float32Array, slot: number, position: number, head: number): number[] {
        const kv = Math.floor(head / (heads / kvHeads));
        const side = (
          of: typeof keys,
          ofNewest: typeof newestKeys,
          t: number,
        ): ArrayLike<number> & Iterable<number> =>
          newest === undefined || t <= position - newest
            ? of.vector(blockOf(t), kv, t % blockTokens)
            : ofNewest.vector(slot * maxBlocks + Math.floor(t / blockTokens), kv, t % blockTokens);
        const blockOf = (t: number): number => tables[slot * maxBlocks + Math.floor(t / blockTokens)]!;
        const sum = new Array<number>(headDim).fill(0);
        let total = shape.sinks ? Math.exp(sinks[head]!) : 0;
        for (let t = Math.max(0, position + 1 - (shape.window ?? Infinity)); t <= position; t++) {
          let score = 0;
          Array.from(side(keys, newestKeys, t)).forEach((k, d) => {
            score += k * query[d]!;
          });
          score *= shape.scale;
          if (shape.softcap !== null) score = shape.softcap * Math.tanh(score / shape.softcap);
          const weight = Math.exp(score);
          total += weight;
          Array.from(side(values, newestValues, t)).forEach((v, d) => {
            sum[d]! += weight * v;
          });
        }
        return sum.map((v) => v / total);
      }
    },
  );
});

/** A head of halves behind codes, of fewer bytes than so many blocks of floats. */
function headOf(
  tokens: number,
  { key, value, headDim, kvHeads = 2 }: Partial<AttendShape>,
  blocks: number,
  blockTokens: number,
): KvHead {
  const place = { headDim: headDim!, kvHeads, blockTokens };
  const first = (format: KvFormat): number =>
    Math.ceil(kvLayout(format, { ...place, blocks }).bytes / kvLayout(F16, { ...place, blocks: 1 }).bytes);
  const most = Math.max(first(key!), first(value!));
  return { tokens, dtype: 'f16', keyFirst: most, valueFirst: most };
}
