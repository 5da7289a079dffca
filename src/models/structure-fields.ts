/**
 * Fields of config.json that change what a model computes. A family computes those that it reads. One that it does not read must have
 * a value that changes nothing: with any other the model would run, and answer wrongly.
 */

import type { ConfigFields } from './config-fields.js';

type Neutral = (value: unknown) => boolean;

const off: Neutral = (value) => value === false || value === 0;
const one: Neutral = (value) => value === 1;
const none: Neutral = () => false;
const ones: Neutral = (value) => Array.isArray(value) && value.every((item) => item === 1);
const each =
  (...names: readonly string[]): Neutral =>
  (value) =>
    (Array.isArray(value) ? value : [value]).every((item) => names.includes(item));

/** The field, and which of its values change nothing. `null` is no value. */
const STRUCTURE: Readonly<Record<string, Neutral>> = {
  // What becomes of scores and logits.
  attn_logit_softcapping: off,
  final_logit_softcapping: off,
  query_pre_attn_scalar: none,
  attention_multiplier: none,
  logit_scale: one,
  logits_scaling: one,
  clip_qkv: off,
  attention_chunk_size: off,
  // Multipliers of embedding and branches.
  embedding_multiplier: one,
  residual_multiplier: one,
  scale_emb: one,
  scale_depth: none,
  dim_model_base: none,
  // Norms of queries and keys, and where norms stand.
  use_qk_norm: off,
  qk_norm: off,
  qk_layernorm: off,
  apply_residual_connection_post_layernorm: off,
  // Attention beside the MLP.
  parallel_attn: off,
  use_parallel_residual: off,
  // Positions.
  alibi: off,
  use_alibi: off,
  no_rope_layers: ones,
  no_rope_layer_interval: off,
  nope_layer_interval: off,
  rope_interleaved: off,
  partial_rotary_factor: one,
  rotary_pct: one,
  rope_local_base_freq: none,
  rotary: none,
  // Kinds of layers, where a family knows none but its own.
  layer_types: each('full_attention', 'attention'),
  layers_block_type: none,
  hybrid_override_pattern: none,
  mlp_layer_types: each('dense'),
  attn_type_list: ones,
  is_causal: (value) => value === true,
  use_bidirectional_attention: off,
  // Tokens that an indexer picks, caches that are compressed, linear attention.
  index_topk: off,
  index_n_heads: off,
  index_head_dim: off,
  indexer_types: none,
  compress_rates: none,
  compress_ratios: none,
  o_lora_rank: off,
  linear_attn_config: none,
  sparse_attention_config: none,
  // Several residual streams, sparse activations.
  hc_mult: (value) => off(value) || one(value),
  hc_sinkhorn_iters: off,
  altup_num_inputs: (value) => off(value) || one(value),
  laurel_rank: off,
  activation_sparsity_pattern: (value) => Array.isArray(value) && value.every(off),
  hidden_size_per_layer_input: off,
  swiglu_limit: off,
  // Experts, and how they are chosen.
  scoring_func: each('softmax', 'sigmoid'),
  topk_method: each('greedy', 'noaux_tc', 'group_limited_greedy'),
  n_group: (value) => off(value) || one(value),
  topk_group: (value) => off(value) || one(value),
  num_hash_layers: off,
  moe_latent_size: off,
  zero_expert_num: off,
  num_experts: (value) => off(value) || one(value),
  num_local_experts: (value) => off(value) || one(value),
  n_routed_experts: off,
  moe_intermediate_size: none,
  // Keys and values that are stored as something else.
  kv_lora_rank: off,
  q_lora_rank: off,
  // Shared layers.
  use_cla: off,
  num_kv_shared_layers: off,
};

/**
 * @throws KvantError `model-config-unsupported`, naming the first field that changes the model and was not read
 * @example refuseUnreadStructure(fields, 'llama'); // throws for {"clip_qkv": 8}
 */
export function refuseUnreadStructure(fields: ConfigFields, family: string): void {
  for (const [name, changesNothing] of Object.entries(STRUCTURE)) {
    if (fields.wasRead(name)) continue;
    const value = fields.json[name];
    if (value === undefined || value === null || changesNothing(value)) continue;
    throw fields.unsupported(
      name,
      `"${name}": ${JSON.stringify(value)} in a model of the family ${family}`,
      'It changes what the model computes, and kvant does not compute it. Use a checkpoint without it.',
    );
  }
}
