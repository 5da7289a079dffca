/** The projector of Muse Glimmer's tower. Source: llama.cpp (conversion/muse_glimmer.py, mtmd/models/muse-glimmer.cpp). */

import {
  colours,
  inBlock,
  type ProjectorKind,
  type ProjectorReader,
  rules,
  tokenFields,
} from './projector-rules.js';

const TOWER = 'vision_tower.';
const LAYER = `${TOWER}layers.$1.`;
const POSITIONS = 'v.position_embd.weight';

const mergeSize = (read: ProjectorReader): number => read.count('spatial_merge_size') ?? 2;

export const MUSE_KINDS: readonly ProjectorKind[] = [
  {
    types: ['muse-glimmer'],
    pairedRows: true,
    place: rules([
      // Both frames of a patch are summed, and lie as a convolution: the same order.
      [
        /^v\.patch_embd\.weight$/,
        `${TOWER}patch_embedder.patch_embedding.weight`,
        { reordered: (own) => own },
      ],
      [/^v\.position_embd\.weight$/, `${TOWER}patch_embedder.position_embedding_table.weight`],
      [/^v\.(pre|post)_ln\.(weight|bias)$/, `${TOWER}ln_$1.$2`],
      [inBlock('ln([12])'), `${LAYER}norm$2.$3`],
      [inBlock('attn_([qkv])'), `${LAYER}attn.$2_proj.$3`],
      [inBlock('attn_out'), `${LAYER}attn.proj.$2`],
      [inBlock('ffn_up'), `${LAYER}mlp.fc1.$2`],
      [inBlock('ffn_down'), `${LAYER}mlp.fc2.$2`],
      [/^mm\.0\.weight$/, 'vision_adapter.fc1.weight'],
      [/^mm\.1\.weight$/, 'vision_adapter.fc2.weight'],
      [/^mm\.2\.weight$/, 'vision_projection.weight'],
    ]),
    config: (read) => {
      const hidden = read.required('embedding_length');
      const merge = mergeSize(read);
      const learned = Math.round(Math.sqrt(read.shape(POSITIONS)?.[0] ?? 1024));
      return {
        architectures: ['MuseGlimmerForConditionalGeneration'],
        model_type: 'muse_glimmer',
        out_hidden_size: hidden * merge ** 2,
        projector_hidden_size: read.shape('mm.0.weight')?.[0] ?? null,
        vision_config: {
          hidden_size: hidden,
          intermediate_size: read.shape('v.blk.0.ffn_up.weight')?.[0] ?? null,
          num_hidden_layers: read.required('block_count'),
          num_attention_heads: read.required('attention.head_count'),
          layer_norm_eps: read.number('attention.layer_norm_epsilon') ?? null,
          patch_size: read.required('patch_size'),
          patch_temporal: 1,
          merge_size: merge,
          pos_emb_height: learned,
          pos_emb_width: learned,
          rope_parameters: { rope_type: 'axial', rope_theta: read.number('rope.freq_base') ?? 10_000 },
        },
        ...tokenFields(read, { image_token_id: '<|patch|>' }),
      };
    },
    processor: (read) => ({
      image_processor_type: 'MuseGlimmerImageProcessor',
      patch_size: read.required('patch_size'),
      merge_size: mergeSize(read),
      temporal_patch_size: 2,
      ...colours(read),
    }),
  },
];
