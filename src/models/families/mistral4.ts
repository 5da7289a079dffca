/**
 * Mistral 4: latent attention and a mixture of experts as DeepSeek V3 has them, scored by a softmax over all experts; queries grow with
 * their position as in Ministral 3, what does not rotate too.
 *
 * Source: the model code of transformers (models/mistral4).
 */

import type { RouteOptions } from '../blocks/experts.js';
import type { ConfigFields } from '../config-fields.js';
import { ropeSection } from '../rope-config.js';
import { readGroupedRoute } from './glm4-moe.js';
import { latentMixture } from './latent-mixture.js';
import { readGrowth } from './ministral3.js';

/** What configs mean that leave fields out. */
const DEFAULTS = {
  n_routed_experts: 128,
  n_shared_experts: 1,
  num_experts_per_tok: 4,
  moe_intermediate_size: 2048,
  first_k_dense_replace: 0,
  kv_lora_rank: 256,
  q_lora_rank: 1024,
  qk_rope_head_dim: 64,
  qk_nope_head_dim: 64,
  v_head_dim: 128,
  max_position_embeddings: 1_048_576,
  rms_norm_eps: 1e-6,
};
const DEFAULT_ROPE = {
  rope_type: 'yarn',
  rope_theta: 10_000,
  factor: 128,
  original_max_position_embeddings: 8192,
  beta_fast: 32,
  beta_slow: 1,
  mscale: 1,
  mscale_all_dim: 1,
  llama_4_scaling_beta: 0.1,
};

/** The factor says of a whole head what `qk_rope_head_dim` says of its parts. */
function read(stated: ConfigFields): ConfigFields {
  const fields = stated.whereAbsent(DEFAULTS);
  const section = ropeSection(fields);
  if (section === null) return fields.replacing('rope_parameters', DEFAULT_ROPE);
  const factor = section.positiveOrNull('partial_rotary_factor');
  if (factor === null) return fields;
  const rotary = fields.count('qk_rope_head_dim');
  const whole = rotary + fields.count('qk_nope_head_dim');
  if (Math.round(factor * whole) !== rotary)
    throw section.odd(
      'partial_rotary_factor',
      factor,
      `qk_rope_head_dim of the whole head (${rotary / whole})`,
    );
  const name = fields.has('rope_parameters') ? 'rope_parameters' : 'rope_scaling';
  const { partial_rotary_factor: _, ...rest } = fields.value(name) as Record<string, never>;
  return fields.replacing(name, rest);
}

function route(fields: ConfigFields, experts: number, chosen: number): RouteOptions {
  return { ...readGroupedRoute(fields, experts, chosen), score: 'softmax', bias: false };
}

export const mistral4 = latentMixture('mistral4', 'Mistral4ForCausalLM', ['mistral4'], {
  defaults: DEFAULTS,
  read,
  route,
  growth: readGrowth,
});
