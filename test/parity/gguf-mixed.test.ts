/**
 * Whole models of mixed types, as Q4_K_M files are: their logits are those of the numbers that the blocks stand for, written as F32.
 * What blocks mean is written here once more, from ggml's description.
 */

import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { devices } from '../devices/devices.js';
import { fromF16Bits, Random, toF16Bits } from '../devices/numbers.js';
import { f32, ggufBytes, string, u32, type Value, type WrittenTensor } from '../setup/gguf-writer.js';
import { createReferenceDevice } from './reference-device.js';
import { largestDifference, loadFolder, Runner } from './runner.js';

interface BlockType {
  readonly id: number;
  readonly elements: number;
  readonly bytes: number;
  /** Makes random bytes a block of weights of a usual size. */
  readonly tame: (block: Buffer, random: Random) => void;
  readonly values: (block: Buffer) => number[];
}

const half = (block: Buffer, at: number): number => fromF16Bits(block.readUInt16LE(at));
const setHalf = (block: Buffer, at: number, value: number): void => {
  block.writeUInt16LE(toF16Bits(value), at);
};
const E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6];

const TYPES = {
  Q8_0: {
    id: 8,
    elements: 32,
    bytes: 34,
    tame: (block) => setHalf(block, 0, 8e-4),
    values: (block) => Array.from({ length: 32 }, (_, i) => half(block, 0) * block.readInt8(2 + i)),
  },
  Q4_K: {
    id: 12,
    elements: 256,
    bytes: 144,
    tame: (block, random) => {
      setHalf(block, 0, 2e-4 * (0.5 + random.uniform()));
      setHalf(block, 2, 1.5e-3 * (0.5 + random.uniform()));
    },
    values: (block) => {
      const b = block.subarray(4, 16);
      const scales = Array.from({ length: 8 }, (_, j): [number, number] =>
        j < 4
          ? [b[j]! & 63, b[j + 4]! & 63]
          : [(b[j + 4]! & 15) | ((b[j - 4]! >> 6) << 4), (b[j + 4]! >> 4) | ((b[j]! >> 6) << 4)],
      );
      return Array.from({ length: 256 }, (_, i) => {
        const [sub, byte] = [i >> 5, block[16 + 32 * (i >> 6) + (i & 31)]!];
        const [scale, minimum] = scales[sub]!;
        return half(block, 0) * scale * (sub % 2 === 0 ? byte & 15 : byte >> 4) - half(block, 2) * minimum;
      });
    },
  },
  Q6_K: {
    id: 14,
    elements: 256,
    bytes: 210,
    tame: (block, random) => setHalf(block, 208, 3e-5 * (0.5 + random.uniform())),
    values: (block) =>
      Array.from({ length: 256 }, (_, i) => {
        const [side, quarter, l] = [i >> 7, (i >> 5) & 3, i & 31];
        const low = block[64 * side + 32 * (quarter & 1) + l]!;
        const high = (block[128 + 32 * side + l]! >> (2 * quarter)) & 3;
        const code = (quarter < 2 ? low & 15 : low >> 4) | (high << 4);
        return half(block, 208) * block.readInt8(192 + (i >> 4)) * (code - 32);
      }),
  },
  MXFP4: {
    id: 39,
    elements: 32,
    bytes: 17,
    tame: (block, random) => {
      block[0] = 119 + random.int(4);
    },
    values: (block) =>
      Array.from({ length: 32 }, (_, i) => {
        const byte = block[1 + (i & 15)]!;
        const code = i < 16 ? byte & 15 : byte >> 4;
        return 2 ** (block[0]! - 127) * E2M1[code & 7]! * (code < 8 ? 1 : -1);
      }),
  },
} as const satisfies Record<string, BlockType>;
type TypeName = keyof typeof TYPES;

const [HIDDEN, WIDTH, VOCAB, LAYERS, HEADS, KV_HEADS, HEAD_DIM] = [256, 256, 64, 2, 4, 2, 64];

interface Model {
  readonly arch: string;
  readonly experts?: number;
  /** Of a matrix. */
  readonly type: (name: string) => TypeName;
}

/** As llama-quantize deals them out. */
const mixed = (name: string): TypeName =>
  /output\.weight|attn_v|blk\.0\.ffn_down/.test(name) ? 'Q6_K' : 'Q4_K';

const MODELS: Record<string, Model> = {
  Q4_K_M: { arch: 'llama', type: mixed },
  'Q4_K_M of experts': { arch: 'qwen3moe', experts: 3, type: mixed },
  Q6_K: { arch: 'llama', type: () => 'Q6_K' },
  Q8_0: { arch: 'llama', type: () => 'Q8_0' },
  'MXFP4 experts, Q8_0 elsewhere': {
    arch: 'qwen3moe',
    experts: 3,
    type: (name) => (name.includes('exps') ? 'MXFP4' : 'Q8_0'),
  },
};

/** The model of random blocks, and the same as F32. */
function files({ arch, experts, type }: Model): readonly [Buffer, Buffer] {
  const random = new Random(arch.length * 100 + (experts ?? 0));
  const blocks: WrittenTensor[] = [];
  const floats: WrittenTensor[] = [];
  const vector = (name: string, length: number): void => {
    const data = new Uint8Array(Float32Array.from({ length }, () => 1 + 0.2 * random.normal()).buffer);
    for (const list of [blocks, floats]) list.push({ name, shape: [length], type: 0, data });
  };
  const matrix = (name: string, ...shape: number[]): void => {
    const { id, elements, bytes, tame, values } = TYPES[type(name)] as BlockType;
    const count = shape.reduce((a, b) => a * b, 1) / elements;
    const data = Buffer.from(Uint8Array.from({ length: count * bytes }, () => random.int(256)));
    const wide = new Float32Array(count * elements);
    for (let b = 0; b < count; b++) {
      const block = data.subarray(b * bytes, (b + 1) * bytes);
      tame(block, random);
      wide.set(values(block), b * elements);
    }
    blocks.push({ name, shape, type: id, data });
    floats.push({ name, shape, type: 0, data: new Uint8Array(wide.buffer) });
  };
  matrix('token_embd.weight', VOCAB, HIDDEN);
  vector('output_norm.weight', HIDDEN);
  matrix('output.weight', VOCAB, HIDDEN);
  for (let layer = 0; layer < LAYERS; layer++) {
    const at = (name: string): string => `blk.${layer}.${name}.weight`;
    for (const norm of ['attn_norm', 'ffn_norm']) vector(at(norm), HIDDEN);
    if (experts !== undefined) for (const norm of ['attn_q_norm', 'attn_k_norm']) vector(at(norm), HEAD_DIM);
    matrix(at('attn_q'), HEADS * HEAD_DIM, HIDDEN);
    for (const name of ['attn_k', 'attn_v']) matrix(at(name), KV_HEADS * HEAD_DIM, HIDDEN);
    matrix(at('attn_output'), HIDDEN, HEADS * HEAD_DIM);
    const stack = experts === undefined ? [] : [experts];
    const end = experts === undefined ? '' : '_exps';
    for (const name of ['ffn_gate', 'ffn_up', 'ffn_down']) matrix(at(name + end), ...stack, WIDTH, HIDDEN);
    if (experts === undefined) continue;
    const data = new Uint8Array(random.normals(experts * HIDDEN).buffer);
    const router = { name: at('ffn_gate_inp'), shape: [experts, HIDDEN], type: 0, data };
    for (const list of [blocks, floats]) list.push(router);
  }
  const metadata: Record<string, Value> = {
    'general.architecture': string(arch),
    [`${arch}.block_count`]: u32(LAYERS),
    [`${arch}.context_length`]: u32(128),
    [`${arch}.embedding_length`]: u32(HIDDEN),
    [`${arch}.feed_forward_length`]: u32(WIDTH),
    [`${arch}.attention.head_count`]: u32(HEADS),
    [`${arch}.attention.head_count_kv`]: u32(KV_HEADS),
    [`${arch}.attention.layer_norm_rms_epsilon`]: f32(1e-5),
    ...(experts !== undefined && {
      [`${arch}.expert_count`]: u32(experts),
      [`${arch}.expert_used_count`]: u32(2),
      [`${arch}.expert_feed_forward_length`]: u32(WIDTH),
    }),
  };
  return [ggufBytes({ metadata, tensors: blocks }), ggufBytes({ metadata, tensors: floats })];
}

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'kvant-gguf-'));
});
afterAll(() => rm(folder, { recursive: true }));

async function logits(device: Device, name: string, bytes: Buffer): Promise<Float32Array[]> {
  const path = join(folder, `${name.replaceAll(/\W/g, '-')}.gguf`);
  await writeFile(path, bytes);
  await using runner = await Runner.create(device, await loadFolder(path, device), {
    context: 64,
    chunk: 16,
  });
  const prompt = Array.from({ length: 7 }, (_, i) => (i * 37) % VOCAB);
  return (await runner.generate(prompt, 2)).logits.map((row) => Float32Array.from(row));
}

describe.each(Object.entries(MODELS))('a model of %s', (name, model) => {
  it('gives the logits of the numbers that it stands for', async () => {
    const [blocks, floats] = files(model);
    await using exact = createReferenceDevice();
    const wanted = await logits(exact, `${name}-f32`, floats);
    const size = Math.max(...wanted[0]!.map(Math.abs));
    expect(size).toBeGreaterThan(0.1);
    for (const spec of devices.filter(({ kind, precision }) => kind === 'cpu' && precision === 'reference')) {
      await using device = await spec.create();
      const got = await logits(device, name, blocks);
      for (const [i, row] of got.entries())
        expect(largestDifference(row, wanted[i]!)).toBeLessThan(1e-4 * size);
    }
  });
});
