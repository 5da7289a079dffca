/**
 * Latent attention and a mixture of experts: DeepSeek V2, V3 and R1, Kimi K2, GLM-4.7-Flash. V2 scores by a softmax over all experts; the
 * others as GLM-4.5 does.
 *
 * Source: the model code of transformers (models/deepseek_v2, models/deepseek_v3, models/glm4_moe_lite).
 */

import type { RouteOptions } from '../blocks/experts.js';
import type { ConfigFields } from '../config-fields.js';
import { readGroupedRoute } from './glm4-moe.js';
import { type LatentMixtureRules, latentMixture } from './latent-mixture.js';
import { readMixes } from './mixture.js';

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
  if (method === 'greedy') {
    // Groups that are stated are not looked at.
    for (const name of ['n_group', 'topk_group']) fields.value(name);
    return { ...rule, groups: null };
  }
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

const V2: LatentMixtureRules = {
  defaults: {
    first_k_dense_replace: 0,
    n_routed_experts: 64,
    n_shared_experts: 2,
    moe_intermediate_size: 1407,
    q_lora_rank: 1536,
  },
  route: softmaxRoute,
};
const V3: LatentMixtureRules = {
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
const GLM: LatentMixtureRules = {
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

export const deepseekV2 = latentMixture('deepseek_v2', 'DeepseekV2ForCausalLM', ['deepseek_v2'], V2);
export const deepseekV3 = latentMixture(
  'deepseek_v3',
  'DeepseekV3ForCausalLM',
  ['deepseek_v3', 'kimi_k2'],
  V3,
);
export const glm4MoeLite = latentMixture('glm4_moe_lite', 'Glm4MoeLiteForCausalLM', ['glm4_moe_lite'], GLM);
