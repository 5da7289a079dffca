/**
 * Families from GGUF files: the fixture checkpoints are written as GGUF, with what llama.cpp's converters change, and must give
 * the logits that were computed elsewhere.
 */

import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createCpuDevice } from '../../src/device/cpu/index.js';
import { bool, f32, string, u32, type Value } from '../setup/gguf-writer.js';
import { type Conversion, convert, type Fields, rope } from './gguf-convert.js';
import { createReferenceDevice } from './reference-device.js';
import { expectPublished, largestDifference, loadFolder, MODEL_FIXTURES, Runner } from './runner.js';

/** Norms behind attention and the MLP alone. */
const BEHIND = {
  post_attention_layernorm: 'post_attention_norm',
  post_feedforward_layernorm: 'post_ffw_norm',
};

const CASES: readonly Conversion[] = [
  { fixture: 'llama-untied', arch: 'llama', paired: true },
  { fixture: 'llama-tied-f16', arch: 'llama', paired: true },
  // InternLM 2, whose converter takes its one matrix of q, k and v apart.
  { fixture: 'llama-untied', arch: 'internlm2', paired: true },
  { fixture: 'llama-untied', arch: 'xverse', paired: true },
  { fixture: 'llama-bias', arch: 'llama', paired: true },
  { fixture: 'llama-llama3', arch: 'llama', paired: true },
  {
    fixture: 'llama-linear',
    arch: 'llama',
    paired: true,
    more: (config, at) => ({
      [at('rope.scaling.type')]: string('linear'),
      [at('rope.scaling.factor')]: f32(rope(config).factor as number),
    }),
  },
  { fixture: 'mistral-head-dim', arch: 'llama', paired: true },
  { fixture: 'qwen2-bias', arch: 'qwen2' },
  { fixture: 'qwen3-tied', arch: 'qwen3' },
  {
    fixture: 'qwen3-untied-yarn',
    arch: 'qwen3',
    more: (config, at) => ({
      [at('rope.scaling.type')]: string('yarn'),
      [at('rope.scaling.factor')]: f32(rope(config).factor as number),
      [at('rope.scaling.original_context_length')]: u32(
        rope(config).original_max_position_embeddings as number,
      ),
    }),
  },
  {
    fixture: 'granite',
    arch: 'granite',
    paired: true,
    more: (config, at) => ({
      [at('embedding_scale')]: f32(config.embedding_multiplier as number),
      [at('residual_scale')]: f32(config.residual_multiplier as number),
      [at('logit_scale')]: f32(config.logits_scaling as number),
      [at('attention.scale')]: f32(config.attention_multiplier as number),
    }),
  },
  {
    fixture: 'smollm3',
    arch: 'smollm3',
    paired: true,
    override: { no_rope_layers: null, no_rope_layer_interval: 4 },
  },
  { fixture: 'phi3', arch: 'phi3', more: slides },
  { fixture: 'phi3', arch: 'phi3', apart: true, more: slides },
  {
    fixture: 'gemma2',
    arch: 'gemma2',
    plusOne: true,
    more: (config, at) => ({
      ...slides(config, at),
      ...scale(config, at),
      [at('attn_logit_softcapping')]: f32(config.attn_logit_softcapping as number),
      [at('final_logit_softcapping')]: f32(config.final_logit_softcapping as number),
    }),
  },
  {
    fixture: 'gemma3-pattern',
    arch: 'gemma3',
    plusOne: true,
    more: (config, at) => ({
      ...slides(config, at),
      ...scale(config, at),
      [at('attention.sliding_window_pattern')]: u32(config.sliding_window_pattern as number),
      [at('rope.scaling.type')]: string('linear'),
      [at('rope.scaling.factor')]: f32(rope(config).factor as number),
    }),
  },
  {
    fixture: 'arcee',
    arch: 'arcee',
    paired: true,
    more: yarn,
  },
  {
    fixture: 'apertus',
    arch: 'apertus',
    names: { attention_layernorm: 'attn_norm', feedforward_layernorm: 'ffn_norm' },
  },
  {
    fixture: 'seed-oss',
    arch: 'seed_oss',
    names: { post_attention_layernorm: 'post_attention_norm' },
  },
  { fixture: 'exaone4', arch: 'exaone4', names: BEHIND, more: pattern },
  { fixture: 'olmo2', arch: 'olmo2', names: BEHIND },
  {
    fixture: 'olmo3',
    arch: 'olmo2',
    names: BEHIND,
    more: (config, at) => {
      const { full_attention } = rope(config) as Record<string, Fields>;
      const theta = { [at('rope.freq_base')]: f32(full_attention!.rope_theta as number) };
      return { ...pattern(config, at), ...theta, ...yarn(config, at, full_attention) };
    },
  },
  {
    fixture: 'cohere',
    arch: 'command-r',
    layerNormEps: 'layer_norm_eps',
    more: (config, at) => ({ [at('logit_scale')]: f32(config.logit_scale as number) }),
  },
  {
    fixture: 'cohere2',
    arch: 'cohere2',
    layerNormEps: 'layer_norm_eps',
    more: (config, at) => ({
      ...pattern(config, at),
      [at('logit_scale')]: f32(config.logit_scale as number),
    }),
  },
  {
    fixture: 'glm4',
    arch: 'glm4',
    names: {
      post_self_attn_layernorm: 'post_attention_norm',
      post_mlp_layernorm: 'post_ffw_norm',
    },
    more: (config, at) => dims(rope(config).partial_rotary_factor as number)(config, at),
  },
  { fixture: 'ernie4_5', arch: 'ernie4_5' },
  {
    fixture: 'hunyuan',
    arch: 'hunyuan-dense',
    names: { 'self_attn.query_layernorm': 'attn_q_norm', 'self_attn.key_layernorm': 'attn_k_norm' },
    // The grown base is what is written.
    more: (config, at) => {
      const { rope_theta, alpha } = { ...config, ...rope(config) } as Record<string, number>;
      const wide = config.head_dim as number;
      return { [at('rope.freq_base')]: f32(rope_theta! * alpha! ** (wide / (wide - 2))) };
    },
  },
  {
    fixture: 'nemotron',
    arch: 'nemotron',
    plusOne: true,
    layerNormEps: 'norm_eps',
    more: (config, at) =>
      dims((rope(config).partial_rotary_factor ?? config.partial_rotary_factor) as number)(config, at),
  },
  {
    fixture: 'ministral3',
    arch: 'mistral3',
    paired: true,
    more: (config, at) => ({
      ...yarn(config, at),
      ...slides(config, at),
      [at('attention.temperature_scale')]: f32(rope(config).llama_4_scaling_beta as number),
      [at('rope.scaling.yarn_log_multiplier')]: f32(rope(config).mscale_all_dim as number),
    }),
  },
  {
    fixture: 'qwen2-moe',
    arch: 'qwen2moe',
    more: (config, at) => ({
      ...mixture('num_experts', 'moe_intermediate_size')(config, at),
      [at('expert_shared_feed_forward_length')]: u32(config.shared_expert_intermediate_size as number),
    }),
  },
  {
    fixture: 'qwen3-moe',
    arch: 'qwen3moe',
    more: mixture('num_local_experts', 'moe_intermediate_size'),
  },
  {
    fixture: 'mixtral',
    arch: 'llama',
    paired: true,
    more: (config, at) => ({
      ...mixture('num_local_experts', 'intermediate_size')(config, at),
      ...slides(config, at),
    }),
  },
  {
    fixture: 'glm4-moe',
    arch: 'glm4moe',
    names: { post_attention_layernorm: 'post_attention_norm' },
    more: (config, at) => ({
      ...mixture('n_routed_experts', 'moe_intermediate_size')(config, at),
      ...dims(rope(config).partial_rotary_factor as number)(config, at),
      [at('expert_shared_count')]: u32(config.n_shared_experts as number),
      [at('leading_dense_block_count')]: u32(config.first_k_dense_replace as number),
      [at('expert_group_count')]: u32(config.n_group as number),
      [at('expert_group_used_count')]: u32(config.topk_group as number),
      [at('expert_weights_scale')]: f32(config.routed_scaling_factor as number),
      [at('expert_weights_norm')]: bool(config.norm_topk_prob as boolean),
    }),
  },
  {
    fixture: 'minimax-m2',
    arch: 'minimax-m2',
    more: (config, at) => ({
      ...mixture('num_local_experts', 'intermediate_size')(config, at),
      ...dims(rope(config).partial_rotary_factor as number)(config, at),
    }),
  },
  {
    fixture: 'gpt-oss',
    arch: 'gpt-oss',
    names: { post_attention_layernorm: 'post_attention_norm' },
    // A file has no word for the limit of the activation.
    override: { swiglu_limit: 7 },
    more: (config, at) => ({
      ...mixture('num_local_experts', 'intermediate_size')(config, at),
      ...slides(config, at),
      ...yarn(config, at),
    }),
  },
  // As Ollama's converters have them: what they leave out is taken from the tensors, or is as published.
  {
    fixture: 'gpt-oss',
    arch: 'gptoss',
    names: { post_attention_layernorm: 'ffn_norm' },
    override: { swiglu_limit: 7 },
    stored: (name) =>
      name.replace('.attn_output.', '.attn_out.').replace('.attn_sinks.weight', '.attn_sinks'),
    more: (config, at) => ({
      ...slides(config, at),
      [at('expert_count')]: u32(config.num_local_experts as number),
      [at('expert_used_count')]: u32(config.num_experts_per_tok as number),
      // Its type is left out.
      ...Object.fromEntries(Object.entries(yarn(config, at)).filter(([key]) => !key.endsWith('.type'))),
    }),
  },
  {
    fixture: 'olmo3',
    arch: 'olmo3',
    names: BEHIND,
    more: (config, at) => {
      const { full_attention } = rope(config) as Record<string, Fields>;
      const theta = { [at('rope.freq_base')]: f32(full_attention!.rope_theta as number) };
      return { ...pattern(config, at), ...theta, ...yarn(config, at, full_attention) };
    },
  },
  {
    fixture: 'ministral3',
    arch: 'mistral3',
    paired: true,
    more: (config, at) => ({
      ...slides(config, at),
      [at('rope.scaling.type')]: string('yarn'),
      [at('rope.scaling.factor')]: f32(rope(config).factor as number),
      [at('rope.scaling.original_context_length')]: u32(
        rope(config).original_max_position_embeddings as number,
      ),
      [at('rope.scaling.beta_fast')]: f32((rope(config).beta_fast as number | undefined) ?? 32),
      [at('rope.scaling.beta_slow')]: f32((rope(config).beta_slow as number | undefined) ?? 1),
      [at('rope.scaling.mscale_all_dim')]: f32(rope(config).mscale_all_dim as number),
      [at('rope.scaling_beta')]: f32(rope(config).llama_4_scaling_beta as number),
    }),
  },
];

/** How many experts there are and their width, by the names that a config has for them. */
function mixture(count: string, width: string): NonNullable<Conversion['more']> {
  return (config, at) => ({
    [at('expert_count')]: u32(config[count] as number),
    [at('expert_used_count')]: u32(config.num_experts_per_tok as number),
    [at('expert_feed_forward_length')]: u32(config[width] as number),
  });
}

const dims =
  (part: number) =>
  (config: Fields, at: (key: string) => string): Record<string, Value> => ({
    [at('rope.dimension_count')]: u32(part * (config.head_dim as number)),
  });

function yarn(
  config: Fields,
  at: (key: string) => string,
  section: Fields = rope(config),
): Record<string, Value> {
  return {
    [at('rope.scaling.type')]: string('yarn'),
    [at('rope.scaling.factor')]: f32(section.factor as number),
    [at('rope.scaling.original_context_length')]: u32(section.original_max_position_embeddings as number),
    [at('rope.scaling.yarn_beta_fast')]: f32((section.beta_fast as number | undefined) ?? 32),
    [at('rope.scaling.yarn_beta_slow')]: f32((section.beta_slow as number | undefined) ?? 1),
  };
}

function pattern(config: Fields, at: (key: string) => string): Record<string, Value> {
  const types = config.layer_types as readonly string[];
  return {
    ...slides(config, at),
    [at('attention.sliding_window_pattern')]: {
      type: 'bools',
      value: types.map((type) => (type === 'sliding_attention' ? 1 : 0)),
    },
  };
}

function scale(config: Fields, at: (key: string) => string): Record<string, Value> {
  return { [at('attention.scale')]: f32((config.query_pre_attn_scalar as number) ** -0.5) };
}

function slides(config: Fields, at: (key: string) => string): Record<string, Value> {
  return config.sliding_window == null
    ? {}
    : { [at('attention.sliding_window')]: u32(config.sliding_window as number) };
}

/** The fixture with other words in its config. */
async function overridden({ fixture, override }: Conversion): Promise<string> {
  const folder = join(scratch, `${fixture}-other`);
  await cp(join(MODEL_FIXTURES, fixture), folder, { recursive: true });
  const path = join(folder, 'config.json');
  const config = JSON.parse(await readFile(path, 'utf8')) as Fields;
  await writeFile(path, JSON.stringify({ ...config, ...override }));
  return folder;
}

let scratch: string;
beforeAll(async () => {
  scratch = await mkdtemp(join(tmpdir(), 'kvant-gguf-'));
});
afterAll(() => rm(scratch, { recursive: true }));

/** Of each kind of what lies between the file and the family: rows that are turned, biases, norms, experts. */
const FUSED = ['llama-bias', 'qwen3-tied', 'gemma2', 'glm4', 'mixtral', 'gpt-oss'];

describe('families from GGUF files, in float64', () => {
  it.each([
    ...CASES,
    ...CASES.filter(
      ({ fixture, arch }) => FUSED.includes(fixture) && arch !== 'internlm2' && arch !== 'gptoss',
    ).map((one) => ({
      ...one,
      fused: true,
    })),
  ])('$fixture as $arch', async (conversion) => {
    const path = join(scratch, `${conversion.fixture}.gguf`);
    await convert(conversion, path);
    await using device = createReferenceDevice();
    const model = await loadFolder(path, device);
    if (conversion.override !== undefined) {
      const other = await loadFolder(await overridden(conversion), device);
      const prompt = Array.from({ length: 40 }, (_, i) => (i * 37) % 60);
      const [one, two] = [model, other].map((loaded) =>
        Runner.create(device, loaded, { context: 128, chunk: 48 }),
      );
      await using fromFile = await one!;
      await using fromFolder = await two!;
      const wanted = (await fromFolder.generate(prompt, 4)).logits;
      const got = (await fromFile.generate(prompt, 4)).logits;
      for (const [i, logits] of got.entries())
        expect(largestDifference(logits, [...wanted[i]!])).toBeLessThan(1e-6);
      return;
    }
    await expectPublished(device, model, conversion.fixture);
  });
});

it.each(['llama-bias', 'gemma2'])(
  '%s has the same bits where q, k and v are one, on the CPU',
  async (fixture) => {
    const conversion = CASES.find((one) => one.fixture === fixture)!;
    const prompt = Array.from({ length: 40 }, (_, i) => (i * 37) % 60);
    await using device = await createCpuDevice({ threads: 2 });
    const [one, other] = await Promise.all(
      [false, true].map(async (fused) => {
        const path = join(scratch, `${fixture}-${fused}.gguf`);
        await convert({ ...conversion, fused }, path);
        await using runner = await Runner.create(device, await loadFolder(path, device), {
          context: 128,
          chunk: 48,
        });
        return (await runner.generate(prompt, 4)).logits;
      }),
    );
    expect(one).toEqual(other);
  },
);
