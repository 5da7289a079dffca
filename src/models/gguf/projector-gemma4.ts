/**
 * What sees for Gemma 4: a tower, or for 12B what projects pixels. Source: llama.cpp (conversion/gemma.py, mtmd/models/gemma4v.cpp and
 * gemma4uv.cpp).
 */

import type { JsonObject } from '../../weights/folder-files.js';
import {
  type ProjectorKind,
  type ProjectorReader,
  rules,
  type TensorPlace,
  tokenFields,
} from './projector-rules.js';

const CHANNELS = 3;
/** Patches a side of a token, where the file does not say. */
const POOL = 3;
const AT = 'vision_embedder.';

/** Runs of pixels that have all of a channel first become row, column, channel. */
const channelsLast = (values: Float32Array, shape: readonly number[]): Float32Array => {
  const cols = shape.at(-1)!;
  const area = cols / CHANNELS;
  return values.map((_, i) => {
    const [row, at] = [Math.floor(i / cols), i % cols];
    return values[row * cols + (at % CHANNELS) * area + Math.floor(at / CHANNELS)]!;
  });
};

/** `[2, positions, width]` becomes `[positions, 2, width]`. */
const positionsFirst = (values: Float32Array, [, positions, width]: readonly number[]): Float32Array =>
  values.map((_, i) => {
    const [position, axis, at] = [Math.floor(i / width! / 2), Math.floor(i / width!) % 2, i % width!];
    return values[(axis * positions! + position) * width! + at]!;
  });

const NAMES: Readonly<Record<string, TensorPlace>> = {
  'v.patch_norm.1.weight': { name: `${AT}patch_ln1.weight`, reordered: channelsLast },
  'v.patch_norm.1.bias': { name: `${AT}patch_ln1.bias`, reordered: channelsLast },
  'v.patch_embd.weight': { name: `${AT}patch_dense.weight`, reordered: channelsLast },
  'v.patch_embd.bias': { name: `${AT}patch_dense.bias` },
  'v.patch_norm.2.weight': { name: `${AT}patch_ln2.weight` },
  'v.patch_norm.2.bias': { name: `${AT}patch_ln2.bias` },
  'v.position_embd.weight': { name: `${AT}pos_embedding`, reordered: positionsFirst },
  'v.patch_norm.3.weight': { name: `${AT}pos_norm.weight` },
  'v.patch_norm.3.bias': { name: `${AT}pos_norm.bias` },
  'mm.input_projection.weight': { name: 'embed_vision.embedding_projection.weight' },
};

/** Patches a side of a token: `patch_size` is of a patch, the matrix takes what becomes a token. */
function pooled(read: ProjectorReader): {
  readonly patch_size: number;
  readonly pooling_kernel_size: number;
} {
  const cols = read.shape('v.patch_embd.weight')?.at(-1);
  const patch = read.required('patch_size');
  const side = cols === undefined ? patch * POOL : Math.sqrt(cols / CHANNELS);
  return { patch_size: patch, pooling_kernel_size: side / patch };
}

const TOWER = 'vision_tower.';
const LAYER = `${TOWER}encoder.layers.$1.`;
const BLOCK = /^v\.blk\.(\d+)\./.source;
/** A matrix, and the bounds of what goes in and comes out (E2B, E4B). */
const product = (from: string, to: string) =>
  [
    [new RegExp(`${BLOCK}${from}\\.weight$`), `${LAYER}${to}.linear.weight`],
    [new RegExp(`${BLOCK}${from}\\.((?:in|out)put_(?:min|max))$`), `${LAYER}${to}.$2`],
  ] as const;
const norm = (from: string, to: string) =>
  [new RegExp(`${BLOCK}${from}\\.weight$`), `${LAYER}${to}.weight`] as const;

/** A convolution's `[out, channel, row, column]` becomes `[out, (row, column, channel)]`. */
const pixelsFirst = (values: Float32Array, [rows]: readonly number[]): Float32Array =>
  channelsLast(values, [values.length / rows!]);

const TOWER_PLACES = rules([
  [/^v\.patch_embd\.weight$/, `${TOWER}patch_embedder.input_proj.weight`, { reordered: pixelsFirst }],
  [/^v\.position_embd\.weight$/, `${TOWER}patch_embedder.position_embedding_table`],
  [/^v\.std_(bias|scale)(?:\.weight)?$/, `${TOWER}std_$1`],
  [/^mm\.input_projection\.weight$/, 'embed_vision.embedding_projection.weight'],
  norm('ln1', 'input_layernorm'),
  norm('attn_post_norm', 'post_attention_layernorm'),
  norm('ln2', 'pre_feedforward_layernorm'),
  norm('ffn_post_norm', 'post_feedforward_layernorm'),
  norm('attn_q_norm', 'self_attn.q_norm'),
  norm('attn_k_norm', 'self_attn.k_norm'),
  ...product('attn_q', 'self_attn.q_proj'),
  ...product('attn_k', 'self_attn.k_proj'),
  ...product('attn_v', 'self_attn.v_proj'),
  ...product('attn_out', 'self_attn.o_proj'),
  ...product('ffn_gate', 'mlp.gate_proj'),
  ...product('ffn_up', 'mlp.up_proj'),
  ...product('ffn_down', 'mlp.down_proj'),
]);

/** Of the model's vocabulary. */
const TOKENS = {
  image_token_id: '<|image|>',
  boi_token_id: '<|image>',
  eoi_token_id: '<image|>',
};

function towerSizes(read: ProjectorReader): JsonObject {
  const heads = read.required('attention.head_count');
  const inner = read.shape('v.blk.0.attn_q.weight')?.[0];
  return {
    num_hidden_layers: read.required('block_count'),
    hidden_size: read.required('embedding_length'),
    num_attention_heads: heads,
    num_key_value_heads: heads,
    head_dim: inner === undefined ? null : inner / heads,
    intermediate_size: read.required('feed_forward_length'),
    ...(read.flag('use_silu') ? { hidden_activation: 'silu' } : {}),
    rms_norm_eps: read.number('attention.layer_norm_epsilon') ?? null,
    position_embedding_size: read.shape('v.position_embd.weight')?.[1] ?? null,
    standardize: read.shape('v.std_bias') !== undefined || read.shape('v.std_bias.weight') !== undefined,
    use_clipped_linears: read.shape('v.blk.0.attn_q.input_max') !== undefined,
    ...towerPool(read),
  };
}

const towerPool = (read: ProjectorReader): { patch_size: number; pooling_kernel_size: number } => ({
  patch_size: read.required('patch_size'),
  pooling_kernel_size: read.count('projector.scale_factor') ?? POOL,
});

export const GEMMA4_KINDS: readonly ProjectorKind[] = [
  {
    types: ['gemma4v'],
    place: TOWER_PLACES,
    config: (read) => ({
      architectures: ['Gemma4ForConditionalGeneration'],
      model_type: 'gemma4',
      vision_config: towerSizes(read),
      ...tokenFields(read, TOKENS),
    }),
    // Colours are rescaled alone, whatever the file says of their mean.
    processor: (read) => ({ image_processor_type: 'Gemma4ImageProcessor', ...towerPool(read) }),
  },
  {
    types: ['gemma4uv'],
    place: (tensor) => NAMES[tensor],
    config: (read) => ({
      architectures: ['Gemma4UnifiedForConditionalGeneration'],
      model_type: 'gemma4_unified',
      vision_config: {
        ...pooled(read),
        mm_embed_dim: read.required('embedding_length'),
        output_proj_dims: read.required('embedding_length'),
        mm_posemb_size: read.shape('v.position_embd.weight')?.[1] ?? null,
        rms_norm_eps: read.number('attention.layer_norm_epsilon') ?? null,
      },
      ...tokenFields(read, TOKENS),
    }),
    // Colours are rescaled alone, whatever the file says of their mean.
    processor: (read) => ({ image_processor_type: 'Gemma4UnifiedImageProcessor', ...pooled(read) }),
  },
];
