/** Projectors whose towers are SigLIP, CLIP, Pixtral's or InternViT. Source: see projector-rules.ts. */

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

const TOWER = 'vision_tower.';
const PROJECTOR = 'multi_modal_projector.';
const KIND = '(weight|bias)';

/** SigLIP and CLIP. @param at what names begin with */
function siglip(at: string): readonly PlaceRule[] {
  const layer = `${at}encoder.layers.$1.`;
  return [
    [/^v\.patch_embd\.(weight|bias)$/, `${at}embeddings.patch_embedding.$1`],
    [/^v\.position_embd\.weight$/, `${at}embeddings.position_embedding.weight`],
    [/^v\.class_embd(\.weight)?$/, `${at}embeddings.class_embedding`],
    // Spelled so.
    [/^v\.pre_ln\.(weight|bias)$/, `${at}pre_layrnorm.$1`],
    [/^v\.post_ln\.(weight|bias)$/, `${at}post_layernorm.$1`],
    [inBlock('ln1'), `${layer}layer_norm1.$2`],
    [inBlock('ln2'), `${layer}layer_norm2.$2`],
    [inBlock('attn_([qkv])'), `${layer}self_attn.$2_proj.$3`],
    [inBlock('attn_out'), `${layer}self_attn.out_proj.$2`],
    [inBlock('ffn_up'), `${layer}mlp.fc1.$2`],
    [inBlock('ffn_down'), `${layer}mlp.fc2.$2`],
  ];
}

/** The two layers of most projectors. */
const twoLayers = (first: string, second: string): readonly PlaceRule[] => [
  [new RegExp(`^mm\\.${first}\\.${KIND}$`), `${PROJECTOR}linear_1.$1`],
  [new RegExp(`^mm\\.${second}\\.${KIND}$`), `${PROJECTOR}linear_2.$1`],
];

/** Sizes of a tower. */
function section(read: ProjectorReader): JsonObject {
  const eps = read.number('attention.layer_norm_epsilon');
  return {
    hidden_size: read.required('embedding_length'),
    intermediate_size: read.shape('v.blk.0.ffn_up.weight')?.[0] ?? null,
    num_hidden_layers: read.required('block_count'),
    num_attention_heads: read.required('attention.head_count'),
    patch_size: read.required('patch_size'),
    ...(eps === undefined ? {} : { layer_norm_eps: eps }),
  };
}

const SIGLIP_ACT = { hidden_act: 'gelu_pytorch_tanh' };
const square = (side: number): JsonObject => ({ height: side, width: side });
const scale = (read: ProjectorReader, fallback: number): number =>
  read.count('projector.scale_factor') ?? fallback;

/** Gemma's tokens are means of so many patches a side. */
const GEMMA3_SCALE = 4;

const PIXTRAL: ProjectorKind = {
  types: ['pixtral'],
  pairedRows: true,
  place: rules([
    [/^v\.patch_embd\.weight$/, `${TOWER}patch_conv.weight`],
    [/^v\.pre_ln\.weight$/, `${TOWER}ln_pre.weight`],
    [inBlock('ln1'), `${TOWER}transformer.layers.$1.attention_norm.$2`],
    [inBlock('ln2'), `${TOWER}transformer.layers.$1.ffn_norm.$2`],
    [inBlock('attn_([qkv])'), `${TOWER}transformer.layers.$1.attention.$2_proj.$3`],
    [inBlock('attn_out'), `${TOWER}transformer.layers.$1.attention.o_proj.$2`],
    [inBlock('ffn_(gate|up|down)'), `${TOWER}transformer.layers.$1.feed_forward.$2_proj.$3`],
    ...twoLayers('1', '2'),
    [/^mm\.input_norm\.weight$/, `${PROJECTOR}norm.weight`],
    [/^mm\.patch_merger\.weight$/, `${PROJECTOR}patch_merger.merging_layer.weight`],
  ]),
  config: pixtral,
  processor: (read) => ({
    image_processor_type: 'PixtralImageProcessor',
    size: { longest_edge: read.required('image_size') },
    patch_size: read.required('patch_size'),
    resample: 3,
    ...colours(read),
  }),
};

export const ENCODER_KINDS: readonly ProjectorKind[] = [
  {
    types: ['gemma3'],
    place: rules([
      ...siglip(TOWER),
      [/^mm\.input_projection\.weight$/, `${PROJECTOR}mm_input_projection_weight`],
      [/^mm\.soft_emb_norm\.weight$/, `${PROJECTOR}mm_soft_emb_norm.weight`],
    ]),
    config: (read) => {
      const side = Math.floor(read.required('image_size') / read.required('patch_size'));
      return {
        architectures: ['Gemma3ForConditionalGeneration'],
        model_type: 'gemma3',
        vision_config: { ...section(read), ...SIGLIP_ACT, image_size: read.required('image_size') },
        mm_tokens_per_image: Math.floor(side / scale(read, GEMMA3_SCALE)) ** 2,
        ...tokenFields(read, { image_token_index: '<image_soft_token>' }),
      };
    },
    processor: (read) => ({
      image_processor_type: 'Gemma3ImageProcessor',
      size: square(read.required('image_size')),
      resample: 2,
      ...colours(read),
    }),
  },
  {
    types: ['idefics3'],
    place: rules([
      ...siglip('vision_model.'),
      [/^mm\.model\.fc\.weight$/, 'connector.modality_projection.proj.weight'],
    ]),
    config: (read) => ({
      architectures: ['Idefics3ForConditionalGeneration'],
      model_type: 'idefics3',
      vision_config: { ...section(read), ...SIGLIP_ACT, image_size: read.required('image_size') },
      scale_factor: scale(read, 2),
      ...tokenFields(read, { image_token_id: '<image>' }),
    }),
    processor: (read) => ({
      image_processor_type: 'Idefics3ImageProcessor',
      size: { longest_edge: read.count('preproc_image_size') ?? 4 * read.required('image_size') },
      max_image_size: { longest_edge: read.required('image_size') },
      do_image_splitting: true,
      resample: 1,
      ...colours(read),
    }),
  },
  PIXTRAL,
  // As Ollama's files have it.
  { ...PIXTRAL, types: ['pixtral-halves'], pairedRows: false },
  {
    types: ['internvl'],
    place: rules([
      [/^v\.patch_embd\.(weight|bias)$/, `${TOWER}embeddings.patch_embeddings.projection.$1`],
      [/^v\.position_embd(\.weight)?$/, `${TOWER}embeddings.position_embeddings`],
      [/^v\.class_embd(\.weight)?$/, `${TOWER}embeddings.cls_token`],
      [inBlock('ln1'), `${TOWER}encoder.layer.$1.layernorm_before.$2`],
      [inBlock('ln2'), `${TOWER}encoder.layer.$1.layernorm_after.$2`],
      [inBlock('attn_([qkv])'), `${TOWER}encoder.layer.$1.attention.$2_proj.$3`],
      [inBlock('attn_out'), `${TOWER}encoder.layer.$1.attention.projection_layer.$2`],
      [/^v\.blk\.(\d+)\.ls([12])\.weight$/, `${TOWER}encoder.layer.$1.lambda_$2`],
      [inBlock('ffn_up'), `${TOWER}encoder.layer.$1.mlp.fc1.$2`],
      [inBlock('ffn_down'), `${TOWER}encoder.layer.$1.mlp.fc2.$2`],
      [/^mm\.model\.mlp\.0\.(weight|bias)$/, `${PROJECTOR}layer_norm.$1`],
      ...twoLayers('model\\.mlp\\.1', 'model\\.mlp\\.3'),
    ]),
    config: (read) => ({
      architectures: ['InternVLForConditionalGeneration'],
      model_type: 'internvl',
      vision_config: {
        ...section(read),
        image_size: read.required('image_size'),
        hidden_act: read.flag('use_silu') ? 'silu' : 'gelu',
        attention_bias: read.shape('v.blk.0.attn_q.bias') !== undefined,
        norm_type: read.shape('v.blk.0.ln1.bias') === undefined ? 'rms_norm' : 'layer_norm',
      },
      downsample_ratio: 1 / scale(read, 2),
      ...tokenFields(read, { image_token_id: '<IMG_CONTEXT>' }),
    }),
    processor: (read) => ({
      image_processor_type: 'GotOcr2ImageProcessor',
      size: square(read.required('image_size')),
      min_patches: read.count('preproc_min_tiles') ?? 1,
      max_patches: read.count('preproc_max_tiles') ?? 12,
      resample: 3,
      ...colours(read),
    }),
  },
  {
    types: ['lfm2'],
    place: rules([
      ...siglip(TOWER),
      [/^mm\.input_norm\.(weight|bias)$/, `${PROJECTOR}layer_norm.$1`],
      ...twoLayers('1', '2'),
    ]),
    config: (read) => ({
      architectures: ['Lfm2VlForConditionalGeneration'],
      model_type: 'lfm2_vl',
      vision_config: {
        ...section(read),
        ...SIGLIP_ACT,
        num_patches: read.shape('v.position_embd.weight')?.[0] ?? null,
      },
      downsample_factor: scale(read, 2),
      projector_hidden_size: read.shape('mm.1.weight')?.[0] ?? null,
      projector_bias: read.shape('mm.1.bias') !== undefined,
      projector_use_layernorm: read.shape('mm.input_norm.weight') !== undefined,
      ...tokenFields(read, { image_token_id: '<image>' }),
    }),
    // What no key stands for is as published.
    processor: (read) => ({
      image_processor_type: 'Lfm2VlImageProcessor',
      encoder_patch_size: read.required('patch_size'),
      downsample_factor: scale(read, 2),
      min_image_tokens: 64,
      max_image_tokens: 256,
      tile_size: 512,
      min_tiles: 2,
      max_tiles: 10,
      use_thumbnail: true,
      do_image_splitting: true,
      max_pixels_tolerance: 2,
      resample: 2,
      ...colours(read),
    }),
  },
  {
    types: ['mlp'],
    ownProjection: true,
    place: (tensor, read) => {
      const layer = /^v\.blk\.(\d+)\./.exec(tensor)?.[1];
      // Layers behind the one whose rows are taken, and the norm behind all.
      if (layer !== undefined && Number(layer) >= read.required('block_count')) return null;
      return llavaRules(tensor, read);
    },
    config: llava,
    processor: (read) => {
      const side = read.required('image_size');
      const tiles = pinpoints(read);
      const more = { ...(tiles && { image_grid_pinpoints: tiles }), resample: 3, ...colours(read) };
      if (!hasWhole(read))
        return {
          image_processor_type: tiles === null ? 'SiglipImageProcessor' : 'LlavaOnevisionImageProcessor',
          size: square(side),
          ...more,
        };
      return {
        image_processor_type: tiles === null ? 'CLIPImageProcessor' : 'LlavaNextImageProcessor',
        size: { shortest_edge: side },
        crop_size: square(side),
        ...more,
      };
    },
  },
];

/** CLIP has a row of the picture as a whole, SigLIP none. */
const hasWhole = ({ shape }: ProjectorReader): boolean =>
  shape('v.class_embd') !== undefined || shape('v.class_embd.weight') !== undefined;

/** Sizes of padded pictures that are cut into tiles; null where each picture is one square. */
function pinpoints(read: ProjectorReader): number[][] | null {
  const flat = read.numbers('image_grid_pinpoints');
  if (flat === undefined || flat.length === 0) return null;
  return Array.from({ length: Math.ceil(flat.length / 2) }, (_, i) => flat.slice(2 * i, 2 * i + 2));
}

/** LLaVA 1.5; on tiles LLaVA-NeXT (1.6), or where SigLIP sees LLaVA-OneVision. */
function llava(read: ProjectorReader): JsonObject {
  const [clip, tiles] = [hasWhole(read), pinpoints(read)];
  const [architecture, type] =
    tiles === null
      ? ['LlavaForConditionalGeneration', 'llava']
      : clip
        ? ['LlavaNextForConditionalGeneration', 'llava_next']
        : ['LlavaOnevisionForConditionalGeneration', 'llava_onevision'];
  return {
    architectures: [architecture],
    model_type: type,
    vision_config: {
      ...section(read),
      model_type: clip ? 'clip_vision_model' : 'siglip_vision_model',
      image_size: read.required('image_size'),
      // Of SigLIP's GELU files know no word.
      hidden_act: !clip ? 'gelu_pytorch_tanh' : read.flag('use_gelu') ? 'gelu' : 'quick_gelu',
    },
    // The file ends with the layer whose rows are taken.
    vision_feature_layer: -1,
    vision_feature_select_strategy: clip ? 'default' : 'full',
    ...(tiles && { image_grid_pinpoints: tiles }),
    ...(tiles && !clip ? { vision_aspect_ratio: read.word('image_aspect_ratio') ?? 'anyres_max_9' } : {}),
    ...tokenFields(read, { image_token_index: '<image>' }),
  };
}

const llavaRules = rules([
  ...siglip(TOWER),
  ...twoLayers('0', '2'),
  [/^(?:model|v)\.image_newline$/, 'image_newline'],
]);

/** Mistral 3 is one whose patches are merged. */
function pixtral(read: ProjectorReader): JsonObject {
  const merges = read.shape('mm.patch_merger.weight') !== undefined;
  const theta = read.number('rope.freq_base');
  return {
    architectures: [merges ? 'Mistral3ForConditionalGeneration' : 'LlavaForConditionalGeneration'],
    model_type: merges ? 'mistral3' : 'llava',
    vision_config: {
      ...section(read),
      model_type: 'pixtral',
      image_size: read.required('image_size'),
      hidden_act: read.flag('use_silu') ? 'silu' : 'gelu',
      rope_parameters: { rope_type: 'axial', rope_theta: theta ?? 10_000 },
    },
    multimodal_projector_bias: read.shape('mm.1.bias') !== undefined,
    projector_hidden_act: 'gelu',
    vision_feature_layer: -1,
    ...(merges
      ? { spatial_merge_size: read.count('spatial_merge_size') ?? 2 }
      : { vision_feature_select_strategy: 'full' }),
    ...tokenFields(read, { image_token_index: '[IMG]' }),
  };
}
