/** Sizes of well-known models, for shapes.ts. */

import type { JsonObject } from '../weights/folder-files.js';

const QWEN3 = {
  architectures: ['Qwen3ForCausalLM'],
  head_dim: 128,
  rope_theta: 1e6,
  max_position_embeddings: 40_960,
};
const QWEN3_MOE = { architectures: ['Qwen3MoeForCausalLM'], norm_topk_prob: true };
const QWEN2 = { architectures: ['Qwen2ForCausalLM'], rope_theta: 1e6, max_position_embeddings: 32_768 };
const LLAMA3 = {
  architectures: ['LlamaForCausalLM'],
  max_position_embeddings: 131_072,
  vocab_size: 128_256,
  rms_norm_eps: 1e-5,
};

function llama3Rope(factor: number): JsonObject {
  return {
    rope_theta: 500_000,
    rope_scaling: {
      rope_type: 'llama3',
      factor,
      low_freq_factor: 1,
      high_freq_factor: 4,
      original_max_position_embeddings: 8192,
    },
  };
}

function sizes(
  hidden: number,
  intermediate: number,
  layers: number,
  heads: number,
  kvHeads: number,
): JsonObject {
  return {
    hidden_size: hidden,
    intermediate_size: intermediate,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: kvHeads,
  };
}

/** Three layers of DeltaNet to one of attention. */
const QWEN35 = {
  head_dim: 256,
  vocab_size: 248_320,
  max_position_embeddings: 262_144,
  rope_parameters: { rope_type: 'default', rope_theta: 1e7, partial_rotary_factor: 0.25 },
};
/** Five layers that slide to one that sees all. */
const GEMMA4 = {
  architectures: ['Gemma4ForCausalLM'],
  vocab_size: 262_144,
  final_logit_softcapping: 30,
  tie_word_embeddings: true,
};

/** Both halves of a picture's model: decoder and tower. */
function seeing(architecture: string, text: JsonObject, vision: JsonObject): JsonObject {
  return {
    architectures: [architecture],
    image_token_id: 151_655,
    video_token_id: 151_656,
    vision_start_token_id: 151_652,
    vision_end_token_id: 151_653,
    text_config: text,
    vision_config: vision,
  };
}

/** The config.json fields of each shape, as published (`demo`: those of models/demo-text). */
export const SHAPES = {
  demo: { ...QWEN3, ...sizes(384, 1024, 8, 4, 2), vocab_size: 4096, tie_word_embeddings: true },
  'qwen3-0.6b': { ...QWEN3, ...sizes(1024, 3072, 28, 16, 8), vocab_size: 151_936, tie_word_embeddings: true },
  'qwen3-1.7b': { ...QWEN3, ...sizes(2048, 6144, 28, 16, 8), vocab_size: 151_936, tie_word_embeddings: true },
  'qwen3-4b': { ...QWEN3, ...sizes(2560, 9728, 36, 32, 8), vocab_size: 151_936, tie_word_embeddings: true },
  'qwen3-8b': { ...QWEN3, ...sizes(4096, 12_288, 36, 32, 8), vocab_size: 151_936 },
  'qwen3-30b-a3b': {
    ...QWEN3,
    ...QWEN3_MOE,
    ...sizes(2048, 6144, 48, 32, 4),
    num_experts: 128,
    num_experts_per_tok: 8,
    moe_intermediate_size: 768,
    vocab_size: 151_936,
  },
  // The same in a size that a small machine holds: 1.0 B parameters, 0.3 B of them active.
  'qwen3-moe-tiny': {
    ...QWEN3,
    ...QWEN3_MOE,
    ...sizes(1024, 3072, 16, 16, 4),
    num_experts: 32,
    num_experts_per_tok: 4,
    moe_intermediate_size: 384,
    vocab_size: 32_768,
    tie_word_embeddings: true,
  },
  // Between the two: 3.7 B parameters, 0.7 B of them active.
  'qwen3-moe-small': {
    ...QWEN3,
    ...QWEN3_MOE,
    ...sizes(1536, 4096, 24, 16, 4),
    num_experts: 64,
    num_experts_per_tok: 8,
    moe_intermediate_size: 512,
    vocab_size: 32_768,
    tie_word_embeddings: true,
  },
  'qwen2.5-0.5b': {
    ...QWEN2,
    ...sizes(896, 4864, 24, 14, 2),
    vocab_size: 151_936,
    tie_word_embeddings: true,
  },
  'qwen2.5-7b': { ...QWEN2, ...sizes(3584, 18_944, 28, 28, 4), vocab_size: 152_064 },
  'llama-1b': { ...LLAMA3, ...sizes(2048, 8192, 16, 32, 8), ...llama3Rope(32), tie_word_embeddings: true },
  'llama-3b': { ...LLAMA3, ...sizes(3072, 8192, 28, 24, 8), ...llama3Rope(32), tie_word_embeddings: true },
  'llama-8b': { ...LLAMA3, ...sizes(4096, 14_336, 32, 32, 8), ...llama3Rope(8) },
  'mistral-7b': {
    architectures: ['MistralForCausalLM'],
    ...sizes(4096, 14_336, 32, 32, 8),
    vocab_size: 32_768,
    max_position_embeddings: 32_768,
    sliding_window: null,
    rope_theta: 1e6,
    rms_norm_eps: 1e-5,
  },
  'gemma-3-4b': {
    architectures: ['Gemma3ForCausalLM'],
    ...sizes(2560, 10_240, 34, 8, 4),
    head_dim: 256,
    sliding_window: 1024,
    query_pre_attn_scalar: 256,
    vocab_size: 262_208,
    rope_theta: 1e6,
    rope_scaling: { rope_type: 'linear', factor: 8 },
    tie_word_embeddings: true,
  },
  'qwen3.5-2b': {
    ...QWEN35,
    architectures: ['Qwen3_5ForCausalLM'],
    ...sizes(2048, 6144, 24, 8, 2),
    linear_num_key_heads: 16,
    linear_num_value_heads: 16,
    tie_word_embeddings: true,
  },
  'qwen3.5-4b': {
    ...QWEN35,
    architectures: ['Qwen3_5ForCausalLM'],
    ...sizes(2560, 9216, 32, 16, 4),
    linear_num_key_heads: 16,
    linear_num_value_heads: 32,
    tie_word_embeddings: true,
  },
  'qwen3.5-27b': {
    ...QWEN35,
    architectures: ['Qwen3_5ForCausalLM'],
    ...sizes(5120, 17_408, 64, 24, 4),
    linear_num_key_heads: 16,
    linear_num_value_heads: 48,
  },
  'qwen3.5-35b-a3b': {
    ...QWEN35,
    architectures: ['Qwen3_5MoeForCausalLM'],
    ...sizes(2048, 512, 40, 16, 2),
    linear_num_key_heads: 16,
    linear_num_value_heads: 32,
    num_experts: 256,
    num_experts_per_tok: 8,
    moe_intermediate_size: 512,
    shared_expert_intermediate_size: 512,
  },
  'gemma-4-e4b': {
    ...GEMMA4,
    ...sizes(2560, 10_240, 42, 8, 2),
    sliding_window: 512,
    num_kv_shared_layers: 18,
    hidden_size_per_layer_input: 256,
  },
  'gemma-4-26b-a4b': {
    ...GEMMA4,
    ...sizes(2816, 2112, 30, 16, 8),
    sliding_window: 1024,
    num_global_key_value_heads: 2,
    attention_k_eq_v: true,
    hidden_size_per_layer_input: 0,
    enable_moe_block: true,
    num_experts: 128,
    top_k_experts: 8,
    moe_intermediate_size: 704,
  },
  'glm-4.7-flash': {
    architectures: ['Glm4MoeLiteForCausalLM'],
    ...sizes(2048, 10_240, 47, 20, 20),
    q_lora_rank: 768,
    kv_lora_rank: 512,
    qk_rope_head_dim: 64,
    qk_nope_head_dim: 192,
    v_head_dim: 256,
    first_k_dense_replace: 1,
    n_routed_experts: 64,
    n_shared_experts: 1,
    num_experts_per_tok: 4,
    moe_intermediate_size: 1536,
    routed_scaling_factor: 1.8,
    vocab_size: 154_880,
    max_position_embeddings: 202_752,
    rope_theta: 1e6,
    rms_norm_eps: 1e-5,
  },
  'granite-4-h-tiny': {
    architectures: ['GraniteMoeHybridForCausalLM'],
    ...sizes(1536, 512, 40, 12, 4),
    shared_intermediate_size: 1024,
    num_local_experts: 64,
    num_experts_per_tok: 6,
    // One of ten layers attends.
    layer_types: Array.from({ length: 40 }, (_, layer) => (layer % 10 === 5 ? 'attention' : 'mamba')),
    mamba_n_heads: 48,
    mamba_d_head: 64,
    mamba_d_state: 128,
    mamba_n_groups: 1,
    position_embedding_type: 'nope',
    attention_multiplier: 0.0078125,
    embedding_multiplier: 12,
    residual_multiplier: 0.22,
    logits_scaling: 6,
    vocab_size: 100_352,
    max_position_embeddings: 131_072,
    rms_norm_eps: 1e-5,
    tie_word_embeddings: true,
  },
  // Random experts are affine: as published they are in FP4, with 6 % less of bytes.
  'gpt-oss-20b': {
    architectures: ['GptOssForCausalLM'],
    ...sizes(2880, 2880, 24, 64, 8),
    head_dim: 64,
    num_local_experts: 32,
    num_experts_per_tok: 4,
    sliding_window: 128,
    vocab_size: 201_088,
    max_position_embeddings: 131_072,
  },
  'qwen2.5-vl-7b': seeing(
    'Qwen2_5_VLForConditionalGeneration',
    {
      ...sizes(3584, 18_944, 28, 28, 4),
      model_type: 'qwen2_5_vl_text',
      rope_parameters: { rope_type: 'default', rope_theta: 1e6, mrope_section: [16, 24, 24] },
      max_position_embeddings: 128_000,
      vocab_size: 152_064,
      rms_norm_eps: 1e-6,
    },
    {
      model_type: 'qwen2_5_vl',
      depth: 32,
      hidden_size: 1280,
      intermediate_size: 3420,
      num_heads: 16,
      out_hidden_size: 3584,
      patch_size: 14,
      window_size: 112,
      fullatt_block_indexes: [7, 15, 23, 31],
      hidden_act: 'silu',
    },
  ),
  'qwen3-vl-8b': seeing(
    'Qwen3VLForConditionalGeneration',
    {
      ...sizes(4096, 12_288, 36, 32, 8),
      model_type: 'qwen3_vl_text',
      head_dim: 128,
      rope_parameters: {
        rope_type: 'default',
        rope_theta: 5e6,
        mrope_section: [24, 20, 20],
        mrope_interleaved: true,
      },
      max_position_embeddings: 262_144,
      vocab_size: 151_936,
      rms_norm_eps: 1e-6,
    },
    {
      model_type: 'qwen3_vl',
      depth: 27,
      hidden_size: 1152,
      intermediate_size: 4304,
      num_heads: 16,
      out_hidden_size: 4096,
      patch_size: 16,
      num_position_embeddings: 2304,
      deepstack_visual_indexes: [8, 16, 24],
      hidden_act: 'gelu_pytorch_tanh',
    },
  ),
  // InternViT-300M in front of Qwen2.5-0.5B.
  'internvl3-1b': {
    architectures: ['InternVLForConditionalGeneration'],
    image_token_id: 151_667,
    downsample_ratio: 0.5,
    text_config: {
      ...QWEN2,
      ...sizes(896, 4864, 24, 14, 2),
      architectures: ['Qwen2ForCausalLM'],
      model_type: 'qwen2',
      vocab_size: 151_674,
      tie_word_embeddings: true,
    },
    vision_config: {
      model_type: 'internvl_vision',
      hidden_size: 1024,
      intermediate_size: 4096,
      num_hidden_layers: 24,
      num_attention_heads: 16,
      image_size: [448, 448],
      patch_size: [14, 14],
      attention_bias: true,
      use_qk_norm: false,
      norm_type: 'layer_norm',
      hidden_act: 'gelu',
    },
  },
} as const satisfies Record<string, JsonObject>;
