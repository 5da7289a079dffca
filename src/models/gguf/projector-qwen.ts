/** Projectors of Qwen's towers. Source: see projector-rules.ts. */

import type { JsonObject } from '../../weights/folder-files.js';
import {
  colours,
  inBlock,
  type PlaceRule,
  type ProjectorKind,
  type ProjectorReader,
  rules,
  tokenFields,
} from './projector-rules.js';

const VISUAL = 'visual.blocks.$1.';
const QKV = `${VISUAL}attn.qkv.$2`;
const PATCHES = 'visual.patch_embed.proj';

/** A convolution over two frames. */
export const patchRules: readonly PlaceRule[] = [
  [/^v\.patch_embd\.weight$/, `${PATCHES}.weight`, { part: 0, frames: true }],
  [/^v\.patch_embd\.weight\.1$/, `${PATCHES}.weight`, { part: 1, frames: true }],
  // Both frames in one, as Ollama's files have them.
  [/^v\.patch_embd\.frames$/, `${PATCHES}.weight`, { reordered: (values) => values }],
  [/^v\.patch_embd\.bias$/, `${PATCHES}.bias`],
];
/** Attention and norms of blocks. */
export const qkvRules: readonly PlaceRule[] = [
  [inBlock('attn_qkv'), QKV],
  [inBlock('attn_q'), QKV, { part: 0 }],
  [inBlock('attn_k'), QKV, { part: 1 }],
  [inBlock('attn_v'), QKV, { part: 2 }],
  [inBlock('attn_out'), `${VISUAL}attn.proj.$2`],
  [inBlock('ln1'), `${VISUAL}norm1.$2`],
  [inBlock('ln2'), `${VISUAL}norm2.$2`],
];
const QWEN_COMMON: readonly PlaceRule[] = [...patchRules, ...qkvRules];
const QWEN_MERGER: readonly PlaceRule[] = [
  [/^v\.post_ln\.(weight|bias)$/, 'visual.merger.ln_q.$1'],
  [/^mm\.([02])\.(weight|bias)$/, 'visual.merger.mlp.$1.$2'],
];
const QWEN_TOKENS = {
  image_token_id: '<|image_pad|>',
  video_token_id: '<|video_pad|>',
  vision_start_token_id: '<|vision_start|>',
  vision_end_token_id: '<|vision_end|>',
};

function qwenSection(read: ProjectorReader): JsonObject {
  return {
    depth: read.required('block_count'),
    // The key has had several meanings.
    intermediate_size: read.shape('v.blk.0.ffn_up.weight')?.[0] ?? null,
    num_heads: read.required('attention.head_count'),
    patch_size: read.required('patch_size'),
    spatial_merge_size: read.count('spatial_merge_size') ?? 2,
    temporal_patch_size: 2,
  };
}

const qwenProcessor =
  (least: number, most: number) =>
  (read: ProjectorReader): JsonObject => ({
    image_processor_type: 'Qwen2VLImageProcessor',
    patch_size: read.required('patch_size'),
    merge_size: read.count('spatial_merge_size') ?? 2,
    temporal_patch_size: 2,
    size: {
      shortest_edge: read.count('image_min_pixels') ?? least,
      longest_edge: read.count('image_max_pixels') ?? most,
    },
    ...colours(read),
  });

/** As the checkpoints of Qwen2-VL and Qwen2.5-VL are published, and those of Qwen3-VL. */
const QWEN2_PIXELS = [3136, 12_845_056] as const;
const QWEN3_PIXELS = [65_536, 16_777_216] as const;
/** Positions a second, of all published ones; the config class has another. */
const TOKENS_PER_SECOND = 2;

/** Wrappers of Qwen3-VL and later, by the model's architecture. */
const QWEN3_WRAPPERS: Readonly<Record<string, readonly [string, string]>> = {
  qwen3vl: ['Qwen3VLForConditionalGeneration', 'qwen3_vl'],
  qwen3vlmoe: ['Qwen3VLMoeForConditionalGeneration', 'qwen3_vl_moe'],
  qwen35: ['Qwen3_5ForConditionalGeneration', 'qwen3_5'],
  qwen35moe: ['Qwen3_5MoeForConditionalGeneration', 'qwen3_5_moe'],
};

/** Blocks whose rows the decoder takes as well, rising. */
function added(read: ProjectorReader): number[] {
  return (read.numbers('is_deepstack_layers') ?? []).flatMap((flag, block) => (flag === 0 ? [] : [block]));
}

const qwen3Rules = rules([
  ...QWEN_COMMON,
  [/^v\.position_embd\.weight$/, 'visual.pos_embed.weight'],
  [inBlock('ffn_up'), `${VISUAL}mlp.linear_fc1.$2`],
  [inBlock('ffn_down'), `${VISUAL}mlp.linear_fc2.$2`],
  [/^v\.post_ln\.(weight|bias)$/, 'visual.merger.norm.$1'],
  [/^mm\.0\.(weight|bias)$/, 'visual.merger.linear_fc1.$1'],
  [/^mm\.2\.(weight|bias)$/, 'visual.merger.linear_fc2.$1'],
]);

export const QWEN_KINDS: readonly ProjectorKind[] = [
  {
    types: ['qwen2vl_merger'],
    place: rules([
      ...QWEN_COMMON,
      ...QWEN_MERGER,
      [inBlock('ffn_up'), `${VISUAL}mlp.fc1.$2`],
      [inBlock('ffn_down'), `${VISUAL}mlp.fc2.$2`],
    ]),
    config: (read) => {
      const width = read.required('embedding_length');
      const section = qwenSection(read);
      return {
        architectures: ['Qwen2VLForConditionalGeneration'],
        model_type: 'qwen2_vl',
        vision_config: {
          ...section,
          embed_dim: width,
          hidden_size: read.shape('mm.2.weight')?.[0] ?? null,
          mlp_ratio: (section.intermediate_size as number) / width,
        },
        ...tokenFields(read, QWEN_TOKENS),
      };
    },
    processor: qwenProcessor(...QWEN2_PIXELS),
  },
  {
    types: ['qwen2.5vl_merger'],
    place: rules([
      ...QWEN_COMMON,
      ...QWEN_MERGER,
      [inBlock('ffn_gate'), `${VISUAL}mlp.gate_proj.$2`],
      [inBlock('ffn_up'), `${VISUAL}mlp.up_proj.$2`],
      [inBlock('ffn_down'), `${VISUAL}mlp.down_proj.$2`],
    ]),
    config: (read) => {
      const every = read.count('n_wa_pattern') ?? 8;
      const section = qwenSection(read);
      const blocks = Array.from({ length: section.depth as number }, (_, block) => block);
      return {
        architectures: ['Qwen2_5_VLForConditionalGeneration'],
        model_type: 'qwen2_5_vl',
        vision_config: {
          ...section,
          hidden_size: read.required('embedding_length'),
          out_hidden_size: read.shape('mm.2.weight')?.[0] ?? null,
          window_size: read.count('window_size') ?? 112,
          fullatt_block_indexes: blocks.filter((block) => (block + 1) % every === 0),
          tokens_per_second: TOKENS_PER_SECOND,
        },
        ...tokenFields(read, QWEN_TOKENS),
      };
    },
    processor: qwenProcessor(...QWEN2_PIXELS),
  },
  {
    types: ['qwen3vl_merger'],
    place: (tensor, read) => {
      const [, counted, number, part, kind] =
        /^v\.deepstack(_level)?\.(\d+)\.(norm|fc1|fc2)\.(weight|bias)$/.exec(tensor) ?? [];
      if (number === undefined) return qwen3Rules(tensor, read);
      // Files of llama.cpp number blocks, those of Ollama levels.
      const level = counted === undefined ? added(read).indexOf(Number(number)) : Number(number);
      const inner = part === 'norm' ? part : `linear_${part}`;
      return level < 0 ? undefined : { name: `visual.deepstack_merger_list.${level}.${inner}.${kind}` };
    },
    config: (read) => {
      const wrapper = QWEN3_WRAPPERS[read.architecture] ?? QWEN3_WRAPPERS.qwen3vl!;
      return {
        architectures: [wrapper[0]],
        model_type: wrapper[1],
        vision_config: {
          ...qwenSection(read),
          hidden_size: read.required('embedding_length'),
          out_hidden_size: read.shape('mm.2.weight')?.[0] ?? null,
          num_position_embeddings: read.shape('v.position_embd.weight')?.[0] ?? null,
          deepstack_visual_indexes: added(read),
          hidden_act: 'gelu_pytorch_tanh',
        },
        ...tokenFields(read, QWEN_TOKENS),
      };
    },
    processor: qwenProcessor(...QWEN3_PIXELS),
  },
];
