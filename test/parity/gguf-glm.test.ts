/**
 * GGUF files of GLM-4 and of GLM-4-0414: the fixture checkpoints are written with the names and the changes of llama.cpp's converters
 * (conversion/chatglm.py, conversion/glm.py), and must give the logits of the published weights.
 */

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import { openModel } from '../../src/models/open.js';
import { tokensOf } from '../engine/gguf-texts.js';
import { writeProjector } from '../engine/gguf-towers.js';
import { casesOf, checkAnswer, readJson, ROOT as VISION_ROOT } from '../engine/vision-fixtures.js';
import { f32, i32s, string, strings, u32, type Value } from '../setup/gguf-writer.js';
import {
  type Fields,
  GGUF_LAYER_NAMES,
  halved,
  type Named,
  published,
  writeGguf,
} from '../setup/published-tensors.js';
import { createReferenceDevice } from './reference-device.js';
import { expectedCases, largestDifference, loadFolder, MODEL_FIXTURES, Runner } from './runner.js';

const NAMES: Record<string, string> = {
  ...GGUF_LAYER_NAMES,
  'mlp.gate_up_proj': 'ffn_up',
  post_self_attn_layernorm: 'post_attention_norm',
  post_mlp_layernorm: 'post_ffw_norm',
  'model.embed_tokens': 'token_embd',
  'model.norm': 'output_norm',
  lm_head: 'output',
};

function renamed(tensor: Named): Named {
  const [, layer, path, kind] = /^(?:model\.layers\.(\d+)\.)?(.*)\.(weight|bias)$/.exec(tensor.name)!;
  return { ...tensor, name: `${layer === undefined ? '' : `blk.${layer}.`}${NAMES[path!]}.${kind}` };
}

/** As the publisher's own checkpoints of GLM-4 have q, k and v. */
function joined(tensors: readonly Named[]): Named[] {
  const rows = new Map<string, Named>();
  const others: Named[] = [];
  const order = ({ name }: Named): number => 'qkv'.indexOf(/attn_([qkv])\./.exec(name)?.[1] ?? 'q');
  for (const tensor of tensors.toSorted((one, other) => order(one) - order(other))) {
    const [, at, kind] = /^(blk\.\d+\.)attn_[qkv]\.(weight|bias)$/.exec(tensor.name) ?? [];
    if (at === undefined) {
      others.push(tensor);
      continue;
    }
    const name = `${at}attn_qkv.${kind}`;
    const before = rows.get(name);
    rows.set(name, {
      name,
      shape: [(before?.shape[0] ?? 0) + tensor.shape[0]!, ...tensor.shape.slice(1)],
      values: Float32Array.from([...(before?.values ?? []), ...tensor.values]),
    });
  }
  return [...others, ...rows.values()];
}

let scratch: string;
beforeAll(async () => {
  scratch = await mkdtemp(join(tmpdir(), 'kvant-gguf-glm-'));
});
afterAll(() => rm(scratch, { recursive: true }));

async function metadataOf(arch: string, config: Fields, rotary: number): Promise<Record<string, Value>> {
  const at = (key: string): string => `${arch}.${key}`;
  return {
    'general.architecture': string(arch),
    [at('block_count')]: u32(config.num_hidden_layers!),
    [at('context_length')]: u32(config.max_position_embeddings!),
    [at('embedding_length')]: u32(config.hidden_size!),
    [at('feed_forward_length')]: u32(config.intermediate_size!),
    [at('attention.head_count')]: u32(config.num_attention_heads!),
    [at('attention.head_count_kv')]: u32(config.num_key_value_heads!),
    [at('attention.layer_norm_rms_epsilon')]: f32(config.rms_norm_eps!),
    [at('attention.key_length')]: u32(config.head_dim!),
    [at('rope.dimension_count')]: u32(rotary),
    [at('rope.freq_base')]: f32(10_000),
  };
}

async function equals(path: string, fixture: string): Promise<void> {
  await using device = createReferenceDevice();
  const model = await loadFolder(path, device);
  for (const { prompt, logits, greedy } of expectedCases(fixture)) {
    await using runner = await Runner.create(device, model, { context: 128, chunk: 48 });
    const result = await runner.generate(prompt, greedy.length);
    expect(largestDifference(result.logits[0]!, logits)).toBeLessThan(2e-4);
  }
}

describe('GLM from GGUF files', () => {
  it.each([false, true])('GLM-4 as chatglm, q, k and v in one tensor: %s', async (one) => {
    const { config, tensors } = await published(join(MODEL_FIXTURES, 'glm'));
    const named = tensors.map(renamed);
    const path = join(scratch, `glm-${one}.gguf`);
    await writeGguf(
      path,
      await metadataOf('chatglm', config, config.head_dim! / 2),
      one ? joined(named) : named,
    );
    await equals(path, 'glm');
  });

  it('GLM-4-0414 whose positions have axes, as GLM-4.1V: q and k have their pairs in halves', async () => {
    const { config, tensors } = await published(join(MODEL_FIXTURES, 'glm4'));
    const rotary = config.head_dim! / 2;
    const own = tensors.filter(({ name }) => !name.startsWith('lm_head')).map(renamed);
    const turned = own.map((tensor) =>
      /attn_[qk]\./.test(tensor.name) ? halved(tensor, config.head_dim!, rotary) : tensor,
    );
    const metadata = {
      ...(await metadataOf('glm4', config, rotary)),
      'glm4.rope.dimension_sections': i32s([4, 2, 2, 0]),
    };
    const path = join(scratch, 'glm4.gguf');
    await writeGguf(path, metadata, turned);
    await equals(path, 'glm4');
  });

  it('GLM-4.1V with its tower in an mmproj file answers pictures as the reference', async () => {
    const folder = join(VISION_ROOT, 'glm4v');
    const { tensors } = await published(folder);
    const { text_config } = readJson(folder, 'config.json') as { text_config: Record<string, never> };
    const config = text_config as unknown as Fields;
    const rope = text_config.rope_parameters as unknown as { mrope_section: number[]; rope_theta: number };
    const rotary = config.head_dim! / 2;
    const own = tensors
      .filter(({ name }) => name.startsWith('model.language_model.'))
      .map((tensor) => renamed({ ...tensor, name: tensor.name.replace('language_model.', '') }))
      .map((tensor) => (/attn_[qk]\./.test(tensor.name) ? halved(tensor, config.head_dim!, rotary) : tensor));
    const path = join(scratch, 'glm4v.gguf');
    const metadata = {
      ...(await metadataOf('glm4', config, rotary)),
      'glm4.rope.freq_base': f32(rope.rope_theta),
      'glm4.rope.dimension_sections': i32s([...rope.mrope_section, 0]),
      'tokenizer.ggml.model': string('gpt2'),
      'tokenizer.ggml.tokens': strings(tokensOf(folder)),
      'tokenizer.ggml.eos_token_id': u32(config.eos_token_id!),
    };
    await writeGguf(path, metadata, own);
    const mmproj = join(scratch, 'glm4v-mmproj.gguf');
    const { size } = readJson(folder, 'preprocessor_config.json') as { size: Record<string, number> };
    await writeProjector('glm4v', folder, mmproj, {
      'clip.vision.image_min_pixels': u32(size.shortest_edge!),
      'clip.vision.image_max_pixels': u32(size.longest_edge!),
    });
    const options = { device: 'cpu', worker: false, threads: 2, precision: 'reference' } as const;
    await using engine = await Engine.load(path, { ...options, mmproj, tokenizer: folder });
    for (const one of casesOf('glm4v')) await checkAnswer(engine, one);
  });

  it('has heads of the hidden size over their number where no key says it, as most files of chatglm and phi3', async () => {
    const { config, tensors } = await published(join(MODEL_FIXTURES, 'glm'));
    const { 'chatglm.attention.key_length': _, ...metadata } = await metadataOf('chatglm', config, 8);
    const path = join(scratch, 'plain.gguf');
    await writeGguf(path, metadata, tensors.map(renamed));
    await using model = await openModel(path);
    expect(model.definition.facts.headDim).toBe(config.hidden_size! / config.num_attention_heads!);
  });
});
