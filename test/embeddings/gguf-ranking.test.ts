/**
 * Encoders that rank, and EmbeddingGemma, as GGUF files: the fixtures are written with the names and the changes of llama.cpp's converters
 * (conversion/bert.py, conversion/gemma.py), and must give what transformers' classifiers and sentence-transformers give.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import { devices } from '../devices/devices.js';
import { refusal } from '../engine/engine-harness.js';
import { readPacked } from '../fixtures/read-packed.js';
import type { Json, Shapes } from '../parity/generated.js';
import { bool, f32, string, u32, type Value } from '../setup/gguf-writer.js';
import { GGUF_LAYER_NAMES, type Named, published, writeGguf } from '../setup/published-tensors.js';
import { embeddingFixture, writeEmbedder } from './fixtures.js';
import {
  BERT_NAMES,
  byteLevel,
  MODERN_NAMES,
  modernEnds,
  scored,
  type TokenizerJson,
  vocabulary,
} from './gguf-names.js';

interface RankingFixture {
  readonly files: Readonly<Record<string, Json>>;
  readonly query: string;
  readonly texts: readonly string[];
  readonly variants: readonly {
    readonly config: Json;
    readonly weights: Readonly<Record<string, Shapes>>;
    readonly logits: readonly number[];
  }[];
}

const FOLDER = fileURLToPath(new URL('../fixtures/rerankers/', import.meta.url));
const CLS: Record<string, string> = {
  'classifier.dense': 'cls',
  'classifier.out_proj': 'cls.output',
  'head.dense': 'cls',
  'head.norm': 'cls.norm',
  classifier: 'cls.output',
};
const MODELS = {
  'xlm-roberta': { arch: 'bert', names: BERT_NAMES, behind: 2, tokenizer: scored },
  modernbert: {
    arch: 'modern-bert',
    names: MODERN_NAMES,
    behind: 0,
    tokenizer: byteLevel('modern-bert', modernEnds),
  },
} as const;
type Name = keyof typeof MODELS;

let scratch: string;
beforeAll(() => {
  scratch = mkdtempSync(join(tmpdir(), 'kvant-gguf-ranking-'));
});
afterAll(() => rmSync(scratch, { recursive: true }));

const fixtureOf = (name: Name): RankingFixture =>
  readPacked(join(FOLDER, `${name}.json.gz`)) as RankingFixture;

/** Tensors of a layer, and others, by the file's names. */
function renamed(names: Readonly<Record<string, string>>, tensor: Named): Named {
  const plain = tensor.name.replace(/^(roberta|model)\./, '');
  const [, layer, inner, kind] = /^(?:(?:encoder\.)?layers?\.(\d+)\.)?(.*)\.(weight|bias)$/.exec(plain)!;
  const found = names[inner!];
  if (found === undefined) throw new Error(`nothing is known of ${tensor.name}`);
  return { ...tensor, name: `${layer === undefined ? '' : `blk.${layer}.`}${found}.${kind}` };
}

async function convert(
  name: Name,
  path: string,
  change: (tensors: Named[]) => Named[] = (same) => same,
): Promise<void> {
  const { arch, names, behind, tokenizer } = MODELS[name];
  const { files, variants } = fixtureOf(name);
  const [{ config: stated, weights }] = variants as [RankingFixture['variants'][0]];
  const folder = writeEmbedder({
    files: { ...files, 'config.json': stated },
    weights,
    texts: [],
    ids: [],
    expected: {},
  });
  try {
    const { config, tensors } = await published(folder);
    const json = files['tokenizer.json'] as unknown as TokenizerJson;
    const { tokens } = vocabulary(json);
    const at = (key: string): string => `${arch}.${key}`;
    const metadata: Record<string, Value> = {
      'general.architecture': string(arch),
      [at('block_count')]: u32(config.num_hidden_layers!),
      [at('context_length')]: u32(config.max_position_embeddings! - behind),
      [at('embedding_length')]: u32(config.hidden_size!),
      [at('feed_forward_length')]: u32(config.intermediate_size!),
      [at('attention.head_count')]: u32(config.num_attention_heads!),
      [at('attention.layer_norm_epsilon')]: f32(config.layer_norm_eps ?? config.norm_eps!),
      [at('attention.causal')]: bool(false),
      [at('pooling_type')]: u32(4),
      ...(name === 'modernbert'
        ? {
            [at('attention.sliding_window')]: u32(config.local_attention!),
            [at('attention.sliding_window_pattern')]: u32(3),
            [at('rope.freq_base')]: f32(160_000),
          }
        : {}),
      ...tokenizer(json, (token) => u32(tokens.indexOf(token))),
    };
    const written = tensors
      .filter(({ name: stored }) => !stored.includes('pooler'))
      .map((tensor) => renamed({ ...names, ...CLS }, tensor))
      .map((tensor) => {
        if (tensor.name !== 'position_embd.weight') return tensor;
        const [rows, cols] = tensor.shape as [number, number];
        return { ...tensor, shape: [rows - behind, cols], values: tensor.values.subarray(behind * cols) };
      });
    await writeGguf(path, metadata, change(written));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const logit = (score: number): number => Math.log(score / (1 - score));
const reference = devices.filter(({ precision }) => precision === 'reference');

describe.each(Object.keys(MODELS) as Name[])('%s that ranks', (name) => {
  it.each(reference)('gives the logits of the classifier, on $name', async (spec) => {
    const path = join(scratch, `${name}.gguf`);
    // A row of one number may lose its dimension.
    await convert(name, path, (tensors) =>
      tensors.map((one) => (one.name === 'cls.output.weight' ? { ...one, shape: [one.shape[1]!] } : one)),
    );
    await using engine = await Engine.load(
      path,
      { maxRows: 4, maxBatchTokens: 128, worker: false },
      { makeDevice: async () => ({ device: await spec.create(), reason: 'a test' }) },
    );
    const { query, texts, variants } = fixtureOf(name);
    const { scores } = await engine.rerank(query, texts);
    scores.forEach((score, i) => {
      expect(Math.abs(logit(score) - variants[0]!.logits[i]!)).toBeLessThan(1e-4);
    });
  });
});

it.each<[string, (tensors: Named[]) => Named[], RegExp]>([
  ['without its first layer', (tensors) => tensors.filter(({ name }) => name !== 'cls.weight'), /not whole/],
  [
    'of two classes',
    (tensors) =>
      tensors.map((one) =>
        one.name.startsWith('cls.output')
          ? {
              ...one,
              shape: [2, ...one.shape.slice(1)],
              values: Float32Array.from([...one.values, ...one.values]),
            }
          : one,
      ),
    /2 classes/,
  ],
])('a head %s is refused', async (_, change, message) => {
  const path = join(scratch, 'odd.gguf');
  await convert('xlm-roberta', path, change);
  const refused = await refusal(Engine.load(path, { device: 'cpu', worker: false, maxContext: 32 }));
  expect(refused).toMatchObject({
    code: 'rerank-unsupported',
    message: expect.stringMatching(message) as string,
  });
});

it.each(reference)('EmbeddingGemma with its two matrices gives the vectors, on $name', async (spec) => {
  const fixture = embeddingFixture('embedding-gemma');
  const folder = writeEmbedder(fixture);
  const path = join(scratch, 'gemma.gguf');
  const { config, tensors } = await published(folder);
  const at = (key: string): string => `gemma-embedding.${key}`;
  const names = {
    ...GGUF_LAYER_NAMES,
    post_attention_layernorm: 'post_attention_norm',
    pre_feedforward_layernorm: 'ffn_norm',
    post_feedforward_layernorm: 'post_ffw_norm',
    embed_tokens: 'token_embd',
    norm: 'output_norm',
  };
  const plusOne = (tensor: Named): Named =>
    tensor.name.endsWith('norm.weight')
      ? { ...tensor, values: tensor.values.map((value) => value + 1) }
      : tensor;
  const dense: Named[] = [];
  for (const n of [2, 3]) {
    const [linear] = (await published(join(folder, `${n}_Dense`)).catch(() => ({ tensors: [] as Named[] })))
      .tensors;
    dense.push({ ...linear!, name: `dense_${n}.weight` });
  }
  const metadata: Record<string, Value> = {
    'general.architecture': string('gemma-embedding'),
    [at('block_count')]: u32(config.num_hidden_layers!),
    [at('context_length')]: u32(config.max_position_embeddings!),
    [at('embedding_length')]: u32(config.hidden_size!),
    [at('feed_forward_length')]: u32(config.intermediate_size!),
    [at('attention.head_count')]: u32(config.num_attention_heads!),
    [at('attention.head_count_kv')]: u32(config.num_key_value_heads!),
    [at('attention.key_length')]: u32(config.head_dim!),
    [at('attention.layer_norm_rms_epsilon')]: f32(config.rms_norm_eps!),
    [at('attention.sliding_window')]: u32(config.sliding_window!),
    [at('attention.sliding_window_pattern')]: u32(3),
    [at('rope.freq_base')]: f32(1e6),
    [at('pooling_type')]: u32(1),
  };
  await writeGguf(path, metadata, [...tensors.map((one) => plusOne(renamed(names, one))), ...dense]);
  await using engine = await Engine.load(
    path,
    { maxRows: 4, maxBatchTokens: 128, worker: false, tokenizer: folder },
    { makeDevice: async () => ({ device: await spec.create(), reason: 'a test' }) },
  );
  const { embeddings } = await engine.embed(fixture.texts, { truncate: true });
  fixture.expected['']!.forEach((wanted, i) => {
    wanted.forEach((value, col) => {
      expect(Math.abs(embeddings[i]![col]! - value)).toBeLessThan(2e-4);
    });
  });
  rmSync(folder, { recursive: true });
});
