/**
 * Every family against transformers, and every quantised layout against mlx: tiny checkpoints with random weights,
 * whose logits and greedy tokens were computed elsewhere (scripts/fixtures).
 */

import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseModelConfig } from '../../src/models/families.js';
import { loadModel } from '../../src/models/load.js';
import { renamed } from '../../src/models/tensor-names.js';
import { Checkpoint } from '../../src/weights/checkpoint.js';
import { createReferenceDevice } from './reference-device.js';
import {
  casesByModel,
  decidedTokens,
  type ExpectedCase,
  expectedCases,
  largestDifference,
  MODEL_FIXTURES,
  Runner,
} from './runner.js';

const names = readdirSync(MODEL_FIXTURES, { withFileTypes: true })
  .filter((entry) => entry.isDirectory())
  .map((entry) => entry.name);

describe('the graphs of the families, in float64', () => {
  it.each(names)('%s', async (name) => {
    await using device = createReferenceDevice();
    for (const { model, context, cases } of await casesByModel(name, device))
      for (const { prompt, logits, greedy, margins } of cases) {
        await using runner = await Runner.create(device, model, { context, chunk: 48 });
        const result = await runner.generate(prompt, greedy.length);
        const difference = largestDifference(result.logits[0]!, logits);
        expect(difference).toBeLessThan(2e-4);
        const decided = decidedTokens(greedy, margins, 2e-4);
        expect(result.tokens.slice(0, decided.length)).toEqual(decided);
      }
  });
});

type Fields = Record<string, unknown>;
type Misreading = (config: Fields) => Fields;

const SCALED = [
  'llama-llama3',
  'llama-llama3-old',
  'llama-yarn',
  'llama-yarn-mscale',
  'llama-linear',
  'qwen3-untied-yarn',
];

/** The object that says how positions are rotated, and what it is called in this config. */
function rotation(config: Fields): readonly [string, Fields] {
  const name = config.rope_scaling == null ? 'rope_parameters' : 'rope_scaling';
  return [name, config[name] as Fields];
}

const unscaled: Misreading = (config) => {
  const [name, { rope_theta = config.rope_theta }] = rotation(config);
  return {
    ...config,
    max_position_embeddings: 512,
    rope_theta,
    [name]: { rope_type: 'default', rope_theta },
  };
};

const rotating =
  (change: Fields): Misreading =>
  (config) => {
    const [name, fields] = rotation(config);
    return { ...config, [name]: { ...fields, ...change } };
  };

const stating =
  (change: Fields): Misreading =>
  (config) => ({ ...config, ...change });

/** What a wrong reading of the config would do: each must be seen by the fixture that is there for it. */
const MISREADINGS: readonly (readonly [string, string, Misreading])[] = [
  ...SCALED.map((name) => [name, 'no scaling', unscaled] as const),
  ['llama-yarn', 'no attention factor', rotating({ attention_factor: 1 })],
  ['llama-yarn-mscale', 'rounded ramp', rotating({ truncate: true })],
  ['mistral-window', 'no window', stating({ sliding_window: null })],
  ['mistral-window', 'a window of 65', stating({ sliding_window: 65 })],
  ['qwen2-tied-sharded', 'all layers slide', stating({ layer_types: null, max_window_layers: 0 })],
  ['llama-odd-f32-sharded', 'silu', stating({ hidden_act: 'silu' })],
  ['qwen3-tied', 'another epsilon', stating({ rms_norm_eps: 1e-2 })],
  [
    'gemma3-list',
    'one rotation for all layers',
    rotating({ sliding_attention: { rope_type: 'linear', rope_theta: 1e6, factor: 8 } }),
  ],
  ['gemma2', 'no cap on the scores', stating({ attn_logit_softcapping: null })],
  ['gemma2', 'no cap on the logits', stating({ final_logit_softcapping: null })],
  ['gemma2', 'the caps of the defaults', ({ attn_logit_softcapping: _, ...config }) => config],
  ['gemma2', 'scores scaled by head_dim', stating({ query_pre_attn_scalar: 32 })],
  ['gemma2', 'no layer slides', stating({ sliding_window: 500 })],
  ['granite', 'embedding as it is', stating({ embedding_multiplier: 1 })],
  ['granite', 'scores scaled by head_dim', stating({ attention_multiplier: 0.25 })],
  ['granite', 'branches added whole', stating({ residual_multiplier: 1 })],
  ['granite', 'logits as they are', stating({ logits_scaling: 1 })],
  ['smollm3', 'all layers rotate', stating({ no_rope_layers: [1, 1, 1] })],
  ['smollm3', 'rotation where there is none', stating({ no_rope_layers: [0, 1, 0] })],
  ['phi3', 'no window', stating({ sliding_window: null })],
  ['exaone4', 'no window, and rotation in all layers', stating({ sliding_window: 500, layer_types: null })],
  [
    'exaone4',
    'rotation where there is none',
    stating({ sliding_window: null, sliding_window_pattern: null, layer_types: null }),
  ],
  ['phi3-longrope', 'whole heads', stating({ partial_rotary_factor: null, rope_scaling: null })],
  ['phi3-longrope', 'factors of short contexts', stating({ original_max_position_embeddings: 512 })],
  ['phi3-longrope', 'no attention factor', rotating({ attention_factor: 1 })],
  ['glm4', 'a quarter of each head', rotating({ partial_rotary_factor: 0.25 })],
  ['glm', 'whole heads', stating({ partial_rotary_factor: 1 })],
  ['hunyuan', 'another alpha', rotating({ alpha: 50 })],
  ['hunyuan', 'no alpha', rotating({ alpha: null })],
  ['ministral3', 'queries that stay', rotating({ llama_4_scaling_beta: null })],
  ['ministral3', 'queries that grow faster', rotating({ llama_4_scaling_beta: 0.5 })],
  ['ernie4_5', 'another base', rotating({ rope_theta: 10_000 })],
  ['gemma3-list', 'scores scaled by head_dim', stating({ query_pre_attn_scalar: 32 })],
  ['gemma3-pattern', 'full layers not stretched', unscaled],
  ['gemma3-pattern', 'all layers slide', stating({ sliding_window_pattern: 100 })],
  ['olmo2', 'another epsilon', stating({ rms_norm_eps: 1e-2 })],
  ['olmo3', 'a window of 25', stating({ sliding_window: 25 })],
  [
    'olmo3',
    'all rotations scaled',
    (config) => {
      const { full_attention } = config.rope_parameters as Fields;
      return { ...config, rope_parameters: { full_attention, sliding_attention: full_attention } };
    },
  ],
  ['olmo3', 'no scaling', stating({ rope_parameters: null })],
  ['apertus', 'no scaling', unscaled],
  ['arcee', 'no square', stating({ hidden_act: 'relu' })],
  ['cohere', 'another scale of logits', stating({ logit_scale: 0.25 })],
  ['cohere', 'another base', stating({ rope_theta: 1e6 })],
  ['cohere2', 'another epsilon', stating({ layer_norm_eps: 1e-5 })],
  ['cohere2', 'a window of 25', stating({ sliding_window: 25 })],
  [
    'cohere2',
    'all layers slide and rotate',
    (config) => ({ ...config, layer_types: (config.layer_types as string[]).fill('sliding_attention') }),
  ],
  ['nemotron', 'another epsilon', stating({ norm_eps: 1e-5 })],
  ['nemotron', 'heads that rotate whole', stating({ partial_rotary_factor: 1 })],
  ['nemotron', 'no square', stating({ hidden_act: 'relu' })],
  ['granite-moe', 'one expert a token', stating({ num_experts_per_tok: 1 })],
  ['granite-moe', 'branches added whole', stating({ residual_multiplier: 1 })],
  ['granite4', 'no rotation', stating({ position_embedding_type: null })],
  ['granite4', 'no multiplier of the residual', stating({ residual_multiplier: 1 })],
  ['lfm2', 'another epsilon', stating({ norm_eps: 1e-2 })],
  ['lfm2', 'another base of the rotation', rotating({ rope_theta: 1e6 })],
  ['qwen3.5', 'heads that rotate whole', rotating({ partial_rotary_factor: 1 })],
  ['qwen3.5', 'another epsilon', stating({ rms_norm_eps: 1e-2 })],
  ['qwen3.5-moe', 'one expert a token', stating({ num_experts_per_tok: 1 })],
  ['qwen3-next', 'weights that are not normed', stating({ norm_topk_prob: false })],
  ['lfm2-moe', 'weights that are not normed', stating({ norm_topk_prob: false })],
  ['lfm2-moe', 'no scale', stating({ routed_scaling_factor: 1 })],
  ['lfm2-moe', 'two experts of which one is dropped', stating({ num_experts_per_tok: 1 })],
  ['gpt-oss', 'another limit', stating({ swiglu_limit: 7 })],
  ['gpt-oss', 'another alpha', stating({ swiglu_alpha: 1 })],
  ['gpt-oss', 'all layers slide', stating({ layer_types: ['sliding_attention', 'sliding_attention'] })],
  ['gpt-oss', 'the ramp of the defaults', rotating({ beta_fast: 32, beta_slow: 1 })],
  ['gpt-oss', 'no scaling', unscaled],
  ['gemma4-shared', 'a window of 25', stating({ sliding_window: 25 })],
  ['gemma4-shared', 'no cap on the logits', stating({ final_logit_softcapping: null })],
  [
    'gemma4-shared',
    'half of the pairs turn',
    ({ rope_parameters, ...config }) => {
      const { full_attention, ...others } = rope_parameters as Record<string, Fields>;
      const full = { ...full_attention, partial_rotary_factor: 0.5 };
      return { ...config, rope_parameters: { ...others, full_attention: full } };
    },
  ],
  ['gemma4-moe', 'one expert a token', stating({ top_k_experts: 1 })],
  ['gemma4-moe', 'another activation', stating({ hidden_activation: 'silu' })],
  ['granite4-h', 'one expert a token', stating({ num_experts_per_tok: 1 })],
  ['granite4-h', 'one group', stating({ mamba_n_groups: 1, mamba_d_state: 24 })],
  ['granite4-h', 'long steps cut', stating({ time_step_limit: [0, 0.5] })],
  ['granite4-h', 'short steps stretched', stating({ time_step_limit: [0.5, 9] })],
  ['falcon-h1', 'scores as they are', stating({ key_multiplier: 1 })],
  ['falcon-h1', 'no multipliers of Mamba', stating({ ssm_multipliers: null })],
  ['falcon-h1', 'no multipliers of the MLP', stating({ mlp_multipliers: null })],
  ['falcon-h1', 'Mamba reads what attention does', stating({ ssm_in_multiplier: 1.25 })],
  ['falcon-h1', 'Mamba added whole', stating({ ssm_out_multiplier: 1 })],
  ['falcon-h1', 'attention reads what Mamba does', stating({ attention_in_multiplier: 0.9 })],
  ['falcon-h1', 'attention added whole', stating({ attention_out_multiplier: 1 })],
  ['falcon-h1', 'logits as they are', stating({ lm_head_multiplier: 1 })],
  ['falcon-h1-norm', 'gated behind the norm', stating({ mamba_norm_before_gate: true })],
  ['nemotron-h', 'no scale of experts', stating({ routed_scaling_factor: 1 })],
  ['nemotron-h', 'weights that are not normed', stating({ norm_topk_prob: false })],
  ['nemotron-h-moe', 'experts of one group', stating({ topk_group: 1 })],
  ['deepseek-v2', 'no scale of experts', stating({ routed_scaling_factor: 1 })],
  ['deepseek-v2', 'scores not stretched', rotating({ mscale: 0, mscale_all_dim: 0, attention_factor: 1 })],
  ['deepseek-v3', 'scores not stretched', rotating({ mscale: 0, mscale_all_dim: 0 })],
  ['mistral4', 'queries that do not grow', rotating({ llama_4_scaling_beta: 0 })],
  ['mistral4', 'experts of both groups', stating({ topk_group: 2 })],
  ['deepseek-v3', 'halves that rotate', stating({ rope_interleave: false })],
  ['deepseek-v3', 'experts of both groups', stating({ topk_group: 2 })],
  ['glm4-moe-lite', 'neighbours that rotate', stating({ rope_interleave: true })],
  ['qwen3.5', 'one key head, twice as wide', stating({ linear_num_key_heads: 1, linear_key_head_dim: 32 })],
];

describe('the fixtures', () => {
  it.each(MISREADINGS)('%s shows: %s', async (name, _, change) => {
    await using device = createReferenceDevice();
    await using checkpoint = await Checkpoint.open(join(MODEL_FIXTURES, name));
    const definition = parseModelConfig(change(checkpoint.config));
    const model = await loadModel(renamed(checkpoint), definition, device);
    const { prompt, logits } = expectedCases(name).at(-1) as ExpectedCase;
    await using runner = await Runner.create(device, model, { context: 128, chunk: 128 });
    const result = await runner.generate(prompt, 1);
    // The bound of a real device in its reference mode is 1e-3.
    expect(largestDifference(result.logits[0]!, logits)).toBeGreaterThan(2e-3);
  });
});
