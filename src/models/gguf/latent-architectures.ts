/**
 * The architectures of GGUF files with latent attention: DeepSeek V2, V3 and R1, Kimi K2, GLM-4.7-Flash, and Mistral 4. Newer files have the matrix that
 * K and V are made with in two parts, that of K transposed by head; their lengths of keys and values are those of latents, and those of
 * heads are called so.
 *
 * Source: what llama.cpp's converters write (conversion/deepseek.py, conversion/mistral3.py), and what its graph takes for granted (src/models/deepseek2.cpp).
 */

import type { JsonObject } from '../../weights/folder-files.js';
import type { GgufArchitecture, MetadataReader } from './architecture.js';
import { experts, hasAny, MLP_NAMES, ROUTER_BIAS, shared } from './expert-architectures.js';

const SOFTMAX = 1;
/** Files have the part of YaRN's attention factor that the logarithm of the stretch is multiplied with. */
const LOG_FACTOR = 0.1;
/** How queries of Mistral 4 grow, which converters leave out. */
const GROWTH = 0.1;

export const DEEPSEEK2: GgufArchitecture = {
  name: 'deepseek2',
  modelType: 'deepseek_v3',
  className: 'DeepseekV3ForCausalLM',
  names: {
    attn_q_a: 'self_attn.q_a_proj',
    attn_q_a_norm: 'self_attn.q_a_layernorm',
    attn_q_b: 'self_attn.q_b_proj',
    attn_kv_a_mqa: 'self_attn.kv_a_proj_with_mqa',
    attn_kv_a_norm: 'self_attn.kv_a_layernorm',
    attn_kv_b: 'self_attn.kv_b_proj',
    // As MLX's files call them.
    attn_k_b: 'self_attn.embed_q',
    attn_v_b: 'self_attn.unembed_out',
    ...MLP_NAMES,
    ...shared('mlp.shared_experts'),
  },
  wholeNames: { [ROUTER_BIAS]: 'mlp.gate.e_score_correction_bias' },
  scores: 'softmax or sigmoid',
  reads: ['expert_count', 'rope.scaling.yarn_log_multiplier'],
  fields: deepseek,
};

export const MISTRAL4: GgufArchitecture = {
  ...DEEPSEEK2,
  name: 'mistral4',
  modelType: 'mistral4',
  className: 'Mistral4ForCausalLM',
  reads: ['expert_count', 'rope.scaling.yarn_log_multiplier', 'attention.temperature_scale'],
  fields: mistral,
};

function mistral(read: MetadataReader, config: JsonObject): JsonObject {
  const own = latent(read, config);
  const scaling = (own.rope_scaling ?? config.rope_scaling) as JsonObject | undefined;
  const beta = read.number('attention.temperature_scale') ?? GROWTH;
  return {
    ...own,
    ...(scaling === undefined ? {} : { rope_scaling: { ...scaling, llama_4_scaling_beta: beta } }),
  };
}

function deepseek(read: MetadataReader, config: JsonObject): JsonObject {
  const own = latent(read, config);
  // Files of DeepSeek V2 do not say which it is.
  const softmax =
    (read.count('expert_gating_func', 0) || (hasAny(read, ROUTER_BIAS) ? 2 : SOFTMAX)) === SOFTMAX;
  if (!softmax) return own;
  return {
    ...own,
    model_type: 'deepseek_v2',
    architectures: ['DeepseekV2ForCausalLM'],
    topk_method: (own.n_group as number) > 1 ? 'group_limited_greedy' : 'greedy',
  };
}

function latent(read: MetadataReader, { rope_scaling }: JsonObject): JsonObject {
  const rotary = read.count('rope.dimension_count') ?? 64;
  const key = read.count('attention.key_length_mla') ?? read.count('attention.key_length') ?? null;
  const value = read.count('attention.value_length_mla') ?? read.count('attention.value_length') ?? null;
  return {
    num_key_value_heads: read.heads,
    head_dim: null,
    partial_rotary_factor: null,
    kv_lora_rank: read.count('attention.kv_lora_rank') ?? null,
    q_lora_rank: read.count('attention.q_lora_rank') ?? null,
    qk_rope_head_dim: rotary,
    qk_nope_head_dim: key === null ? null : key - rotary,
    v_head_dim: value,
    rope_interleave: true,
    ...experts(read, 'n_routed_experts', 'moe_intermediate_size'),
    n_shared_experts: read.count('expert_shared_count', 0) ?? 0,
    first_k_dense_replace: read.count('leading_dense_block_count', 0) ?? 0,
    norm_topk_prob: read.flag('expert_weights_norm') ?? false,
    routed_scaling_factor: read.number('expert_weights_scale') || 1,
    n_group: read.count('expert_group_count') ?? 1,
    topk_group: read.count('expert_group_used_count') ?? 1,
    ...stretched(read, rope_scaling as JsonObject | undefined),
  };
}

/** Of a YaRN: what scores are multiplied with, and rotations with it. */
function stretched(read: MetadataReader, scaling: JsonObject | undefined): JsonObject {
  const all = (read.number('rope.scaling.yarn_log_multiplier') ?? 0) / LOG_FACTOR;
  if (scaling === undefined || all === 0) return {};
  return { rope_scaling: { ...scaling, mscale: all, mscale_all_dim: all } };
}
