/**
 * The architectures of GGUF files that are mixtures of experts. The matrices of all experts of a layer are one stack each in the file.
 *
 * Source: what llama.cpp's converters write for each architecture (conversion/*.py), and what its graphs take for granted (src/models).
 */

import type { JsonObject } from '../../weights/folder-files.js';
import type { GgufArchitecture, MetadataReader } from './architecture.js';
import { slidingLayers } from './sliding-layers.js';

export function stacks(path: string): Record<string, string> {
  return {
    ffn_gate_exps: `${path}.gate_proj`,
    ffn_up_exps: `${path}.up_proj`,
    ffn_down_exps: `${path}.down_proj`,
  };
}

export function shared(path: string): Record<string, string> {
  return {
    ffn_gate_shexp: `${path}.gate_proj`,
    ffn_up_shexp: `${path}.up_proj`,
    ffn_down_shexp: `${path}.down_proj`,
  };
}

export const SPARSE_NAMES = {
  ffn_gate_inp: 'block_sparse_moe.gate',
  ...stacks('block_sparse_moe.switch_mlp'),
};
export const MLP_NAMES = { ffn_gate_inp: 'mlp.gate', ...stacks('mlp.switch_mlp') };
export const ROUTER_BIAS = 'exp_probs_b.bias';

const QWEN3_MOE: GgufArchitecture = {
  name: 'qwen3moe',
  modelType: 'qwen3_moe',
  className: 'Qwen3MoeForCausalLM',
  names: MLP_NAMES,
  reads: ['expert_count'],
  fields: (read) => ({
    ...experts(read, 'num_experts', 'moe_intermediate_size'),
    norm_topk_prob: read.flag('expert_weights_norm') ?? true,
    mlp_only_layers: plainLayers(read),
  }),
};

export const EXPERT_ARCHITECTURES: readonly GgufArchitecture[] = [
  {
    name: 'qwen2moe',
    modelType: 'qwen2_moe',
    className: 'Qwen2MoeForCausalLM',
    names: {
      ...MLP_NAMES,
      ...shared('mlp.shared_expert'),
      ffn_gate_inp_shexp: 'mlp.shared_expert_gate',
    },
    reads: ['expert_count'],
    fields: (read) => ({
      ...experts(read, 'num_experts', 'moe_intermediate_size'),
      qkv_bias: read.hasTensor('blk.0.attn_q.bias'),
      norm_topk_prob: false,
      mlp_only_layers: plainLayers(read),
      shared_expert_intermediate_size:
        read.count('expert_shared_feed_forward_length') ?? read.rows('blk.0.ffn_gate_shexp.weight') ?? null,
    }),
  },
  QWEN3_MOE,
  // The text model.
  { ...QWEN3_MOE, name: 'qwen3vlmoe' },
  {
    name: 'glm4moe',
    scores: 'sigmoid',
    modelType: 'glm4_moe',
    className: 'Glm4MoeForCausalLM',
    names: { ...MLP_NAMES, ...shared('mlp.shared_experts') },
    wholeNames: { [ROUTER_BIAS]: 'mlp.gate.e_score_correction_bias' },
    reads: ['expert_count'],
    fields: (read) => ({
      ...experts(read, 'n_routed_experts', 'moe_intermediate_size'),
      attention_bias: read.hasTensor('blk.0.attn_q.bias'),
      use_qk_norm: read.hasTensor('blk.0.attn_q_norm.weight'),
      n_shared_experts: read.count('expert_shared_count', 0) ?? 1,
      first_k_dense_replace: read.count('leading_dense_block_count', 0) ?? 0,
      n_group: read.count('expert_group_count') ?? 1,
      topk_group: read.count('expert_group_used_count') ?? 1,
      norm_topk_prob: read.flag('expert_weights_norm') ?? true,
      routed_scaling_factor: read.number('expert_weights_scale') ?? 1,
    }),
  },
  {
    name: 'minimax-m2',
    scores: 'sigmoid',
    modelType: 'minimax_m2',
    className: 'MiniMaxM2ForCausalLM',
    names: SPARSE_NAMES,
    wholeNames: { [ROUTER_BIAS]: 'block_sparse_moe.e_score_correction_bias' },
    reads: ['expert_count'],
    fields: (read) => experts(read, 'num_local_experts', 'intermediate_size'),
  },
  {
    name: 'gpt-oss',
    modelType: 'gpt_oss',
    className: 'GptOssForCausalLM',
    names: {
      ffn_gate_inp: 'mlp.router',
      attn_out: 'self_attn.o_proj',
      ...stacks('mlp.experts'),
    },
    wholeNames: { 'attn_sinks.weight': 'self_attn.sinks' },
    reads: ['expert_count'],
    fields: (read, config) => ({
      ...experts(read, 'num_local_experts', 'intermediate_size'),
      attention_bias: read.hasTensor('blk.0.attn_q.bias'),
      ...slidingLayers(read, 2),
      // The borders of what is stretched are no whole dims in this family.
      ...(config.rope_scaling === undefined
        ? {}
        : { rope_scaling: { ...(config.rope_scaling as JsonObject), truncate: false } }),
    }),
  },
  {
    name: 'ernie4_5-moe',
    modelType: 'ernie4_5_moe',
    className: 'Ernie4_5_MoeForCausalLM',
    names: { ...MLP_NAMES, ...shared('mlp.shared_experts') },
    wholeNames: { [ROUTER_BIAS]: 'mlp.moe_statics.e_score_correction_bias' },
    reads: ['expert_count'],
    fields: (read) => ({
      ...experts(read, 'moe_num_experts', 'moe_intermediate_size'),
      moe_k: read.count('expert_used_count') ?? null,
      moe_num_shared_experts: read.count('expert_shared_count', 0) ?? 0,
      moe_layer_start_index: read.count('leading_dense_block_count', 0) ?? 0,
      moe_layer_interval: read.count('interleave_moe_layer_step') ?? 1,
    }),
  },
  {
    name: 'hunyuan-moe',
    modelType: 'hunyuan_v1_moe',
    className: 'HunYuanMoEV1ForCausalLM',
    names: {
      ...MLP_NAMES,
      ...shared('mlp.shared_mlp'),
      ffn_gate_inp: 'mlp.gate.wg',
      attn_q_norm: 'self_attn.query_layernorm',
      attn_k_norm: 'self_attn.key_layernorm',
    },
    reads: ['expert_count'],
    fields: (read) => ({
      ...experts(read, 'num_experts', 'moe_intermediate_size'),
      moe_topk: read.count('expert_used_count') ?? null,
      num_shared_expert: read.count('expert_shared_count', 0) ?? 1,
      attention_bias: read.hasTensor('blk.0.attn_q.bias'),
    }),
  },
  {
    name: 'hy_v3',
    modelType: 'hy_v3',
    className: 'HYV3ForCausalLM',
    names: { ...MLP_NAMES, ...shared('mlp.shared_mlp'), ffn_gate_inp: 'mlp.router.gate' },
    // Named without an ending; other writers give it that of other architectures.
    wholeNames: { exp_probs_b: 'mlp.expert_bias', [ROUTER_BIAS]: 'mlp.expert_bias' },
    reads: ['expert_count'],
    scores: 'sigmoid',
    fields: hy3,
  },
];

function hy3(read: MetadataReader, config: JsonObject): JsonObject {
  const plain = plainLayers(read);
  const mixed = experts(read, 'num_experts', 'moe_intermediate_size');
  const width = Number(mixed.moe_intermediate_size ?? config.intermediate_size);
  return {
    ...mixed,
    moe_intermediate_size: width,
    mlp_layer_types: Array.from({ length: read.layers }, (_, layer) =>
      plain.includes(layer) ? 'dense' : 'sparse',
    ),
    num_shared_experts: (read.count('expert_shared_feed_forward_length') ?? width) / width,
    route_norm: read.flag('expert_weights_norm') ?? true,
    router_scaling_factor: read.number('expert_weights_scale') ?? 1,
  };
}

/** A llama with experts; undefined where it has none. */
export function mixtral(read: MetadataReader): JsonObject | undefined {
  if ((read.count('expert_count', 0) ?? 0) === 0) return undefined;
  return {
    ...experts(read, 'num_local_experts', 'intermediate_size'),
    model_type: 'mixtral',
    architectures: ['MixtralForCausalLM'],
    sliding_window: read.count('attention.sliding_window', 0) || null,
  };
}

/** How many, how many of them a token is given to, and their width. */
export function experts(read: MetadataReader, count: string, width: string): JsonObject {
  const wide = read.count('expert_feed_forward_length');
  return {
    [count]: read.count('expert_count') ?? null,
    num_experts_per_tok: read.count('expert_used_count') ?? null,
    ...(wide === undefined ? {} : { [width]: wide }),
  };
}

/** Whether any layer has a tensor. */
export function hasAny(read: MetadataReader, name: string): boolean {
  return Array.from({ length: read.layers }, (_, layer) => layer).some((layer) =>
    read.hasTensor(`blk.${layer}.${name}`),
  );
}

/** Layers with an MLP in the place of experts. */
export function plainLayers(read: MetadataReader): number[] {
  return Array.from({ length: read.layers }, (_, layer) => layer).filter(
    (layer) => !read.hasTensor(`blk.${layer}.ffn_gate_inp.weight`),
  );
}
