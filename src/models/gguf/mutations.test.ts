import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Random } from '../../../test/devices/numbers.js';
import { everyCase } from '../../../test/setup/every-case.js';
import { f32, ggufBytes, string, u32, type WrittenTensor } from '../../../test/setup/gguf-writer.js';
import { KvantError } from '../../errors.js';
import { openModel } from '../open.js';
import { resolveWeights } from '../resolve-weights.js';

/** Number, elements and bytes of a block. */
const TYPES = {
  F32: [0, 1, 4],
  Q5_0: [6, 32, 22],
  Q8_0: [8, 32, 34],
  Q2_K: [10, 256, 84],
  Q3_K: [11, 256, 110],
  Q4_K: [12, 256, 144],
  Q5_K: [13, 256, 176],
  Q6_K: [14, 256, 210],
  IQ4_NL: [20, 32, 18],
  IQ4_XS: [23, 256, 136],
  MXFP4: [39, 32, 17],
  NVFP4: [40, 64, 36],
} as const;

const [HIDDEN, HEAD_DIM, VOCAB, EXPERTS] = [256, 32, 4, 2];

/** A mixture of experts with a matrix of each type. */
function wholeFile(): Buffer {
  const tensor = (name: string, type: keyof typeof TYPES, ...shape: number[]): WrittenTensor => {
    const [id, elements, bytes] = TYPES[type];
    const count = shape.reduce((a, b) => a * b, 1) / elements;
    return { name, shape, type: id, data: new Uint8Array(count * bytes).fill(0x11) };
  };
  const arch = 'qwen3moe';
  const counts = {
    block_count: 2,
    context_length: 64,
    embedding_length: HIDDEN,
    feed_forward_length: HIDDEN,
    'attention.head_count': 2,
    'attention.head_count_kv': 1,
    'attention.key_length': HEAD_DIM,
    expert_count: EXPERTS,
    expert_used_count: 1,
    expert_feed_forward_length: HIDDEN,
  };
  return ggufBytes({
    metadata: {
      'general.architecture': string(arch),
      ...Object.fromEntries(Object.entries(counts).map(([key, value]) => [`${arch}.${key}`, u32(value)])),
      [`${arch}.attention.layer_norm_rms_epsilon`]: f32(1e-6),
    },
    tensors: [
      tensor('token_embd.weight', 'Q2_K', VOCAB, HIDDEN),
      tensor('output.weight', 'NVFP4', VOCAB, HIDDEN),
      tensor('output.scale', 'F32', 1),
      tensor('output_norm.weight', 'F32', HIDDEN),
      tensor('blk.0.attn_norm.weight', 'F32', HIDDEN),
      tensor('blk.0.ffn_norm.weight', 'F32', HIDDEN),
      tensor('blk.0.attn_q_norm.weight', 'F32', HEAD_DIM),
      tensor('blk.0.attn_k_norm.weight', 'F32', HEAD_DIM),
      tensor('blk.0.attn_q.weight', 'Q3_K', 2 * HEAD_DIM, HIDDEN),
      tensor('blk.0.attn_k.weight', 'Q4_K', HEAD_DIM, HIDDEN),
      tensor('blk.0.attn_v.weight', 'Q6_K', HEAD_DIM, HIDDEN),
      tensor('blk.0.attn_output.weight', 'Q5_0', HIDDEN, 2 * HEAD_DIM),
      tensor('blk.0.ffn_gate_inp.weight', 'Q8_0', EXPERTS, HIDDEN),
      // A stack of gate and up has one type.
      tensor('blk.0.ffn_gate_exps.weight', 'IQ4_XS', EXPERTS, HIDDEN, HIDDEN),
      tensor('blk.0.ffn_up_exps.weight', 'IQ4_XS', EXPERTS, HIDDEN, HIDDEN),
      tensor('blk.0.ffn_down_exps.weight', 'MXFP4', EXPERTS, HIDDEN, HIDDEN),
      ...['attn_norm', 'ffn_norm'].map((name) => tensor(`blk.1.${name}.weight`, 'F32', HIDDEN)),
      ...['q', 'k'].map((name) => tensor(`blk.1.attn_${name}_norm.weight`, 'F32', HEAD_DIM)),
      tensor('blk.1.attn_q.weight', 'Q5_K', 2 * HEAD_DIM, HIDDEN),
      ...['k', 'v'].map((name) => tensor(`blk.1.attn_${name}.weight`, 'Q8_0', HEAD_DIM, HIDDEN)),
      tensor('blk.1.attn_output.weight', 'Q5_0', HIDDEN, 2 * HEAD_DIM),
      tensor('blk.1.ffn_gate.weight', 'IQ4_NL', HIDDEN, HIDDEN),
      tensor('blk.1.ffn_up.weight', 'Q4_K', HIDDEN, HIDDEN),
      tensor('blk.1.ffn_down.weight', 'Q6_K', HIDDEN, HIDDEN),
    ],
  });
}

/** Opens a file, finds all tensors, and reads the first and last rows of each matrix. */
async function readThrough(path: string): Promise<number> {
  await using model = await openModel(path);
  const { matrices, vectors } = resolveWeights(model.source, model.definition.layout, undefined);
  for (const { parts } of matrices)
    for (const part of parts) {
      await part.readRows(0, Math.min(2, part.rows));
      await part.readRows(part.rows - 1, part.rows);
    }
  for (const { source } of vectors) await source.read();
  return matrices.length;
}

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'kvant-mutations-'));
});
afterAll(() => rm(folder, { recursive: true }));

describe('files with bytes changed', () => {
  const whole = wholeFile();
  const headerBytes = whole.indexOf(Buffer.from('blk.0.ffn_down_exps.weight')) + 80;

  it('has a file that reads through', async () => {
    const path = join(folder, 'whole.gguf');
    await writeFile(path, whole);
    expect(await readThrough(path)).toBeGreaterThan(5);
  });

  const count = everyCase ? 2000 : 100;
  it(`are read, or refused with what to do: ${count} of them`, async () => {
    const random = new Random(77);
    const path = join(folder, 'mutated.gguf');
    let refused = 0;
    const before = process.memoryUsage.rss();
    for (let i = 0; i < count; i++) {
      const bytes = Buffer.from(whole);
      // Most of what can go wrong is in the header; one file in four is changed anywhere.
      const most = i % 4 === 3 ? bytes.length : headerBytes;
      for (let n = 1 + random.int(3); n > 0; n--) {
        const at = 4 + random.int(most - 4);
        bytes[at] = random.int(3) === 0 ? [0, 1, 0x7f, 0xff][random.int(4)]! : random.int(256);
      }
      const cut = random.int(8) === 0 ? random.int(bytes.length) : bytes.length;
      await writeFile(path, bytes.subarray(0, cut));
      try {
        await readThrough(path);
      } catch (error) {
        if (!(error instanceof KvantError) || error.kind === 'internal')
          throw new Error(`file ${i}: ${String(error)}`, { cause: error });
        expect(error.fix).toBeTruthy();
        expect(error.message.length).toBeLessThan(2000);
        refused++;
      }
    }
    expect(refused).toBeGreaterThan(count / 3);
    expect(process.memoryUsage.rss() - before).toBeLessThan(400e6);
  });
});
