/**
 * Muse Glimmer from a GGUF file: the model of the config's fields is written as one, with what llama.cpp's converter changes
 * (conversion/muse_glimmer.py), and must give transformers' logits.
 */

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ggufInput } from '../../src/models/gguf/quantize-input.js';
import { GgufSource } from '../../src/models/gguf/source.js';
import { openModel } from '../../src/models/open.js';
import { writeQuantized } from '../../src/weights/write-quantized.js';
import { f32, string, u32, type Value } from '../setup/gguf-writer.js';
import { GGUF_LAYER_NAMES, type Named, paired, writeGguf } from '../setup/published-tensors.js';
import { generatedFixture, type Json, valuesOf } from './generated.js';
import { createReferenceDevice } from './reference-device.js';
import { largestDifference, loadFolder, Runner } from './runner.js';

const { config, shapes, prompt, logits, runs } = generatedFixture('muse_glimmer');
const text = config.text_config as Json & Record<string, number>;
const layers = text.num_hidden_layers!;
const heads = { q: text.num_attention_heads!, k: text.num_key_value_heads! };
const at = (key: string): string => `muse-glimmer.${key}`;

const NAMES: Record<string, string> = {
  ...GGUF_LAYER_NAMES,
  'self_attn.gate_proj': 'attn_gate',
  post_attention_layernorm: 'post_attention_norm',
  pre_feedforward_layernorm: 'ffn_norm',
  post_feedforward_layernorm: 'post_ffw_norm',
};
const TOP: Record<string, string> = {
  'model.language_model.embed_tokens.weight': 'token_embd.weight',
  'model.language_model.norm.weight': 'output_norm.weight',
  'lm_head.weight': 'output.weight',
};

const METADATA: Record<string, Value> = {
  'general.architecture': string('muse-glimmer'),
  [at('block_count')]: u32(layers),
  [at('context_length')]: u32(text.max_position_embeddings!),
  [at('embedding_length')]: u32(text.hidden_size!),
  [at('feed_forward_length')]: u32(text.intermediate_size!),
  [at('attention.head_count')]: u32(heads.q),
  [at('attention.head_count_kv')]: u32(heads.k),
  [at('attention.key_length')]: u32(text.head_dim!),
  [at('attention.value_length')]: u32(text.head_dim!),
  [at('attention.layer_norm_rms_epsilon')]: f32(text.rms_norm_eps!),
  [at('rope.dimension_count')]: u32(text.head_dim!),
  [at('rope.freq_base')]: f32((text.rope_parameters as unknown as { rope_theta: number }).rope_theta),
  [at('final_logit_softcapping')]: f32(text.final_logit_softcapping!),
  [at('logit_scale')]: f32(text.output_multiplier!),
  [at('attention.sliding_window')]: u32(text.sliding_window!),
  [at('attention.sliding_window_pattern')]: {
    type: 'bools',
    value: (text.layer_types as unknown as string[]).map((type) => (type === 'sliding_attention' ? 1 : 0)),
  },
};

function written(name: string, shape: readonly number[], layer: number): Named {
  const full = name.replace('*', String(layer));
  let values = valuesOf(
    full,
    shape.reduce((a, b) => a * b, 1),
  );
  if (TOP[name] !== undefined) return { name: TOP[name], shape, values };
  const path = /layers\.\*\.(.*)\.weight$/.exec(name)![1]!;
  if (path.endsWith('layernorm')) values = values.map((value) => value + 1);
  const rotated = /self_attn\.([qk])_proj$/.exec(path)?.[1] as 'q' | 'k' | undefined;
  if (rotated !== undefined) values = paired({ name, shape, values }, heads[rotated]);
  return { name: `blk.${layer}.${NAMES[path]}.weight`, shape, values };
}

/** The weights that the converter makes of `qk_scale_factor`. */
function headNorms(): Named[] {
  const shape = [text.head_dim!];
  return Array.from({ length: layers }, (_, layer) => [
    {
      name: `blk.${layer}.attn_q_norm.weight`,
      shape,
      values: new Float32Array(shape[0]!).fill(text.qk_scale_factor!),
    },
    { name: `blk.${layer}.attn_k_norm.weight`, shape, values: new Float32Array(shape[0]!).fill(1) },
  ]).flat();
}

function tensors(): Named[] {
  const named = Object.entries(shapes).filter(
    ([name]) => TOP[name] !== undefined || /language_model\.layers/.test(name),
  );
  return [
    ...named.flatMap(([name, shape]) =>
      Array.from({ length: name.includes('*') ? layers : 1 }, (_, layer) => written(name, shape, layer)),
    ),
    ...headNorms(),
  ];
}

let path: string;
let scratch: string;
beforeAll(async () => {
  scratch = await mkdtemp(join(tmpdir(), 'kvant-gguf-'));
  path = join(scratch, 'muse.gguf');
});
afterAll(() => rm(scratch, { recursive: true }));

describe('muse-glimmer', () => {
  it('gives the logits of the published weights', async () => {
    await writeGguf(path, METADATA, tensors());
    await using device = createReferenceDevice();
    const model = await loadFolder(path, device);
    const largest = Math.max(...logits.map(Math.abs));
    const differs = (got: Float32Array, wanted: readonly number[]): number =>
      largestDifference(got.subarray(0, wanted.length), wanted) / largest;
    await using first = await Runner.create(device, model, { context: 32, chunk: 32 });
    expect(differs((await first.generate(prompt, 1)).logits[0]!, logits)).toBeLessThan(2e-4);
    for (const run of runs) {
      await using runner = await Runner.create(device, model, { context: 64, chunk: 16 });
      const got = await runner.generate(run.prompt, run.greedy.length);
      for (const [step, wanted] of run.logits.entries())
        expect(differs(got.logits[step]!, wanted)).toBeLessThan(2e-4);
      expect(got.tokens).toEqual(run.greedy);
    }
  });

  it('is quantised to a folder whose norms are the published ones', async () => {
    await writeGguf(path, METADATA, tensors());
    const folder = join(scratch, 'muse-8bit');
    const source = await GgufSource.open(path);
    try {
      await writeQuantized(ggufInput(source, {}), folder, { bits: 8, groupSize: 32 });
    } finally {
      await source.close();
    }
    await using device = createReferenceDevice();
    const model = await loadFolder(folder, device);
    await using runner = await Runner.create(device, model, { context: 32, chunk: 32 });
    const [got] = (await runner.generate(prompt, 1)).logits;
    const largest = Math.max(...logits.map(Math.abs));
    expect(largestDifference(got!.subarray(0, logits.length), logits)).toBeLessThan(0.05 * largest);
  });

  it.each([
    [
      'a number that differs by layer',
      'model-config-unsupported',
      (all: Named[]) => {
        all.find(({ name }) => name === 'blk.1.attn_q_norm.weight')!.values.fill(2);
        return all;
      },
    ],
    [
      'weights of keys',
      'model-config-unsupported',
      (all: Named[]) => {
        all.find(({ name }) => name === 'blk.0.attn_k_norm.weight')!.values[1] = 2;
        return all;
      },
    ],
    [
      'no such weights',
      'weights-tensor-missing',
      (all: Named[]) => all.filter(({ name }) => name !== 'blk.0.attn_q_norm.weight'),
    ],
  ] as const)('refuses %s by the name of the tensor', async (_, code, change) => {
    await writeGguf(path, METADATA, change(tensors()));
    await expect(openModel(path)).rejects.toMatchObject({
      code,
      where: expect.stringMatching(/^blk\.\d\.attn_[qk]_norm/),
    });
  });
});
