/**
 * Models for embeddings as GGUF files: the fixtures are written with the names and the changes of llama.cpp's converter
 * (conversion/bert.py), and must give the ids and the vectors of sentence-transformers.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import { devices } from '../devices/devices.js';
import { refusal } from '../engine/engine-harness.js';
import { bool, f32, string, u32, type Value } from '../setup/gguf-writer.js';
import { GGUF_LAYER_NAMES, type Named, published, writeGguf } from '../setup/published-tensors.js';
import { embeddingFixture, writeEmbedder } from './fixtures.js';
import {
  BERT_NAMES,
  byteLevel,
  MODERN_NAMES,
  modernEnds,
  pieces,
  scored,
  type TokenizerJson,
  type TokenizerKeys,
  vocabulary,
} from './gguf-names.js';

type Json = Record<string, unknown>;

interface Converted {
  readonly arch: string;
  /** GGUF's name by that of the checkpoint, without `.weight` and `.bias`. */
  readonly names: Readonly<Record<string, string>>;
  readonly pooling: number;
  readonly keys: (config: Json) => Record<string, Value>;
  readonly tokenizer: TokenizerKeys;
  /** Rows of the table of positions that are left out. */
  readonly behind?: number;
}

const number = (config: Json, ...names: string[]): number =>
  names.map((name) => config[name]).find((value) => typeof value === 'number') as number;

const MODELS: Record<string, Converted> = {
  bert: { arch: 'bert', names: BERT_NAMES, pooling: 2, keys: () => ({}), tokenizer: pieces },
  'xlm-roberta': {
    arch: 'bert',
    names: BERT_NAMES,
    pooling: 1,
    keys: () => ({}),
    tokenizer: scored,
    behind: 2,
  },
  nomic: {
    arch: 'nomic-bert',
    names: {
      'embeddings.word_embeddings': 'token_embd',
      emb_ln: 'token_embd_norm',
      'embeddings.token_type_embeddings': 'token_types',
      'attn.Wqkv': 'attn_qkv',
      'attn.out_proj': 'attn_output',
      norm1: 'attn_output_norm',
      'mlp.fc11': 'ffn_up',
      'mlp.fc12': 'ffn_gate',
      'mlp.fc2': 'ffn_down',
      norm2: 'layer_output_norm',
    },
    pooling: 1,
    keys: () => ({ 'nomic-bert.rope.freq_base': f32(1000) }),
    tokenizer: pieces,
  },
  modernbert: {
    arch: 'modern-bert',
    names: MODERN_NAMES,
    pooling: 1,
    keys: (config) => ({
      'modern-bert.attention.sliding_window': u32(number(config, 'local_attention')),
      'modern-bert.attention.sliding_window_pattern': u32(3),
      'modern-bert.rope.freq_base': f32(160_000),
      'modern-bert.rope.scaling.type': string('none'),
      'modern-bert.hidden_activation': string('gelu'),
    }),
    tokenizer: byteLevel('modern-bert', modernEnds),
  },
  qwen3: {
    arch: 'qwen3',
    names: {
      embed_tokens: 'token_embd',
      norm: 'output_norm',
      ...GGUF_LAYER_NAMES,
    },
    pooling: 3,
    keys: (config) => ({
      'qwen3.attention.head_count_kv': u32(number(config, 'num_key_value_heads')),
      'qwen3.attention.key_length': u32(number(config, 'head_dim')),
      'qwen3.attention.value_length': u32(number(config, 'head_dim')),
      'qwen3.rope.freq_base': f32(1e6),
    }),
    tokenizer: byteLevel('gpt-2', (ids) => ({
      'tokenizer.ggml.add_eos_token': bool(true),
      'tokenizer.ggml.eos_token_id': ids('<|endoftext|>'),
    })),
  },
};

let scratch: string;
beforeAll(() => {
  scratch = mkdtempSync(join(tmpdir(), 'kvant-gguf-embedder-'));
});
afterAll(() => rmSync(scratch, { recursive: true }));

async function convert(name: string, path: string, changes: Record<string, Value> = {}): Promise<void> {
  const { arch, names, pooling, keys, tokenizer, behind = 0 } = MODELS[name]!;
  const fixture = embeddingFixture(name);
  const folder = writeEmbedder(fixture);
  try {
    const { config, tensors } = await published(folder);
    const json = fixture.files['tokenizer.json'] as unknown as TokenizerJson;
    const { tokens } = vocabulary(json);
    const own = config as unknown as Json;
    const size = (...of: string[]): Value => u32(number(own, ...of));
    const metadata: Record<string, Value> = {
      'general.architecture': string(arch),
      [`${arch}.block_count`]: size('num_hidden_layers', 'n_layer'),
      [`${arch}.context_length`]: u32(number(own, 'max_position_embeddings', 'n_positions') - behind),
      [`${arch}.embedding_length`]: size('hidden_size', 'n_embd'),
      [`${arch}.feed_forward_length`]: size('intermediate_size', 'n_inner'),
      [`${arch}.attention.head_count`]: size('num_attention_heads', 'n_head'),
      ...(arch === 'qwen3'
        ? { [`${arch}.attention.layer_norm_rms_epsilon`]: f32(number(own, 'rms_norm_eps')) }
        : {
            [`${arch}.attention.layer_norm_epsilon`]: f32(
              number(own, 'layer_norm_eps', 'norm_eps', 'layer_norm_epsilon'),
            ),
            [`${arch}.attention.causal`]: bool(false),
          }),
      [`${arch}.pooling_type`]: u32(pooling),
      ...keys(own),
      ...tokenizer(json, (token) => u32(tokens.indexOf(token))),
      ...changes,
    };
    const kept = tensors.filter(({ name: stored }) => !stored.includes('pooler'));
    const written = kept.map((tensor): Named => {
      const plain = tensor.name.replace(/^(bert|model)\./, '');
      const [, layer, inner, kind] = /^(?:(?:encoder\.)?layers?\.(\d+)\.)?(.*)\.(weight|bias)$/.exec(plain)!;
      if (names[inner!] === undefined) throw new Error(`nothing is known of ${tensor.name}`);
      const at = `${layer === undefined ? '' : `blk.${layer}.`}${names[inner!]}.${kind}`;
      if (names[inner!] !== 'position_embd') return { ...tensor, name: at };
      const [rows, cols] = tensor.shape as [number, number];
      return { name: at, shape: [rows - behind, cols], values: tensor.values.subarray(behind * cols) };
    });
    await writeGguf(path, metadata, written);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function worst(got: readonly Float32Array[], wanted: readonly (readonly number[])[]): number {
  let most = 0;
  wanted.forEach((row, i) => {
    const largest = Math.max(...row.map(Math.abs));
    row.forEach((value, col) => {
      most = Math.max(most, Math.abs(got[i]![col]! - value) / largest);
    });
  });
  return most;
}

describe.each(Object.keys(MODELS))('%s as a GGUF file', (name) => {
  it.each(devices.filter(({ precision }) => precision === 'reference'))(
    'gives the ids and vectors of sentence-transformers, on $name',
    async (spec) => {
      const path = join(scratch, `${name}.gguf`);
      await convert(name, path);
      await using engine = await Engine.load(
        path,
        { maxRows: 4, maxBatchTokens: 128, worker: false },
        { makeDevice: async () => ({ device: await spec.create(), reason: 'a test' }) },
      );
      const fixture = embeddingFixture(name);
      expect(fixture.texts.map((text) => engine.tokenize(text))).toEqual(fixture.ids);
      expect(engine.info.model.writes).toBe(false);
      const prompts = (fixture.files['config_sentence_transformers.json'] as Json | undefined)?.prompts as
        | Record<string, string>
        | undefined;
      for (const [task, wanted] of Object.entries(fixture.expected)) {
        const options = { truncate: true, ...(task === '' ? {} : { prompt: prompts![task]! }) };
        const normalize = fixture.files['2_Normalize/config.json'] !== undefined;
        const { embeddings } = await engine.embed(fixture.texts, { ...options, normalize });
        expect(worst(embeddings, wanted)).toBeLessThan(2e-4);
      }
    },
  );
});

describe('what is refused', () => {
  const load = async (changes: Record<string, Value>): Promise<unknown> => {
    const path = join(scratch, 'changed.gguf');
    await convert('bert', path, changes);
    return await refusal(
      Engine.load(path, { device: 'cpu', worker: false, maxContext: 32 }).then(async (engine) => {
        await using own = engine;
        return await own.embed('a');
      }),
    );
  };

  it('says no pooling where the file says none, and no head where it ranks without one', async () => {
    expect(await load({ 'bert.pooling_type': u32(0) })).toMatchObject({ code: 'invalid-parameter' });
    expect(await load({ 'bert.pooling_type': u32(4) })).toMatchObject({ code: 'rerank-unsupported' });
    expect(await load({ 'bert.pooling_type': u32(9) })).toMatchObject({ code: 'model-config' });
  });
});
