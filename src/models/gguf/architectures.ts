/**
 * The architectures of GGUF files: what each is called in a config.json, and what llama.cpp's converters changed.
 *
 * Source: what those converters write for each architecture (conversion/*.py), and what llama.cpp's loader takes for granted.
 */

import type { JsonObject } from '../../weights/folder-files.js';
import type { GgufArchitecture, MetadataReader } from './architecture.js';
import { ENCODER_ARCHITECTURES } from './encoder-architectures.js';
import { EXPERT_ARCHITECTURES, mixtral, SPARSE_NAMES, shared, stacks } from './expert-architectures.js';
import { GEMMA4 } from './gemma4.js';
import { HYBRID_ARCHITECTURES } from './hybrid-architectures.js';
import { DEEPSEEK2, MISTRAL4 } from './latent-architectures.js';
import { MAMBA_ARCHITECTURES } from './mamba-architectures.js';
import { slidingLayers } from './sliding-layers.js';

/** Gemma has a norm before the MLP and one behind attention. */
const SANDWICH = { ffn_norm: 'pre_feedforward_layernorm' };
const GEMMA3: GgufArchitecture = {
  name: 'gemma3',
  bakedNorms: true,
  names: SANDWICH,
  modelType: 'gemma3_text',
  className: 'Gemma3ForCausalLM',
  reads: ['rope.freq_base_swa'],
  fields: (read) => ({
    // Where no layer slides converters leave the window out.
    layer_types: Array.from({ length: read.layers }, () => 'full_attention'),
    ...slidingLayers(read, 6),
    rope_local_base_freq: read.number('rope.freq_base_swa') ?? 10_000,
    final_logit_softcapping: read.number('final_logit_softcapping') ?? null,
    query_pre_attn_scalar: gemmaScalar(read, 62),
  }),
};

const GRANITE: GgufArchitecture = {
  name: 'granite',
  pairedRows: true,
  modelType: 'granite',
  reads: ['logit_scale', 'embedding_scale', 'residual_scale'],
  rotates: true,
  className: 'GraniteForCausalLM',
  fields: (read) => ({
    ...biases(read),
    embedding_multiplier: read.number('embedding_scale') ?? 1,
    residual_multiplier: read.number('residual_scale') ?? 1,
    logits_scaling: read.number('logit_scale') ?? 1,
    attention_multiplier: read.number('attention.scale') ?? read.headDim ** -0.5,
  }),
};
const GRANITE_MOE: GgufArchitecture = {
  ...GRANITE,
  name: 'granitemoe',
  modelType: 'granitemoe',
  className: 'GraniteMoeForCausalLM',
  names: {
    ffn_gate_inp: 'block_sparse_moe.router.layer',
    ...stacks('block_sparse_moe.switch_mlp'),
    ...shared('mlp'),
  },
  reads: [...GRANITE.reads!, 'expert_count'],
  fields: (read, config) => ({
    ...GRANITE.fields!(read, config),
    num_local_experts: read.count('expert_count') ?? null,
    num_experts_per_tok: read.count('expert_used_count') ?? null,
    ...beside(read),
  }),
};

/** With an MLP beside the experts it is what a Granite 4 is whose layers all attend. */
function beside(read: MetadataReader): JsonObject {
  const width = read.count('expert_shared_feed_forward_length', 0) ?? 0;
  if (width === 0) return {};
  return {
    model_type: 'granitemoehybrid',
    architectures: ['GraniteMoeHybridForCausalLM'],
    shared_intermediate_size: width,
    position_embedding_type: 'rope',
    layer_types: Array.from({ length: read.layers }, () => 'attention'),
  };
}

export const ARCHITECTURES: readonly GgufArchitecture[] = [
  {
    name: 'llama',
    pairedRows: true,
    modelType: 'llama',
    className: 'LlamaForCausalLM',
    names: SPARSE_NAMES,
    reads: ['expert_count'],
    // Mixtral is one with experts.
    fields: (read) => mixtral(read) ?? biases(read),
  },
  {
    name: 'internlm2',
    pairedRows: true,
    modelType: 'llama',
    className: 'LlamaForCausalLM',
  },
  {
    name: 'xverse',
    pairedRows: true,
    modelType: 'llama',
    className: 'LlamaForCausalLM',
  },
  {
    name: 'qwen2',
    modelType: 'qwen2',
    className: 'Qwen2ForCausalLM',
  },
  {
    name: 'qwen3',
    modelType: 'qwen3',
    className: 'Qwen3ForCausalLM',
  },
  {
    name: 'gemma2',
    bakedNorms: true,
    names: SANDWICH,
    modelType: 'gemma2',
    className: 'Gemma2ForCausalLM',
    fields: (read) => ({
      sliding_window: 4096,
      ...slidingLayers(read, 2),
      attn_logit_softcapping: read.number('attn_logit_softcapping') ?? 50,
      final_logit_softcapping: read.number('final_logit_softcapping') ?? 30,
      query_pre_attn_scalar: gemmaScalar(read, 46),
    }),
  },
  GEMMA3,
  // EmbeddingGemma.
  {
    ...GEMMA3,
    name: 'gemma-embedding',
    className: 'Gemma3TextModel',
    reads: ['attention.causal', 'rope.freq_base_swa'],
    fields: (read, config) => ({ ...GEMMA3.fields!(read, config), use_bidirectional_attention: true }),
  },
  GRANITE,
  GRANITE_MOE,
  {
    name: 'smollm3',
    pairedRows: true,
    modelType: 'smollm3',
    className: 'SmolLM3ForCausalLM',
    fields: (read) => ({ ...biases(read), no_rope_layer_interval: 4 }),
  },
  {
    name: 'phi3',
    modelType: 'phi3',
    joinedQkv: true,
    names: { ffn_up: 'mlp.gate_up_proj' },
    reads: ['rope.scaling.attn_factor'],
    className: 'Phi3ForCausalLM',
    fields: (read) => ({ sliding_window: read.count('attention.sliding_window', 0) || null }),
  },
  {
    name: 'qwen2vl',
    modelType: 'qwen2',
    className: 'Qwen2ForCausalLM',
  },
  {
    name: 'qwen3vl',
    modelType: 'qwen3',
    className: 'Qwen3ForCausalLM',
  },
  {
    name: 'mistral3',
    pairedRows: true,
    modelType: 'mistral',
    className: 'MistralForCausalLM',
    reads: ['attention.temperature_scale', 'rope.scaling.yarn_log_multiplier'],
    fields: ministral,
  },
  {
    name: 'arcee',
    pairedRows: true,
    modelType: 'arcee',
    className: 'ArceeForCausalLM',
    fields: biases,
  },
  {
    name: 'apertus',
    modelType: 'apertus',
    className: 'ApertusForCausalLM',
    names: { attn_norm: 'attention_layernorm', ffn_norm: 'feedforward_layernorm' },
    numbers: {
      'mlp.act_fn.alpha_p': 'xielu.alpha_p',
      'mlp.act_fn.alpha_n': 'xielu.alpha_n',
      'mlp.act_fn.beta': 'xielu.beta',
      'mlp.act_fn.eps': 'xielu.eps',
    },
    fields: (read) => ({ hidden_act: 'xielu', attention_bias: read.hasTensor('blk.0.attn_q.bias') }),
  },
  {
    name: 'seed_oss',
    modelType: 'seed_oss',
    className: 'SeedOssForCausalLM',
    fields: (read) => ({ ...biases(read), attention_out_bias: read.hasTensor('blk.0.attn_output.bias') }),
  },
  {
    name: 'exaone4',
    modelType: 'exaone4',
    className: 'Exaone4ForCausalLM',
    fields: (read) => ({ sliding_window: null, ...slidingLayers(read, 4) }),
  },
  {
    name: 'olmo2',
    modelType: 'olmo2',
    className: 'Olmo2ForCausalLM',
    reads: ['rope.freq_base_swa'],
    fields: olmo,
  },
  {
    name: 'command-r',
    modelType: 'cohere',
    className: 'CohereForCausalLM',
    layerNormEps: 'layer_norm_eps',
    reads: ['logit_scale'],
    fields: (read) => ({
      logit_scale: read.number('logit_scale') ?? 0.0625,
      use_qk_norm: read.hasTensor('blk.0.attn_q_norm.weight'),
      attention_bias: read.hasTensor('blk.0.attn_q.bias'),
    }),
  },
  {
    name: 'cohere2',
    modelType: 'cohere2',
    className: 'Cohere2ForCausalLM',
    layerNormEps: 'layer_norm_eps',
    reads: ['logit_scale'],
    fields: (read) => ({ logit_scale: read.number('logit_scale') ?? 0.0625, ...slidingLayers(read, 4) }),
  },
  {
    name: 'chatglm',
    modelType: 'glm',
    className: 'GlmForCausalLM',
    names: { ffn_up: 'mlp.gate_up_proj' },
    fields: (read) => ({ attention_bias: read.hasTensor('blk.0.attn_q.bias') }),
  },
  {
    name: 'glm4',
    halvedByAxes: true,
    modelType: 'glm4',
    className: 'Glm4ForCausalLM',
    names: {
      ffn_up: 'mlp.gate_up_proj',
      post_attention_norm: 'post_self_attn_layernorm',
      post_ffw_norm: 'post_mlp_layernorm',
    },
    fields: (read) => ({ attention_bias: read.hasTensor('blk.0.attn_q.bias') }),
  },
  {
    name: 'ernie4_5',
    modelType: 'ernie4_5',
    className: 'Ernie4_5ForCausalLM',
    fields: (read) => ({ use_bias: read.hasTensor('blk.0.attn_q.bias') }),
  },
  {
    name: 'hunyuan-dense',
    modelType: 'hunyuan_v1_dense',
    className: 'HunYuanDenseV1ForCausalLM',
    names: {
      attn_q_norm: 'self_attn.query_layernorm',
      attn_k_norm: 'self_attn.key_layernorm',
    },
    fields: (read) => ({ attention_bias: read.hasTensor('blk.0.attn_q.bias') }),
  },
  {
    name: 'nemotron',
    bakedNorms: true,
    modelType: 'nemotron',
    className: 'NemotronForCausalLM',
    layerNormEps: 'norm_eps',
    fields: biases,
  },
  {
    name: 'muse-glimmer',
    pairedRows: true,
    bakedNorms: 'in layers',
    modelType: 'muse_glimmer_text',
    className: null,
    names: { ...SANDWICH, attn_gate: 'self_attn.gate_proj' },
    // Converters make weights of the one number that heads of q are multiplied by.
    constants: { 'attn_q_norm.weight': 'qk_scale_factor', 'attn_k_norm.weight': null },
    reads: ['logit_scale'],
    fields: museGlimmer,
  },
  GEMMA4,
  DEEPSEEK2,
  MISTRAL4,
  ...EXPERT_ARCHITECTURES,
  ...HYBRID_ARCHITECTURES,
  ...MAMBA_ARCHITECTURES,
  ...ENCODER_ARCHITECTURES,
];

/** The scores of the largest Gemmas are scaled by the width of a head had the heads the hidden size between them. */
function gemmaScalar({ headDim, layers, hidden, heads, number }: MetadataReader, largest: number): number {
  const stated = number('attention.scale');
  if (stated !== undefined && stated > 0) return stated ** -2;
  return layers === largest ? hidden / heads : headDim;
}

function biases({ hasTensor }: MetadataReader): JsonObject {
  return {
    attention_bias: hasTensor('blk.0.attn_q.bias'),
    mlp_bias: hasTensor('blk.0.ffn_up.bias'),
  };
}

/** OLMo 3 is one whose layers slide. Those rotate plainly; the others may be stretched. */
function olmo(read: MetadataReader, { rope_theta, rope_scaling }: JsonObject): JsonObject {
  const sliding = slidingLayers(read, 4);
  if (sliding.sliding_window === undefined) return {};
  return {
    ...sliding,
    model_type: 'olmo3',
    architectures: ['Olmo3ForCausalLM'],
    rope_theta: null,
    rope_scaling: null,
    rope_parameters: {
      full_attention: { rope_type: 'default', ...(rope_scaling as JsonObject | undefined), rope_theta },
      sliding_attention: {
        rope_type: 'default',
        rope_theta: read.number('rope.freq_base_swa') ?? rope_theta,
      },
    },
  };
}

/** What sees everything does not rotate. */
function museGlimmer(read: MetadataReader, { rope_theta }: JsonObject): JsonObject {
  const sliding = slidingLayers(read, 4);
  const types = sliding.layer_types as readonly string[] | undefined;
  return {
    ...sliding,
    ...(types === undefined
      ? {}
      : { layer_rope_theta: types.map((type) => (type === 'full_attention' ? 0 : (rope_theta as number))) }),
    final_logit_softcapping: read.number('final_logit_softcapping') ?? 20,
    output_multiplier: read.number('logit_scale') ?? 1,
  };
}

/** Ministral 3 is one whose queries grow. */
function ministral(read: MetadataReader, { rope_scaling }: JsonObject): JsonObject {
  const beta = read.number('attention.temperature_scale') ?? 0;
  const log = read.number('rope.scaling.yarn_log_multiplier') ?? 0;
  const scaling = rope_scaling as JsonObject | undefined;
  const mscale = scaling === undefined || log === 0 ? {} : { mscale: 1, mscale_all_dim: log };
  const window = { sliding_window: read.count('attention.sliding_window', 0) || null };
  if (beta === 0)
    return { ...window, ...(scaling === undefined ? {} : { rope_scaling: { ...scaling, ...mscale } }) };
  return {
    ...window,
    model_type: 'ministral3',
    architectures: ['Ministral3ForCausalLM'],
    rope_scaling: { ...scaling, ...mscale, llama_4_scaling_beta: beta },
  };
}
