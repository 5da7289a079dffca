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

const FACTOR = 'partial_rotary_factor';

/** Without the factor, which says of a whole head what `qk_rope_head_dim` says of its parts: among the rotation's fields, or beside them. */
function read(stated: ConfigFields): ConfigFields {
  const fields = stated.whereAbsent(DEFAULTS);
  checkFactor(fields, fields);
  const plain = fields.replacing(FACTOR, null);
  const section = ropeSection(fields);
  if (section === null) return plain.replacing('rope_parameters', DEFAULT_ROPE);
  if (!checkFactor(section, fields)) return plain;
  const name = fields.has('rope_parameters') ? 'rope_parameters' : 'rope_scaling';
  const { [FACTOR]: _, ...rest } = fields.value(name) as Record<string, never>;
  return plain.replacing(name, rest);
}

/** False if there is none. */
function checkFactor(section: ConfigFields, fields: ConfigFields): boolean {
  const factor = section.positiveOrNull(FACTOR);
  if (factor === null) return false;
  const rotary = fields.count('qk_rope_head_dim');
  const whole = rotary + fields.count('qk_nope_head_dim');
  if (Math.round(factor * whole) !== rotary)
    throw section.odd(FACTOR, factor, `qk_rope_head_dim of the whole head (${rotary / whole})`);
  return true;
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
