/**
 * Gemma 4 in GGUF files: what differs by kind of layer is in lists, and the frequencies of layers that see all are divided by a list whose
 * largest numbers stand for dims that do not rotate.
 *
 * Source: what llama.cpp's converter writes (conversion/gemma.py, Gemma4Model).
 */

import type { JsonObject } from '../../weights/folder-files.js';
import type { GgufArchitecture, MetadataReader } from './architecture.js';

/** A frequency divided by more does not rotate at all. */
const UNROTATED = 1e20;

export const GEMMA4: GgufArchitecture = {
  name: 'gemma4',
  modelType: 'gemma4_text',
  className: 'Gemma4ForCausalLM',
  lists: ['attention.head_count_kv', 'feed_forward_length'],
  topNames: {
    per_layer_token_embd: 'model.embed_tokens_per_layer',
    per_layer_model_proj: 'model.per_layer_model_projection',
    per_layer_proj_norm: 'model.per_layer_projection_norm',
  },
  names: {
    ffn_norm: 'pre_feedforward_layernorm',
    post_ffw_norm_1: 'post_feedforward_layernorm_1',
    post_ffw_norm_2: 'post_feedforward_layernorm_2',
    pre_ffw_norm_2: 'pre_feedforward_layernorm_2',
    inp_gate: 'per_layer_input_gate',
    proj: 'per_layer_projection',
    post_norm: 'post_per_layer_input_norm',
    ffn_gate_inp: 'router.proj',
    ffn_gate_exps: 'experts.switch_glu.gate_proj',
    ffn_up_exps: 'experts.switch_glu.up_proj',
  },
  wholeNames: {
    'layer_output_scale.weight': 'layer_scalar',
    'ffn_gate_inp.scale': 'router.scale',
    'ffn_down_exps.scale': 'router.per_expert_scale',
    'ffn_gate_up_exps.weight': 'experts.gate_up_proj',
    'ffn_down_exps.weight': 'experts.down_proj',
  },
  reads: ['expert_count', 'rope.freq_base_swa', 'attention.key_length_swa', 'rope.dimension_count_swa'],
  fields,
};

function fields(read: MetadataReader, config: JsonObject): JsonObject {
  const { layers, headDim } = read;
  const pattern = read.pattern('attention.sliding_window_pattern') ?? 6;
  const slides = (layer: number): boolean =>
    typeof pattern === 'number' ? (layer + 1) % pattern !== 0 : pattern[layer] === true;
  const all = Array.from({ length: layers }, (_, layer) => layer);
  // The last one sees all, whatever the list says.
  const full = all.find((layer) => !slides(layer)) ?? layers - 1;
  const sliding = all.find(slides) ?? full;
  const heads = perLayer(read, 'attention.head_count_kv');
  const widths = perLayer(read, 'feed_forward_length');
  const narrow = widths(0);
  const slidingDim = read.count('attention.key_length_swa') ?? headDim;
  const experts = read.count('expert_count', 0) ?? 0;
  return {
    num_key_value_heads: heads(sliding),
    intermediate_size: narrow,
    head_dim: slidingDim,
    global_head_dim: headDim,
    per_layer_config: Object.fromEntries(
      all
        .filter((layer) => !slides(layer) || layer === layers - 1)
        .map((layer) => [layer, { head_dim: headDim, num_key_value_heads: heads(full) }]),
    ),
    attention_k_eq_v: !read.hasTensor(`blk.${full}.attn_v.weight`),
    layer_types: all.map((layer) => (slides(layer) ? 'sliding_attention' : 'full_attention')),
    sliding_window: read.count('attention.sliding_window') ?? 512,
    num_kv_shared_layers: read.count('attention.shared_kv_layers', 0) ?? 0,
    use_double_wide_mlp: narrow !== null && widths(layers - 1) === 2 * narrow,
    hidden_size_per_layer_input: read.count('embedding_length_per_layer_input', 0) ?? 0,
    vocab_size_per_layer_input: read.rows('per_layer_token_embd.weight') ?? null,
    final_logit_softcapping: read.number('final_logit_softcapping') ?? null,
    rope_theta: null,
    rope_scaling: null,
    partial_rotary_factor: null,
    rope_parameters: {
      full_attention: {
        rope_type: 'proportional',
        rope_theta: config.rope_theta,
        partial_rotary_factor: rotatedPart(config.rope_scaling as JsonObject | undefined),
      },
      sliding_attention: {
        rope_type: 'default',
        rope_theta: read.number('rope.freq_base_swa') ?? 10_000,
        partial_rotary_factor: (read.count('rope.dimension_count_swa') ?? slidingDim) / slidingDim,
      },
    },
    enable_moe_block: experts > 0,
    ...(experts === 0
      ? {}
      : {
          num_experts: experts,
          top_k_experts: read.count('expert_used_count') ?? null,
          moe_intermediate_size: read.count('expert_feed_forward_length') ?? null,
        }),
  };
}

/** A number of each layer, or one of all. */
function perLayer(read: MetadataReader, key: string): (layer: number) => number | null {
  const list = read.list(key);
  const one = list === undefined ? (read.count(key) ?? null) : null;
  return (layer) => list?.[layer] ?? one;
}

/** The share of dims whose frequency is one. */
function rotatedPart(scaling: JsonObject | undefined): number {
  const factors = scaling?.short_factor as readonly number[] | undefined;
  if (factors === undefined) return 1;
  return factors.filter((factor) => factor < UNROTATED).length / factors.length;
}
