/** What projects pixels for Gemma 4 12B: there is no tower. Source: llama.cpp (conversion/gemma.py, mtmd/models/gemma4uv.cpp). */

import {
  type ProjectorKind,
  type ProjectorReader,
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
  'v.patch_norm.1.weight': { name: `${AT}patch_ln1.weight`, turned: channelsLast },
  'v.patch_norm.1.bias': { name: `${AT}patch_ln1.bias`, turned: channelsLast },
  'v.patch_embd.weight': { name: `${AT}patch_dense.weight`, turned: channelsLast },
  'v.patch_embd.bias': { name: `${AT}patch_dense.bias` },
  'v.patch_norm.2.weight': { name: `${AT}patch_ln2.weight` },
  'v.patch_norm.2.bias': { name: `${AT}patch_ln2.bias` },
  'v.position_embd.weight': { name: `${AT}pos_embedding`, turned: positionsFirst },
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

export const GEMMA4_KINDS: readonly ProjectorKind[] = [
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
      ...tokenFields(read, {
        image_token_id: '<|image|>',
        boi_token_id: '<|image>',
        eoi_token_id: '<image|>',
      }),
    }),
    // Colours are rescaled alone, whatever the file says of their mean.
    processor: (read) => ({ image_processor_type: 'Gemma4UnifiedImageProcessor', ...pooled(read) }),
  },
];
