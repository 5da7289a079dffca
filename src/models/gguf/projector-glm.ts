/** Projectors of GLM's towers: GLM-4.1V, 4.5V, 4.6V and GLM-OCR. Source: llama.cpp (conversion/qwen3vl.py, mtmd/models/glm4v.cpp). */

import type { JsonObject } from '../../weights/folder-files.js';
import { patchRules, qkvRules } from './projector-qwen.js';
import {
  colours,
  inBlock,
  type ProjectorKind,
  type ProjectorReader,
  rules,
  tokenFields,
} from './projector-rules.js';

const BLOCK = 'visual.blocks.$1.';
const MERGER = 'visual.merger.';

/** Wrappers by the model's architecture; one that has no square of positions is GLM-OCR. */
const WRAPPERS = {
  glm4: ['Glm4vForConditionalGeneration', 'glm4v'],
  glm4moe: ['Glm4vMoeForConditionalGeneration', 'glm4v_moe'],
  ocr: ['GlmOcrForConditionalGeneration', 'glm_ocr'],
} as const;

/** Of both frames that a picture is, by the config class; converters write none. */
const [LEAST_PIXELS, MOST_PIXELS] = [12_544, 11_760_000];

const POSITIONS = 'v.position_embd.weight';
const isOcr = (read: ProjectorReader): boolean => read.shape(POSITIONS) === undefined;

function section(read: ProjectorReader): JsonObject {
  const patch = read.required('patch_size');
  const learned = read.shape(POSITIONS)?.[0];
  const inner = isOcr(read) ? 'v.blk.0.ffn_gate.weight' : 'mm.gate.weight';
  return {
    depth: read.required('block_count'),
    hidden_size: read.required('embedding_length'),
    out_hidden_size: read.shape('mm.down.weight')?.[0] ?? null,
    // The key has had several meanings.
    intermediate_size: read.shape(inner)?.[0] ?? null,
    num_heads: read.required('attention.head_count'),
    hidden_act: read.flag('use_gelu') ? 'gelu' : 'silu',
    rms_norm_eps: read.number('attention.layer_norm_epsilon') ?? null,
    attention_bias: read.shape('v.blk.0.attn_qkv.bias') !== undefined,
    patch_size: patch,
    ...(learned === undefined ? {} : { image_size: Math.round(Math.sqrt(learned)) * patch }),
    spatial_merge_size: read.count('spatial_merge_size') ?? 2,
    temporal_patch_size: 2,
  };
}

export const GLM_KINDS: readonly ProjectorKind[] = [
  {
    types: ['glm4v'],
    place: rules([
      ...patchRules,
      ...qkvRules,
      [/^v\.norm_embd\.weight$/, 'visual.post_conv_layernorm.weight'],
      [/^v\.position_embd\.weight$/, 'visual.embeddings.position_embedding.weight'],
      [inBlock('attn_([qk])_norm'), `${BLOCK}attn.$2_norm.$3`],
      [inBlock('ffn_(gate|up|down)'), `${BLOCK}mlp.$2_proj.$3`],
      [/^v\.post_ln\.weight$/, 'visual.post_layernorm.weight'],
      [/^mm\.patch_merger\.(weight|bias)$/, 'visual.downsample.$1'],
      [/^mm\.model\.fc\.weight$/, `${MERGER}proj.weight`],
      [/^mm\.post_norm\.(weight|bias)$/, `${MERGER}post_projection_norm.$1`],
      [/^mm\.(gate|up|down)\.weight$/, `${MERGER}$1_proj.weight`],
    ]),
    config: (read) => {
      const kind = isOcr(read) ? 'ocr' : read.architecture === 'glm4moe' ? 'glm4moe' : 'glm4';
      const [wrapper, type] = WRAPPERS[kind];
      return {
        architectures: [wrapper],
        model_type: type,
        vision_config: section(read),
        ...tokenFields(read, {
          image_token_id: '<|image|>',
          image_start_token_id: '<|begin_of_image|>',
          image_end_token_id: '<|end_of_image|>',
          video_token_id: '<|video|>',
          video_start_token_id: '<|begin_of_video|>',
          video_end_token_id: '<|end_of_video|>',
        }),
      };
    },
    processor: (read) => ({
      image_processor_type: 'Glm4vImageProcessor',
      patch_size: read.required('patch_size'),
      merge_size: read.count('spatial_merge_size') ?? 2,
      temporal_patch_size: 2,
      size: {
        shortest_edge: read.count('image_min_pixels') ?? LEAST_PIXELS,
        longest_edge: read.count('image_max_pixels') ?? MOST_PIXELS,
      },
      ...colours(read),
    }),
  },
];
