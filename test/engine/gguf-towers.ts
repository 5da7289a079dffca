/**
 * What sees as an mmproj file, written with the names and the changes of llama.cpp's converters
 * (conversion/qwenvl.py, qwen3vl.py, gemma.py, smolvlm.py, llava.py, intern_vision.py, lfm2.py; names: gguf-py's tensor_mapping.py).
 */

import { writeFile } from 'node:fs/promises';
import { Q8_0, quantise } from '../setup/gguf-quantise.js';
import {
  bool,
  bools,
  f32,
  f32s,
  ggufBytes,
  i32s,
  string,
  u32,
  type Value,
  type WrittenTensor,
} from '../setup/gguf-writer.js';
import { type Named, paired, published, rowsOf, writeGguf } from '../setup/published-tensors.js';
import { readJson } from './vision-fixtures.js';

type Json = Record<string, unknown>;
type Sizes = Record<string, number>;

type Rename = readonly (readonly [RegExp, string])[];

const SIGLIP: Rename = [
  [/^.*embeddings\.patch_embedding/, 'v.patch_embd'],
  [/^.*embeddings\.position_embedding/, 'v.position_embd'],
  [/^.*embeddings\.class_embedding/, 'v.class_embd'],
  [/^.*pre_layrnorm/, 'v.pre_ln'],
  [/^.*post_layernorm/, 'v.post_ln'],
  [/^.*encoder\.layers\.(\d+)\.layer_norm([12])/, 'v.blk.$1.ln$2'],
  [/^.*encoder\.layers\.(\d+)\.self_attn\.([qkv])_proj/, 'v.blk.$1.attn_$2'],
  [/^.*encoder\.layers\.(\d+)\.self_attn\.out_proj/, 'v.blk.$1.attn_out'],
  [/^.*encoder\.layers\.(\d+)\.mlp\.fc1/, 'v.blk.$1.ffn_up'],
  [/^.*encoder\.layers\.(\d+)\.mlp\.fc2/, 'v.blk.$1.ffn_down'],
];
const BLOCKS: Rename = [
  [/^.*visual\.patch_embed\.proj/, 'v.patch_embd'],
  [/^.*visual\.pos_embed/, 'v.position_embd'],
  [/^.*visual\.blocks\.(\d+)\.norm([12])/, 'v.blk.$1.ln$2'],
  [/^.*visual\.blocks\.(\d+)\.attn\.qkv/, 'v.blk.$1.attn_qkv'],
  [/^.*visual\.blocks\.(\d+)\.attn\.proj/, 'v.blk.$1.attn_out'],
  [/^.*visual\.blocks\.(\d+)\.mlp\.(gate|up|down)_proj/, 'v.blk.$1.ffn_$2'],
  [/^.*visual\.blocks\.(\d+)\.mlp\.(?:linear_)?fc1/, 'v.blk.$1.ffn_up'],
  [/^.*visual\.blocks\.(\d+)\.mlp\.(?:linear_)?fc2/, 'v.blk.$1.ffn_down'],
  [/^.*visual\.merger\.(?:ln_q|norm)/, 'v.post_ln'],
  [/^.*visual\.merger\.(?:mlp\.0|linear_fc1)/, 'mm.0'],
  [/^.*visual\.merger\.(?:mlp\.2|linear_fc2)/, 'mm.2'],
];

const LLAVA: Rename = [
  ...SIGLIP,
  [/^.*multi_modal_projector\.linear_1/, 'mm.0'],
  [/^.*multi_modal_projector\.linear_2/, 'mm.2'],
  [/^image_newline$/, 'model.image_newline'],
];

interface Kind {
  readonly type: string;
  readonly names: Rename;
  readonly keys?: (config: Json, section: Sizes, processor: Json) => Record<string, Value>;
  /** What else a converter does. */
  readonly change?: (tensor: Named, section: Sizes) => Named[];
}

const V = 'clip.vision.';
const SCALE = `${V}projector.scale_factor`;
const side = (size: unknown): number => [size].flat()[0] as number;
/** Three tensors of one, and the frames of a patch apart. */
const apart =
  (split: boolean) =>
  (tensor: Named): Named[] => {
    const { name, shape, values } = tensor;
    if (split && name.includes('attn_qkv')) {
      const rows = shape[0]! / 3;
      return ['q', 'k', 'v'].map((one, i) => {
        const part =
          shape.length === 1
            ? { shape: [rows], values: values.slice(i * rows, (i + 1) * rows) }
            : rowsOf(tensor, i * rows, (i + 1) * rows);
        return { ...part, name: name.replace('attn_qkv', `attn_${one}`) };
      });
    }
    if (name !== 'v.patch_embd.weight') return [tensor];
    const [rows, channels, frames, height, width] = shape as [number, number, number, number, number];
    return Array.from({ length: frames }, (_, frame) => {
      const area = height * width;
      const out = new Float32Array(rows * channels * area);
      for (let run = 0; run < rows * channels; run++)
        out.set(
          values.subarray((run * frames + frame) * area, (run * frames + frame + 1) * area),
          run * area,
        );
      const end = frame === 0 ? '' : `.${frame}`;
      return { name: name + end, shape: [rows, channels, height, width], values: out };
    });
  };

/** Of LLaVA-NeXT: sizes of padded pictures, one behind the other. */
const tiles = (config: Json): Record<string, Value> => ({
  [`${V}image_grid_pinpoints`]: i32s((config.image_grid_pinpoints as number[][]).flat()),
  [`${V}mm_patch_merge_type`]: string('spatial_unpad'),
});

const pixels = (_: Json, __: Sizes, processor: Json): Record<string, Value> => {
  const size = (processor.size ?? {}) as Sizes;
  return {
    [`${V}image_min_pixels`]: u32((processor.min_pixels as number) ?? size.shortest_edge!),
    [`${V}image_max_pixels`]: u32((processor.max_pixels as number) ?? size.longest_edge!),
  };
};

export const KINDS: Record<string, Kind> = {
  'qwen2.5-vl': {
    type: 'qwen2.5vl_merger',
    names: BLOCKS,
    keys: (config, section, processor) => ({
      ...pixels(config, section, processor),
      'clip.use_silu': bool(true),
      [`${V}n_wa_pattern`]: u32((section.fullatt_block_indexes as unknown as number[])[0]! + 1),
    }),
    change: apart(true),
  },
  'qwen2-vl': { type: 'qwen2vl_merger', names: BLOCKS, keys: pixels, change: apart(true) },
  'qwen3-vl': qwen3Vl(),
  'qwen3-vl-moe': qwen3Vl(),
  gemma3: {
    type: 'gemma3',
    names: [
      ...SIGLIP,
      [/^.*mm_input_projection_weight$/, 'mm.input_projection.weight'],
      [/^.*mm_soft_emb_norm/, 'mm.soft_emb_norm'],
    ],
    keys: (config, section) => ({
      [SCALE]: u32(
        section.image_size! / section.patch_size! / Math.sqrt(config.mm_tokens_per_image as number),
      ),
    }),
    change: (tensor) => [
      tensor.name === 'mm.soft_emb_norm.weight'
        ? { ...tensor, values: tensor.values.map((w) => w + 1) }
        : tensor,
    ],
  },
  smolvlm: {
    type: 'idefics3',
    names: [...SIGLIP, [/^.*modality_projection\.proj/, 'mm.model.fc']],
    keys: (config, _, processor) => ({
      [SCALE]: u32(config.scale_factor as number),
      [`${V}preproc_image_size`]: u32((processor.size as Sizes).longest_edge!),
    }),
  },
  pixtral: pixtral(),
  mistral3: pixtral(),
  internvl: {
    type: 'internvl',
    names: [
      [/^.*embeddings\.patch_embeddings\.projection/, 'v.patch_embd'],
      [/^.*embeddings\.position_embeddings$/, 'v.position_embd.weight'],
      [/^.*embeddings\.cls_token$/, 'v.class_embd'],
      [/^.*encoder\.layer\.(\d+)\.layernorm_before/, 'v.blk.$1.ln1'],
      [/^.*encoder\.layer\.(\d+)\.layernorm_after/, 'v.blk.$1.ln2'],
      [/^.*encoder\.layer\.(\d+)\.attention\.([qkv])_proj/, 'v.blk.$1.attn_$2'],
      [/^.*encoder\.layer\.(\d+)\.attention\.projection_layer/, 'v.blk.$1.attn_out'],
      [/^.*encoder\.layer\.(\d+)\.lambda_([12])$/, 'v.blk.$1.ls$2.weight'],
      [/^.*encoder\.layer\.(\d+)\.mlp\.fc1/, 'v.blk.$1.ffn_up'],
      [/^.*encoder\.layer\.(\d+)\.mlp\.fc2/, 'v.blk.$1.ffn_down'],
      [/^.*multi_modal_projector\.layer_norm/, 'mm.model.mlp.0'],
      [/^.*multi_modal_projector\.linear_1/, 'mm.model.mlp.1'],
      [/^.*multi_modal_projector\.linear_2/, 'mm.model.mlp.3'],
    ],
    keys: (config, _, processor) => ({
      [SCALE]: u32(1 / (config.downsample_ratio as number)),
      [`${V}preproc_min_tiles`]: u32(processor.min_patches as number),
      [`${V}preproc_max_tiles`]: u32(processor.max_patches as number),
      'clip.use_gelu': bool(true),
    }),
  },
  'lfm2-vl': {
    type: 'lfm2',
    names: [
      ...SIGLIP,
      [/^.*multi_modal_projector\.layer_norm/, 'mm.input_norm'],
      [/^.*multi_modal_projector\.linear_([12])/, 'mm.$1'],
    ],
    keys: (config) => ({ [SCALE]: u32(config.downsample_factor as number) }),
    // Row, column, channel become those of a convolution.
    change: (tensor, section) => {
      if (tensor.name !== 'v.patch_embd.weight') return [tensor];
      const [p, area] = [section.patch_size!, section.patch_size! ** 2];
      const rows = tensor.shape[0]!;
      const values = tensor.values.map((_, i) => {
        const [row, rest] = [Math.floor(i / (3 * area)), i % (3 * area)];
        return tensor.values[row * 3 * area + (rest % area) * 3 + Math.floor(rest / area)]!;
      });
      return [{ name: tensor.name, shape: [rows, 3, p, p], values }];
    },
  },
  glm4v: glm4v(),
  'glm4v-moe': glm4v(),
  'glm-ocr': glm4v(),
  'muse-glimmer': {
    type: 'muse-glimmer',
    names: [
      [/^.*patch_embedder\.patch_embedding/, 'v.patch_embd'],
      [/^.*patch_embedder\.position_embedding_table/, 'v.position_embd'],
      [/^.*vision_tower\.ln_(pre|post)/, 'v.$1_ln'],
      [/^.*vision_tower\.layers\.(\d+)\.norm([12])/, 'v.blk.$1.ln$2'],
      [/^.*vision_tower\.layers\.(\d+)\.attn\.([qkv])_proj/, 'v.blk.$1.attn_$2'],
      [/^.*vision_tower\.layers\.(\d+)\.attn\.proj/, 'v.blk.$1.attn_out'],
      [/^.*vision_tower\.layers\.(\d+)\.mlp\.fc1/, 'v.blk.$1.ffn_up'],
      [/^.*vision_tower\.layers\.(\d+)\.mlp\.fc2/, 'v.blk.$1.ffn_down'],
      [/^.*vision_adapter\.fc1/, 'mm.0'],
      [/^.*vision_adapter\.fc2/, 'mm.1'],
      [/^.*vision_projection/, 'mm.2'],
    ],
    // The converter writes no base: that of published models is the graph's.
    keys: (_, section) => ({
      [`${V}spatial_merge_size`]: u32(section.merge_size!),
      [`${V}rope.freq_base`]: f32((section.rope_parameters as unknown as Sizes).rope_theta!),
    }),
    change: (tensor, section) => {
      const { name, shape, values } = tensor;
      if (/attn_[qk]\./.test(name))
        return [{ ...tensor, values: paired(tensor, section.num_attention_heads!) }];
      if (name !== 'v.patch_embd.weight') return [tensor];
      const [rows, side, frames] = [shape[0]!, section.patch_size!, section.patch_temporal!];
      const area = 3 * side ** 2;
      const summed = Float32Array.from({ length: rows * area }, (_, i) => {
        const at = Math.floor(i / area) * area * frames + (i % area);
        return Array.from({ length: frames }, (_, f) => values[at + f * area]!).reduce((a, b) => a + b);
      });
      return [{ name, shape: [rows, 3, side, side], values: summed }];
    },
  },
  gemma4: gemma4(),
  'gemma4-e': gemma4(),
  'gemma4-unified': {
    type: 'gemma4uv',
    names: [
      [/^.*vision_embedder\.patch_ln([12])/, 'v.patch_norm.$1'],
      [/^.*vision_embedder\.patch_dense/, 'v.patch_embd'],
      [/^.*vision_embedder\.pos_norm/, 'v.patch_norm.3'],
      [/^.*vision_embedder\.pos_embedding$/, 'v.position_embd.weight'],
      [/^.*embed_vision\.embedding_projection/, 'mm.input_projection'],
    ],
    // No tower, and another file hears.
    keys: (_, section) => ({
      'clip.has_audio_encoder': bool(true),
      [`${V}projector_type`]: string('gemma4uv'),
      'clip.audio.projector_type': string('gemma4ua'),
      [`${V}image_size`]: u32(224),
      [`${V}embedding_length`]: u32(section.mm_embed_dim!),
      [`${V}feed_forward_length`]: u32(0),
      [`${V}block_count`]: u32(0),
      [`${V}attention.head_count`]: u32(0),
    }),
    change: (tensor) => {
      const { name, shape, values } = tensor;
      if (name.startsWith('v.patch_norm.1.') || name === 'v.patch_embd.weight')
        return [{ ...tensor, values: channelsFirst(tensor) }];
      if (name !== 'v.position_embd.weight') return [tensor];
      const [positions, axes, width] = shape as [number, number, number];
      const out = values.map((_, i) => {
        const [axis, position] = [Math.floor(i / width / positions), Math.floor(i / width) % positions];
        return values[(position * axes + axis) * width + (i % width)]!;
      });
      return [{ name, shape: [axes, positions, width], values: out }];
    },
  },
  'llava-next': {
    type: 'mlp',
    names: LLAVA,
    keys: (config, section) => ({
      [`${V}block_count`]: u32(section.num_hidden_layers! - 1),
      ...tiles(config),
      [`${V}image_aspect_ratio`]: string('anyres'),
      [`${V}feature_layer`]: i32s([section.num_hidden_layers! - 1]),
    }),
  },
  'llava-onevision': {
    type: 'mlp',
    names: LLAVA,
    keys: (config) => ({
      ...tiles(config),
      [`${V}image_aspect_ratio`]: string(config.vision_aspect_ratio as string),
    }),
  },
  llava: {
    type: 'mlp',
    names: LLAVA,
    // The last layer is left out.
    keys: (_, section) => ({ [`${V}block_count`]: u32(section.num_hidden_layers! - 1) }),
  },
};

function glm4v(): Kind {
  return {
    type: 'glm4v',
    names: [
      [/^.*visual\.patch_embed\.proj/, 'v.patch_embd'],
      [/^.*visual\.post_conv_layernorm/, 'v.norm_embd'],
      [/^.*visual\.embeddings\.position_embedding/, 'v.position_embd'],
      [/^.*visual\.blocks\.(\d+)\.norm([12])/, 'v.blk.$1.ln$2'],
      [/^.*visual\.blocks\.(\d+)\.attn\.([qk])_norm/, 'v.blk.$1.attn_$2_norm'],
      [/^.*visual\.blocks\.(\d+)\.attn\.qkv/, 'v.blk.$1.attn_qkv'],
      [/^.*visual\.blocks\.(\d+)\.attn\.proj/, 'v.blk.$1.attn_out'],
      [/^.*visual\.blocks\.(\d+)\.mlp\.(gate|up|down)_proj/, 'v.blk.$1.ffn_$2'],
      [/^.*visual\.post_layernorm/, 'v.post_ln'],
      [/^.*visual\.downsample/, 'mm.patch_merger'],
      [/^.*visual\.merger\.proj/, 'mm.model.fc'],
      [/^.*visual\.merger\.post_projection_norm/, 'mm.post_norm'],
      [/^.*visual\.merger\.(gate|up|down)_proj/, 'mm.$1'],
    ],
    keys: (_, section) => ({
      [`clip.use_${section.hidden_act as unknown as string}`]: bool(true),
      [`${V}attention.layer_norm_epsilon`]: f32(section.rms_norm_eps!),
    }),
    change: apart(false),
  };
}

/** A tower; of E2B and E4B bounds of products are tensors of one number. */
function gemma4(): Kind {
  const at = String.raw`^.*vision_tower\.encoder\.layers\.(\d+)\.`;
  return {
    type: 'gemma4v',
    names: [
      [/^.*patch_embedder\.input_proj/, 'v.patch_embd'],
      [/^.*patch_embedder\.position_embedding_table$/, 'v.position_embd.weight'],
      [/^.*vision_tower\.std_(bias|scale)$/, 'v.std_$1'],
      [/^.*embed_vision\.embedding_projection/, 'mm.input_projection'],
      [new RegExp(`${at}input_layernorm`), 'v.blk.$1.ln1'],
      [new RegExp(`${at}post_attention_layernorm`), 'v.blk.$1.attn_post_norm'],
      [new RegExp(`${at}pre_feedforward_layernorm`), 'v.blk.$1.ln2'],
      [new RegExp(`${at}post_feedforward_layernorm`), 'v.blk.$1.ffn_post_norm'],
      [new RegExp(`${at}self_attn\\.([qk])_norm`), 'v.blk.$1.attn_$2_norm'],
      [new RegExp(`${at}self_attn\\.([qkv])_proj(?:\\.linear)?`), 'v.blk.$1.attn_$2'],
      [new RegExp(`${at}self_attn\\.o_proj(?:\\.linear)?`), 'v.blk.$1.attn_out'],
      [new RegExp(`${at}mlp\\.(gate|up|down)_proj(?:\\.linear)?`), 'v.blk.$1.ffn_$2'],
    ],
    keys: (_, section) => ({
      [`${V}projector_type`]: string('gemma4v'),
      [`${V}attention.layer_norm_epsilon`]: f32(section.rms_norm_eps ?? 1e-6),
      ...(section.pooling_kernel_size === 3 ? {} : { [SCALE]: u32(section.pooling_kernel_size!) }),
    }),
    change: (tensor, section) => {
      const { name, shape, values } = tensor;
      if (shape.length === 0) return [{ name, shape: [1], values }];
      if (name !== 'v.patch_embd.weight') return [tensor];
      const side = section.patch_size!;
      return [{ name, shape: [shape[0]!, 3, side, side], values: channelsFirst(tensor) }];
    },
  };
}

/** Columns of a patch: all of a channel, then of the next. */
function channelsFirst({ shape, values }: Named): Float32Array {
  const cols = shape.at(-1)!;
  const area = cols / 3;
  return values.map((_, i) => {
    const [row, at] = [Math.floor(i / cols), i % cols];
    return values[row * cols + (at % area) * 3 + Math.floor(at / area)]!;
  });
}

function qwen3Vl(): Kind {
  return {
    type: 'qwen3vl_merger',
    names: [
      ...BLOCKS,
      [/^.*deepstack_merger_list\.(\d+)\.norm/, 'v.deepstack.$1.norm'],
      [/^.*deepstack_merger_list\.(\d+)\.linear_fc([12])/, 'v.deepstack.$1.fc$2'],
    ],
    keys: (config, section, processor) => ({
      ...pixels(config, section, processor),
      [`${V}spatial_merge_size`]: u32(section.spatial_merge_size!),
      [`${V}is_deepstack_layers`]: bools(
        Array.from({ length: section.depth! }, (_, b) =>
          (section.deepstack_visual_indexes as unknown as number[]).includes(b) ? 1 : 0,
        ),
      ),
    }),
    change: (tensor, section) =>
      apart(false)({
        ...tensor,
        name: tensor.name.replace(
          /^v\.deepstack\.(\d+)/,
          (_, level: string) =>
            `v.deepstack.${(section.deepstack_visual_indexes as unknown as number[])[Number(level)]}`,
        ),
      }),
  };
}

function pixtral(): Kind {
  return {
    type: 'pixtral',
    names: [
      [/^.*vision_tower\.patch_conv/, 'v.patch_embd'],
      [/^.*vision_tower\.ln_pre/, 'v.pre_ln'],
      [/^.*transformer\.layers\.(\d+)\.attention_norm/, 'v.blk.$1.ln1'],
      [/^.*transformer\.layers\.(\d+)\.ffn_norm/, 'v.blk.$1.ln2'],
      [/^.*transformer\.layers\.(\d+)\.attention\.([qkv])_proj/, 'v.blk.$1.attn_$2'],
      [/^.*transformer\.layers\.(\d+)\.attention\.o_proj/, 'v.blk.$1.attn_out'],
      [/^.*transformer\.layers\.(\d+)\.feed_forward\.(gate|up|down)_proj/, 'v.blk.$1.ffn_$2'],
      [/^.*multi_modal_projector\.linear_([12])/, 'mm.$1'],
      [/^.*multi_modal_projector\.norm/, 'mm.input_norm'],
      [/^.*patch_merger\.merging_layer/, 'mm.patch_merger'],
    ],
    keys: (config, section) => ({
      [`clip.use_${(section.hidden_act as unknown) === 'silu' ? 'silu' : 'gelu'}`]: bool(true),
      [`${V}rope.freq_base`]: f32((section.rope_parameters as unknown as Sizes).rope_theta!),
      ...(config.spatial_merge_size === undefined
        ? {}
        : { [`${V}spatial_merge_size`]: u32(config.spatial_merge_size as number) }),
    }),
    change: (tensor, section) =>
      /attn_[qk]\./.test(tensor.name)
        ? [{ ...tensor, values: paired(tensor, section.num_attention_heads!) }]
        : [tensor],
  };
}

/** As `--outtype q8_0` has it: products are in blocks, all else stays. */
async function writeQ8(
  path: string,
  metadata: Record<string, Value>,
  tensors: readonly Named[],
): Promise<void> {
  const written = tensors.map(({ name, shape, values }): WrittenTensor => {
    const product = /^(v\.blk\.|mm\.).*weight$/.test(name) && shape.length === 2;
    const data = product ? quantise(values, Q8_0) : new Uint8Array(values.slice().buffer);
    return { name, shape, type: product ? Q8_0.type : 0, data };
  });
  await writeFile(path, ggufBytes({ metadata, tensors: written }));
}

/** @param changes keys that are another, or left out */
export async function writeProjector(
  name: string,
  folder: string,
  path: string,
  changes: Record<string, Value | undefined> = {},
  q8 = false,
): Promise<void> {
  const { type, names, keys, change = (tensor) => [tensor] } = KINDS[name]!;
  const { tensors } = await published(folder);
  const config = readJson(folder, 'config.json');
  const processor = readJson(folder, 'preprocessor_config.json');
  const section = config.vision_config as Sizes;
  const half = [0.5, 0.5, 0.5];
  const stated: Record<string, Value | undefined> = {
    'general.architecture': string('clip'),
    'general.type': string('mmproj'),
    'clip.has_vision_encoder': bool(true),
    'clip.projector_type': string(type),
    [`${V}image_size`]: u32(side(section.image_size ?? 560)),
    [`${V}patch_size`]: u32(side(section.patch_size)),
    // The converter gives Qwen2-VL's MLPs the width of the decoder.
    [`${V}embedding_length`]: u32((section.embed_dim ?? section.hidden_size)!),
    [`${V}feed_forward_length`]: u32((section.intermediate_size ?? section.hidden_size)!),
    [`${V}projection_dim`]: u32((config.text_config as Sizes).hidden_size!),
    [`${V}block_count`]: u32((section.depth ?? section.num_hidden_layers)!),
    [`${V}attention.head_count`]: u32((section.num_heads ?? section.num_attention_heads)!),
    [`${V}attention.layer_norm_epsilon`]: f32(section.layer_norm_eps ?? (type === 'pixtral' ? 1e-5 : 1e-6)),
    [`${V}image_mean`]: f32s((processor.image_mean as number[]) ?? half),
    [`${V}image_std`]: f32s((processor.image_std as number[]) ?? half),
    ...keys?.(config, section, processor),
    ...changes,
  };
  const metadata = Object.fromEntries(
    Object.entries(stated).flatMap(([key, value]) => (value === undefined ? [] : [[key, value] as const])),
  );
  const written = tensors.flatMap((tensor): Named[] => {
    const rule = names.find(([pattern]) => pattern.test(tensor.name));
    const seen = /visual|vision|projector|connector|image_newline/.test(tensor.name);
    if (!seen) return [];
    if (rule === undefined) throw new Error(`nothing is known of ${tensor.name}`);
    return change({ ...tensor, name: tensor.name.replace(...rule) }, section);
  });
  await (q8 ? writeQ8 : writeGguf)(path, metadata, written);
}
