import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  bool,
  f32,
  f32s,
  ggufBytes,
  string,
  u32,
  u32s,
  type Value,
  type WrittenTensor,
} from '../../../test/setup/gguf-writer.js';
import { inspectModel } from '../inspect.js';
import { openModel } from '../open.js';
import { GgufSource } from './source.js';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'kvant-gguf-'));
});
afterAll(() => rm(folder, { recursive: true }));

const METADATA: Record<string, Value> = {
  'general.architecture': string('llama'),
  'llama.block_count': u32(1),
  'llama.context_length': u32(64),
  'llama.embedding_length': u32(32),
  'llama.feed_forward_length': u32(64),
  'llama.attention.head_count': u32(2),
  'llama.attention.head_count_kv': u32(1),
  'llama.attention.layer_norm_rms_epsilon': f32(1e-5),
};

const plain = (name: string, shape: readonly number[]): WrittenTensor => ({
  name: `${name}.weight`,
  shape,
  type: 0,
  data: new Uint8Array(shape.reduce((a, b) => a * b, 4)),
});
const blocks = (name: string, rows: number, cols: number, type = 2, size = 18): WrittenTensor => ({
  name: `${name}.weight`,
  shape: [rows, cols],
  type,
  data: new Uint8Array(((rows * cols) / 32) * size),
});

const TENSORS: readonly WrittenTensor[] = [
  blocks('token_embd', 40, 32, 8, 34),
  plain('output_norm', [32]),
  plain('blk.0.attn_norm', [32]),
  plain('blk.0.ffn_norm', [32]),
  blocks('blk.0.attn_q', 32, 32),
  blocks('blk.0.attn_k', 16, 32),
  blocks('blk.0.attn_v', 16, 32),
  blocks('blk.0.attn_output', 32, 32),
  blocks('blk.0.ffn_gate', 64, 32),
  blocks('blk.0.ffn_up', 64, 32),
  blocks('blk.0.ffn_down', 32, 64),
];

async function opened(
  metadata: Record<string, Value> = {},
  tensors: readonly WrittenTensor[] = TENSORS,
): ReturnType<typeof openModel> {
  const path = join(folder, 'tiny.gguf');
  await writeFile(path, ggufBytes({ metadata: { ...METADATA, ...metadata }, tensors }));
  return await openModel(path);
}

/** The same numbers as another architecture has them. */
const renamedKeys = (arch: string): Record<string, Value> => ({
  ...Object.fromEntries(
    Object.entries(METADATA).map(([key, value]) => [key.replace(/^llama\./, `${arch}.`), value]),
  ),
  'general.architecture': string(arch),
});

describe('a GGUF file as a model', () => {
  it('has a config, and says of each tensor what it was and what it became', async () => {
    await using model = await opened();
    expect(model.definition.facts).toMatchObject({
      family: 'llama',
      layers: 1,
      heads: 2,
      kvHeads: 1,
      headDim: 16,
      vocabSize: 40,
      tied: true,
      maxPositions: 64,
    });
    const { weights } = inspectModel(model.source, model.definition);
    const q4 = 'Q4_0, 4.5 bits a weight, as 4-bit symmetric (group 32), 4.5 bits';
    expect(weights.map(({ kind, formats }) => [kind, formats])).toEqual([
      ['embedding', ['Q8_0, 8.5 bits a weight, as 8-bit symmetric (group 32), 8.5 bits']],
      ['attention', [q4]],
      ['mlp', [q4]],
      ['norms and biases', ['f32']],
    ]);
  });

  it('tells of what lies beside it to see for it, and cannot be used', async () => {
    const path = join(folder, 'mmproj-tiny-F16.gguf');
    const metadata = {
      'general.architecture': string('clip'),
      'clip.projector_type': string('ultravox'),
    };
    await writeFile(path, ggufBytes({ metadata, tensors: [plain('v.post_ln', [32])] }));
    const told = async (): Promise<unknown> => {
      await using model = await opened();
      return model.notices;
    };
    const fields = { file: 'mmproj-tiny-F16.gguf', fix: expect.stringContaining('qwen3vl') as string };
    expect(await told()).toEqual([
      { message: expect.stringMatching(/^pictures are refused: .*"ultravox"/) as string, fields },
    ]);
    await writeFile(path, 'GGUF');
    expect(await told()).toMatchObject([
      { message: expect.stringContaining('pictures are refused') as string },
    ]);
    await rm(path);
    expect(await told()).toEqual([]);
  });

  it('says that a model is no mmproj file', async () => {
    const path = join(folder, 'other.gguf');
    await writeFile(path, ggufBytes({ metadata: METADATA, tensors: TENSORS }));
    await expect(openModel(path, undefined, path)).rejects.toMatchObject({
      code: 'projector-unsupported',
      message: 'other.gguf is no mmproj file: its architecture is llama',
    });
  });

  it.each<[string, Record<string, Value>, string, RegExp]>([
    [
      'another architecture',
      { 'general.architecture': string('llame') },
      'model-architecture-unknown',
      /llama/,
    ],
    [
      'an adapter',
      { 'general.type': string('adapter') },
      'model-architecture-unknown',
      /kind "adapter", not a model/,
    ],
    [
      'experts where none are read',
      { 'general.architecture': string('granite'), 'granite.expert_count': u32(8) },
      'model-config-unsupported',
      /mixture of experts/,
    ],
    [
      'part of a head rotated',
      { 'llama.rope.dimension_count': u32(8), 'llama.attention.key_length': u32(16) },
      'model-config-unsupported',
      /part of each head/,
    ],
    [
      'layers that differ',
      { 'llama.feed_forward_length': { type: 'u32s', value: [64, 32] } },
      'model-config-unsupported',
      /differs by layer/,
    ],
    ['a number that is a text', { 'llama.block_count': string('1') }, 'model-config', /block_count/],
    ['no layers', { 'llama.block_count': u32(0) }, 'model-config', /block_count/],
    [
      'attention both ways',
      { 'llama.attention.causal': { type: 'bool', value: 0 } },
      'model-config-unsupported',
      /looks ahead/,
    ],
    ...(
      [
        ['final_logit_softcapping', f32(30)],
        ['attention.scale', f32(0.5)],
        ['num_loops', u32(2)],
        ['rope.scaling.yarn_ext_factor', f32(0.5)],
        ['expert_weights_scale', f32(2.5)],
      ] as const
    ).map(([key, value]): [string, Record<string, Value>, string, RegExp] => [
      `${key}, which a llama has not`,
      { [`llama.${key}`]: value },
      'model-config-unsupported',
      /what this number says/,
    ]),
    [
      'another score of experts than its family has',
      { ...renamedKeys('qwen3moe'), 'qwen3moe.expert_gating_func': u32(2) },
      'model-config-unsupported',
      /another score of experts than softmax/,
    ],
    [
      'numbers of experts that differ by layer',
      { ...renamedKeys('qwen3moe'), 'qwen3moe.expert_used_count': u32s([2, 4]) },
      'model-config-unsupported',
      /expert_used_count: a number that differs by layer/,
    ],
    [
      'bounds inside of experts',
      { 'llama.swiglu_clamp_exp': f32s([0, 7]) },
      'model-config-unsupported',
      /a bound inside of experts/,
    ],
    [
      'another base of the rotation where layers slide',
      { 'llama.rope.freq_base_swa': f32(5000) },
      'model-config-unsupported',
      /layers that slide/,
    ],
    ...(
      [
        ['granite', 'rope.scaling.finetuned', bool(false), /without rotation/],
        ['lfm2', 'attention.sliding_window', u32(8), /within a window/],
      ] as const
    ).map(([arch, key, value, message]): [string, Record<string, Value>, string, RegExp] => [
      `${key} of ${arch}`,
      { ...renamedKeys(arch), [`${arch}.${key}`]: value },
      'model-config-unsupported',
      message,
    ]),
    [
      'more layers than there are',
      { 'llama.block_count': u32(3), 'llama.nextn_predict_layers': u32(1) },
      'model-config',
      /the 1 blocks that the file holds/,
    ],
  ])('refuses %s', async (_, metadata, code, message) => {
    await expect(opened(metadata)).rejects.toMatchObject({
      code,
      message: expect.stringMatching(message) as string,
      fix: expect.stringMatching(/\w/) as string,
    });
  });

  it('takes one expert for an MLP, and ε by the name of the other norm', async () => {
    const metadata: Record<string, Value> = { ...renamedKeys('granite'), 'granite.expert_count': u32(1) };
    delete metadata['granite.attention.layer_norm_rms_epsilon'];
    metadata['granite.attention.layer_norm_epsilon'] = f32(1e-3);
    await using model = await opened(metadata);
    expect(model.definition.facts.family).toBe('granite');
    const source = await GgufSource.open(join(folder, 'tiny.gguf'));
    expect(source.config.rms_norm_eps).toBe(Math.fround(1e-3));
    await source.close();
  });

  it('knows ids that stand for no token', async () => {
    const none = { type: 'i32', value: -1 } as const;
    await using model = await opened({
      'tokenizer.ggml.bos_token_id': none,
      'tokenizer.ggml.eos_token_id': u32(3),
      'tokenizer.ggml.eot_token_id': u32(0xffff_ffff),
    });
    expect(model.definition.facts).toMatchObject({ bosTokenIds: [], eosTokenIds: [3] });
  });

  it('stretches a rotation with the attention factor that the file has', async () => {
    const yarn = {
      'llama.rope.scaling.type': string('yarn'),
      'llama.rope.scaling.factor': f32(4),
      'llama.rope.scaling.original_context_length': u32(16),
    };
    const factor = async (more: Record<string, Value>): Promise<unknown> => {
      await using model = await opened({ ...yarn, ...more });
      return JSON.stringify(model.definition.layout).match(/"attentionFactor":([\d.]+)/)?.[1];
    };
    const key = 'llama.rope.scaling.yarn_attn_factor';
    expect(Number(await factor({}))).toBeCloseTo(1 + 0.1 * Math.log(4));
    expect(await factor({ [key]: f32(1.5) })).toBe('1.5');
    // As llama.cpp writes what is not set.
    expect(await factor({ [key]: f32(-1) })).toBe(await factor({}));
  });

  it('leaves layers that draft out, whether the file has them or not', async () => {
    const metadata = { 'llama.block_count': u32(2), 'llama.nextn_predict_layers': u32(1) };
    const drafts = TENSORS.slice(2).map((one) => ({ ...one, name: one.name.replace('blk.0', 'blk.1') }));
    for (const more of [[], [...drafts, plain('blk.1.nextn.eh_proj', [32, 64])]]) {
      await using model = await opened(metadata, [...TENSORS, ...more]);
      expect(model.definition.facts.layers).toBe(1);
      inspectModel(model.source, model.definition);
    }
    await expect(opened(metadata, [...TENSORS.slice(0, 2), ...drafts])).rejects.toMatchObject({
      code: 'model-architecture-unknown',
      message: expect.stringContaining('draft for a model (MTP)') as string,
    });
  });

  it('takes a Gemma 3 without a window for one whose layers see all', async () => {
    const norms = ['attn_q_norm', 'attn_k_norm'].map((name) => plain(`blk.0.${name}`, [16]));
    const behind = ['post_attention_norm', 'post_ffw_norm'].map((name) => plain(`blk.0.${name}`, [32]));
    const windows = async (more: Record<string, Value>): Promise<unknown> => {
      await using model = await opened({ ...renamedKeys('gemma3'), ...more }, [
        ...TENSORS,
        ...norms,
        ...behind,
      ]);
      return model.definition.layout.cache.map(({ window }) => window);
    };
    expect(await windows({})).toEqual([null]);
    const list: Value = { type: 'bools', value: [1] };
    const key = 'gemma3.attention.sliding_window';
    expect(await windows({ [key]: u32(8), [`${key}_pattern`]: list })).toEqual([8]);
  });

  it('refuses a file without a model in it', async () => {
    await expect(opened({}, TENSORS.slice(1))).rejects.toMatchObject({ code: 'weights-tensor-missing' });
  });

  it('refuses a tensor of a layer that it has no use for, and one that is missing', async () => {
    const extra = await opened({}, [...TENSORS, plain('blk.0.attn_sub_norm', [32])]);
    await using _ = extra;
    expect(() => inspectModel(extra.source, extra.definition)).toThrow(/attn_sub_norm/);
    await using fewer = await opened({}, TENSORS.slice(0, -1));
    expect(() => inspectModel(fewer.source, fewer.definition)).toThrow(/has no blk\.0\.ffn_down\.weight/);
  });

  it('refuses one of two lists of a stretched rotation, and is brief about long names', async () => {
    await expect(opened({}, [...TENSORS, plain('rope_factors_long', [8])])).rejects.toMatchObject({
      code: 'weights-tensor-missing',
      where: 'rope_factors_short.weight',
    });
    const long = await opened({ 'general.architecture': string('x'.repeat(1e5)) }).catch((error) => error);
    expect(long.message.length).toBeLessThan(500);
  });

  it('names the type where one is not read', async () => {
    await using model = await opened({}, [
      ...TENSORS.slice(0, -1),
      { ...plain('blk.0.ffn_down', [32, 64]), type: 24, data: new Uint8Array(2048) },
    ]);
    expect(() => inspectModel(model.source, model.definition)).toThrow(/of type I8/);
  });
});
