/**
 * Latent attention and a mixture of experts: DeepSeek V2, V3 and R1, Kimi K2, GLM-4.7-Flash. Plain MLPs in the first layers, an expert
 * that sees every token. V2 scores by a softmax over all experts; the others as GLM-4.5 does.
 *
 *     each layer:  x += o(attend(norm(x)))
 *                  x += shared(norm(x)) + Σ weight · expert(norm(x)), or an MLP
 *
 * Source: the model code of transformers (models/deepseek_v2, models/deepseek_v3, models/glm4_moe_lite).
 */

import type { Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import type { RopeStyle } from '../../device/rope.js';
import type { JsonObject } from '../../weights/folder-files.js';
import type { RouteOptions } from '../blocks/experts.js';
import { gated, gatedMlpWeights } from '../blocks/gated-mlp.js';
import { attendLatent, type LatentShape, latentWeights } from '../blocks/latent-attention.js';
import { decoderLayout } from '../blocks/layout-builder.js';
import { preNormWeights } from '../blocks/residual.js';
import { recordStack } from '../blocks/stack.js';
import { type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family, RecordOptions } from '../family.js';
import type { WeightLayout, Weights } from '../layout.js';
import { ropeSection, yarnScale } from '../rope-config.js';
import { readGroupedRoute } from './glm4-moe.js';
import {
  type MixtureConfig,
  type MixtureTraits,
  mixtureWeights,
  readExperts,
  recordExperts,
} from './mixture.js';
import { ROPE } from './pre-norm.js';

export interface DeepseekConfig extends MixtureConfig {
  readonly latent: LatentShape;
  /** Multiplies the scores. */
  readonly scale: number;
  readonly style: RopeStyle;
}

const TRAITS: DecoderTraits = {
  bias: () => ({ qkv: false, output: false, mlp: false }),
  qkNorm: false,
  window: () => null,
  slides: () => false,
  defaults: { maxPositions: 4096, ropeTheta: 10_000 },
};

const MIXTURE: MixtureTraits = {
  names: { block: 'mlp' },
  routerBias: { tensor: 'mlp.gate.e_score_correction_bias', shape: (experts) => [experts] },
  shared: { block: 'mlp.shared_experts', gate: null },
};

/** How a family chooses experts, and what its configs mean that leave fields out. */
interface Rules {
  readonly defaults: JsonObject;
  readonly route: (fields: ConfigFields, experts: number, chosen: number) => RouteOptions;
  /** Which layers have experts; those behind the first `first_k_dense_replace` where this says nothing. */
  readonly mixes?: (fields: ConfigFields, layers: number) => boolean[] | null;
}

function readConfig(stated: ConfigFields, architecture: string, rules: Rules): DeepseekConfig {
  const fields = stated.whereAbsent(rules.defaults);
  const heads = fields.count('num_attention_heads');
  const latent = {
    heads,
    rotaryDim: fields.count('qk_rope_head_dim', 64),
    plainDim: fields.count('qk_nope_head_dim', 128),
    valueDim: fields.count('v_head_dim', 128),
    kvRank: fields.count('kv_lora_rank', 512),
    qRank: fields.has('q_lora_rank') ? fields.count('q_lora_rank') : null,
  };
  for (const [name, value] of [
    ['qk_rope_head_dim', latent.rotaryDim],
    ['qk_nope_head_dim', latent.plainDim],
    ['v_head_dim', latent.valueDim],
  ] as const)
    if (value % 4 !== 0)
      throw fields.unsupported(name, `"${name}" of ${value}`, 'Use a model where it is a multiple of 4.');
  if (fields.count('num_key_value_heads', heads) !== heads)
    throw fields.odd(
      'num_key_value_heads',
      fields.value('num_key_value_heads'),
      `num_attention_heads (${heads})`,
    );
  if (fields.flag('attention_bias', false))
    throw fields.unsupported(
      'attention_bias',
      'latent attention with biases',
      'Use a checkpoint without them.',
    );
  if (fields.count('moe_layer_freq', 1) !== 1)
    throw fields.unsupported(
      'moe_layer_freq',
      'a mixture of experts in some of the layers behind the first',
      'Use a model where it is 1.',
    );
  // The part of a head that rotates rotates whole.
  const config = readDecoderConfig(fields.replacing('head_dim', latent.rotaryDim), architecture, TRAITS);
  const names = {
    count: ['n_routed_experts', 'num_local_experts', 'num_experts'],
    chosen: 'num_experts_per_tok',
    size: 'moe_intermediate_size',
  };
  const experts = readExperts(fields, names);
  const shared = fields.count('n_shared_experts', 0, 0);
  const dense = fields.count('first_k_dense_replace', 0, 0);
  const behind = Array.from({ length: config.layers }, (_, layer) => layer >= dense);
  const { rope } = config;
  const all = ropeSection(fields)?.atLeastZero('mscale_all_dim', 0) ?? 0;
  const stretch = all !== 0 && 'factor' in rope ? yarnScale(rope.factor, all) : 1;
  return {
    ...config,
    latent,
    scale: stretch ** 2 / Math.sqrt(latent.rotaryDim + latent.plainDim),
    style: fields.flag('rope_interleave', true) ? 'interleaved' : 'half',
    experts,
    route: rules.route(fields, experts.experts, experts.chosen),
    sharedSize: shared === 0 ? null : shared * experts.intermediateSize,
    mixes: rules.mixes?.(fields, config.layers) ?? behind,
  };
}

/** A word that decides how experts are chosen, and those that the family has. */
function readRule(fields: ConfigFields, name: string, fallback: string, known: readonly string[]): string {
  const stated = fields.text(name) ?? fallback;
  if (known.includes(stated)) return stated;
  throw fields.unsupported(
    name,
    `"${name}": ${JSON.stringify(stated)} in this family`,
    `Use a model with one of: ${known.join(', ')}.`,
  );
}

function softmaxRoute(fields: ConfigFields, experts: number, chosen: number): RouteOptions {
  readRule(fields, 'scoring_func', 'softmax', ['softmax']);
  const method = readRule(fields, 'topk_method', 'greedy', ['greedy', 'group_limited_greedy']);
  if (fields.flag('norm_topk_prob', false))
    throw fields.unsupported(
      'norm_topk_prob',
      'a DeepSeek V2 whose weights of experts are normed',
      'Use a checkpoint as they are published.',
    );
  const scale = fields.positive('routed_scaling_factor', 1);
  const rule = { score: 'softmax', bias: false, normalise: null, scale } as const;
  if (method === 'greedy') return { ...rule, groups: null };
  const count = fields.count('n_group');
  const kept = fields.count('topk_group');
  if (experts % count !== 0) throw fields.odd('n_group', count, `a divisor of the ${experts} experts`);
  if (kept > count || (kept * experts) / count < chosen)
    throw fields.odd('topk_group', kept, `at most ${count}, and enough for ${chosen} experts,`);
  return { ...rule, groups: { count, kept, by: 'best' } };
}

function sigmoidRoute(fields: ConfigFields, experts: number, chosen: number): RouteOptions {
  readRule(fields, 'scoring_func', 'sigmoid', ['sigmoid']);
  readRule(fields, 'topk_method', 'noaux_tc', ['noaux_tc']);
  return readGroupedRoute(fields, experts, chosen);
}

function readMixes(fields: ConfigFields, layers: number): boolean[] | null {
  const types = fields.texts('mlp_layer_types');
  if (types === null) return null;
  if (types.length !== layers || types.some((type) => type !== 'dense' && type !== 'sparse'))
    throw fields.odd('mlp_layer_types', types, `"dense" or "sparse" for each of the ${layers} layers`);
  return types.map((type) => type === 'sparse');
}

function layout(config: DeepseekConfig): WeightLayout {
  const { hiddenSize, latent, mixes, style } = config;
  return decoderLayout(config, {
    ropes: [{ key: ROPE, parameters: config.rope, dims: latent.rotaryDim, style }],
    layer: (at) => {
      preNormWeights(at, hiddenSize);
      latentWeights(at, hiddenSize, latent);
      if (mixes[at.index] === true) mixtureWeights(at, hiddenSize, config, MIXTURE);
      else gatedMlpWeights(at, { ...config, bias: false });
    },
  });
}

function record(ops: Ops, config: DeepseekConfig, weights: Weights, options: RecordOptions): Tensor {
  const { latent, scale, mixes, activation } = config;
  return recordStack(ops, config, weights, options, {
    layer: (x, at) => {
      const attended = attendLatent(at, at.norm(x, 'input-norm'), latent, { rope: ROPE, scale });
      const sum = at.linear(at.wanted(attended), 'output', at.wanted(x));
      const normed = at.norm(sum, 'mlp-norm');
      if (mixes[at.index] === true) return recordExperts(at, normed, sum, config, MIXTURE);
      return at.linear(gated(at, normed, activation), 'down', sum);
    },
  });
}

const V2: Rules = {
  defaults: {
    first_k_dense_replace: 0,
    n_routed_experts: 64,
    n_shared_experts: 2,
    moe_intermediate_size: 1407,
    q_lora_rank: 1536,
  },
  route: softmaxRoute,
};
const V3: Rules = {
  defaults: {
    first_k_dense_replace: 3,
    n_routed_experts: 256,
    n_shared_experts: 1,
    num_experts_per_tok: 8,
    moe_intermediate_size: 2048,
    n_group: 8,
    topk_group: 4,
    routed_scaling_factor: 2.5,
    q_lora_rank: 1536,
  },
  route: sigmoidRoute,
};
const GLM: Rules = {
  defaults: {
    rms_norm_eps: 1e-5,
    max_position_embeddings: 202_752,
    first_k_dense_replace: 1,
    n_routed_experts: 64,
    n_shared_experts: 1,
    num_experts_per_tok: 4,
    moe_intermediate_size: 1536,
    routed_scaling_factor: 1.8,
    q_lora_rank: 768,
    qk_nope_head_dim: 192,
    v_head_dim: 256,
  },
  route: sigmoidRoute,
  mixes: readMixes,
};

const family = (
  name: string,
  architecture: string,
  modelTypes: readonly string[],
  rules: Rules,
): Family<DeepseekConfig> => ({
  name,
  architectures: [architecture],
  modelTypes,
  readConfig: (fields, stated) => readConfig(fields, stated, rules),
  layout,
  record,
});

export const deepseekV2 = family('deepseek_v2', 'DeepseekV2ForCausalLM', ['deepseek_v2'], V2);
export const deepseekV3 = family('deepseek_v3', 'DeepseekV3ForCausalLM', ['deepseek_v3', 'kimi_k2'], V3);
export const glm4MoeLite = family('glm4_moe_lite', 'Glm4MoeLiteForCausalLM', ['glm4_moe_lite'], GLM);
