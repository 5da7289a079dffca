/**
 * The architectures of GGUF files of which only some layers attend: LFM2 convolves in the others, and Qwen3-Next and Qwen3.5 keep a state.
 *
 * Source: what llama.cpp's converters write for each architecture (conversion/lfm2.py, conversion/qwen.py).
 */

import type { JsonObject } from '../../weights/folder-files.js';
import type { GgufArchitecture, MetadataReader } from './architecture.js';
import {
  experts,
  hasAny,
  MLP_NAMES,
  plainLayers,
  ROUTER_BIAS,
  shared,
  stacks,
} from './expert-architectures.js';

/** LFM2's norm before the head is named as if it stood behind the embedding. */
const LFM2_TOP = { token_embd_norm: 'model.embedding_norm', output_norm: 'model.embedding_norm' };

/** LFM2's names of a layer's tensors. */
const LFM2_NAMES = {
  attn_norm: 'operator_norm',
  ffn_norm: 'ffn_norm',
  attn_output: 'self_attn.out_proj',
  attn_q_norm: 'self_attn.q_layernorm',
  attn_k_norm: 'self_attn.k_layernorm',
  'shortconv.conv': 'conv.conv',
  'shortconv.in_proj': 'conv.in_proj',
  'shortconv.out_proj': 'conv.out_proj',
  ffn_gate: 'feed_forward.w1',
  ffn_up: 'feed_forward.w3',
  ffn_down: 'feed_forward.w2',
};

/** Layers without KV heads convolve. */
function lfm2(read: MetadataReader): JsonObject {
  // The decoder of LFM2.5's audio.
  if ((read.count('attention.sliding_window', 0) ?? 0) > 0)
    throw read.unsupported('attention.sliding_window', 'attention within a window');
  const heads = read.list('attention.head_count_kv');
  return {
    norm_eps: read.number('attention.layer_norm_rms_epsilon') ?? 1e-5,
    conv_L_cache: read.count('shortconv.l_cache') ?? 3,
    conv_bias: hasAny(read, 'shortconv.in_proj.bias'),
    block_auto_adjust_ff_dim: false,
    ...(heads === undefined
      ? {}
      : { layer_types: heads.map((count) => (count === 0 ? 'conv' : 'full_attention')) }),
  };
}

/** What hybrids of Qwen call their recurrent layers' tensors. */
const DELTA_NAMES = {
  attn_qkv: 'linear_attn.in_proj_qkv',
  attn_gate: 'linear_attn.in_proj_z',
  ssm_ba: 'linear_attn.in_proj_ba',
  ssm_beta: 'linear_attn.in_proj_b',
  ssm_alpha: 'linear_attn.in_proj_a',
  ssm_conv1d: 'linear_attn.conv1d',
  ssm_norm: 'linear_attn.norm',
  ssm_out: 'linear_attn.out_proj',
};
const DELTA_WHOLE_NAMES = { ssm_a: 'linear_attn.A_log', 'ssm_dt.bias': 'linear_attn.dt_bias' };

/** Layers of a hybrid of Qwen, and what its recurrent ones are. */
function delta(read: MetadataReader): JsonObject {
  const heads = read.count('ssm.time_step_rank');
  const inner = read.count('ssm.inner_size');
  return {
    linear_conv_kernel_dim: read.count('ssm.conv_kernel') ?? 4,
    linear_key_head_dim: read.count('ssm.state_size') ?? null,
    linear_num_key_heads: read.count('ssm.group_count') ?? null,
    linear_num_value_heads: heads ?? null,
    linear_value_head_dim: heads === undefined || inner === undefined ? null : inner / heads,
    layer_types: Array.from({ length: read.layers }, (_, layer) =>
      read.hasTensor(`blk.${layer}.ssm_a`) ? 'linear_attention' : 'full_attention',
    ),
  };
}

/** With a key head for each value head (tiled-heads.ts). */
function tiledDelta(read: MetadataReader): JsonObject {
  const config = delta(read);
  return { ...config, linear_num_key_heads: config.linear_num_value_heads };
}

/** Of hybrids of Qwen with experts. */
function deltaExperts(read: MetadataReader): JsonObject {
  return {
    ...delta(read),
    ...experts(read, 'num_experts', 'moe_intermediate_size'),
    shared_expert_intermediate_size: read.count('expert_shared_feed_forward_length') ?? null,
    mlp_only_layers: plainLayers(read),
    norm_topk_prob: read.flag('expert_weights_norm') ?? true,
  };
}

const SHARED_NAMES = { ...shared('mlp.shared_expert'), ffn_gate_inp_shexp: 'mlp.shared_expert_gate' };

export const HYBRID_ARCHITECTURES: readonly GgufArchitecture[] = [
  {
    name: 'lfm2',
    modelType: 'lfm2',
    className: 'Lfm2ForCausalLM',
    someAttend: true,
    topNames: LFM2_TOP,
    names: LFM2_NAMES,
    fields: lfm2,
  },
  {
    name: 'lfm2moe',
    modelType: 'lfm2_moe',
    className: 'Lfm2MoeForCausalLM',
    scores: 'sigmoid',
    someAttend: true,
    topNames: LFM2_TOP,
    names: { ...LFM2_NAMES, ffn_gate_inp: 'feed_forward.gate', ...stacks('feed_forward.switch_mlp') },
    wholeNames: { [ROUTER_BIAS]: 'feed_forward.expert_bias' },
    reads: ['expert_count'],
    fields: (read) => ({
      ...lfm2(read),
      ...experts(read, 'num_experts', 'moe_intermediate_size'),
      num_dense_layers: read.count('leading_dense_block_count', 0) ?? 0,
      use_expert_bias: hasAny(read, ROUTER_BIAS),
      norm_topk_prob: read.flag('expert_weights_norm') ?? true,
      routed_scaling_factor: read.number('expert_weights_scale') ?? 1,
    }),
  },
  {
    name: 'qwen3next',
    modelType: 'qwen3_next',
    className: 'Qwen3NextForCausalLM',
    bakedNorms: true,
    someAttend: true,
    gatedQueries: true,
    names: {
      ...DELTA_NAMES,
      ...MLP_NAMES,
      ...SHARED_NAMES,
      // Of earlier converters, in place of the two, as the hub has them.
      ssm_in: 'linear_attn.in_proj_qkvz',
    },
    wholeNames: DELTA_WHOLE_NAMES,
    reads: ['expert_count'],
    fields: deltaExperts,
  },
  {
    name: 'qwen35',
    modelType: 'qwen3_5_text',
    className: 'Qwen3_5ForCausalLM',
    bakedNorms: true,
    someAttend: true,
    gatedQueries: true,
    tiledHeads: true,
    names: DELTA_NAMES,
    wholeNames: DELTA_WHOLE_NAMES,
    fields: tiledDelta,
  },
  {
    name: 'qwen35moe',
    modelType: 'qwen3_5_moe_text',
    className: 'Qwen3_5MoeForCausalLM',
    bakedNorms: true,
    someAttend: true,
    gatedQueries: true,
    tiledHeads: true,
    names: {
      ...DELTA_NAMES,
      ...MLP_NAMES,
      ...SHARED_NAMES,
    },
    wholeNames: DELTA_WHOLE_NAMES,
    reads: ['expert_count'],
    fields: (read) => ({ ...deltaExperts(read), ...tiledDelta(read) }),
  },
];
