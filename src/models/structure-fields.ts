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
  route_norm: (value) => value === true,
  moe_router_use_sigmoid: (value) => value === true,
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

const offOrOne: Neutral = (value) =>
  off(value) ||
  one(value) ||
  value === '' ||
  value === 'none' ||
  (Array.isArray(value) && value.length === 0);
const known = each('softmax', 'sigmoid');

/**
 * What names of fields say, for those that are not above: configs spell one mechanism in many ways. The words are rare ones, which
 * no published config of a family uses for anything else; drafting layers are left out of a model, and so are their fields.
 */
const WORDS: readonly (readonly [name: RegExp, changesNothing: Neutral])[] = [
  [/(^|_)(mtp|nextn)(_|$)/, () => true],
  [/(^|_)(m?hc|hyper_?connections?|streams?|altup|laurel|engram|ngrams?|yoco)(_|$)/, offOrOne],
  [/^index(er)?_|(^|_)(indexer|moba|nsa|dsa)(_|$)/, offOrOne],
  [
    /(^|_)(sparse|linear|differential|diff|cross|gated|chunked|latent)_(attention|attn)(_(config|type|layers|topk|heads))?$/,
    offOrOne,
  ],
  [
    /(^|_)(attention|attn)_(sinks?|gate|output_gate)$|(^|_)sinks?$|^use_output_gate$|^num_(memory|sink)_tokens$/,
    offOrOne,
  ],
  [/(^|_)(kv_shar(ed|ing)|shared?_kv)(_|$)/, offOrOne],
  [/(^|_)(scor(e|ing)|rout(er|ing))_(scor(e|ing)_)?(func|function|activation|activation_func)$/, known],
  [/^router_scor(e|ing)$/, known],
  [
    /^pos(ition)?_emb(edding|eddings|ed)?(_type)?$/,
    (value) => !/alibi|relative|nope|learned/.test(String(value)),
  ],
];

/** One value for each layer, not all the same. Ascending numbers are numbers of layers. */
function tellsLayersApart(name: string, value: unknown, layers: unknown): boolean {
  if (
    !Array.isArray(value) ||
    value.length !== layers ||
    !/layer|block|type|pattern|att(entio)?n|mlp|ffn|window|rope|rotary|head/.test(name)
  )
    return false;
  const ascends = value.every((item, at) => typeof item === 'number' && (at === 0 || item > value[at - 1]));
  return !ascends && new Set(value.map((item) => JSON.stringify(item))).size > 1;
}

/** True if the field, which nobody read, says that the model computes something else. */
function changesModel(name: string, value: unknown, layers: unknown): boolean {
  if (value === undefined || value === null) return false;
  const listed = Object.hasOwn(STRUCTURE, name) ? STRUCTURE[name] : undefined;
  if (listed !== undefined) return !listed(value);
  const word = WORDS.find(([names]) => names.test(name));
  return word === undefined ? tellsLayersApart(name, value, layers) : !word[1](value);
}

/**
 * @throws KvantError `model-config-unsupported`, naming the first field that changes the model and was not read
 * @example refuseUnreadStructure(fields, 'llama'); // throws for {"clip_qkv": 8}
 */
export function refuseUnreadStructure(fields: ConfigFields, family: string): void {
  const layers = fields.json.num_hidden_layers;
  for (const [name, value] of Object.entries(fields.json)) {
    if (fields.wasRead(name) || !changesModel(name, value, layers)) continue;
    throw fields.unsupported(
      name,
      `"${name}": ${JSON.stringify(value)} in a model of the family ${family}`,
      'It changes what the model computes, and kvant does not compute it. Use a checkpoint without it.',
    );
  }
}

/**
 * For families all of whose layers are of one kind, whatever `layer_types` says of them: the words must be those that mean it.
 * @throws KvantError `model-config-unsupported`
 */
export function refuseOtherLayers(fields: ConfigFields, names: readonly string[], family: string): void {
  const other = fields.texts('layer_types')?.find((type) => !names.includes(type));
  if (other === undefined) return;
  throw fields.unsupported(
    'layer_types',
    `a layer of type ${JSON.stringify(other)} in a model of the family ${family}`,
    `Use a model whose layers are ${names.join(' or ')}.`,
  );
}
