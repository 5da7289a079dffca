/** SigLIP (arXiv:2303.15343) and CLIP (arXiv:2103.00020), as other models' towers. */

import type { UngatedActivation } from '../../device/graph.js';
import type { ConfigFields } from '../config-fields.js';
import type { BlockNames, BlockShape } from './blocks.js';
import { checkChannels, readActivation, readHeads, readSide } from './tower-fields.js';
import type { VitConfig } from './vit-tower.js';

/** What a config class means by fields that are not there. */
export interface EncoderDefaults {
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly depth: number;
  readonly heads: number;
  readonly imageSize: number;
  readonly patchSize: number;
  readonly activation: UngatedActivation;
  readonly eps: number;
}

/** SiglipVisionConfig. */
export const SIGLIP: EncoderDefaults = {
  hiddenSize: 768,
  intermediateSize: 3072,
  depth: 12,
  heads: 12,
  imageSize: 224,
  patchSize: 16,
  activation: 'gelu-tanh',
  eps: 1e-6,
};

/** CLIPVisionConfig. */
export const CLIP: EncoderDefaults = {
  ...SIGLIP,
  patchSize: 32,
  activation: 'quick-gelu',
  eps: 1e-5,
};

export type Encoder = Omit<VitConfig, 'mergeSize' | 'width'>;

/** The sizes of a tower of square tiles. Errors: `model-config`, `model-config-unsupported`. */
export function readEncoder(
  fields: ConfigFields,
  defaults: EncoderDefaults,
): Pick<Encoder, 'depth' | 'block' | 'patchSize' | 'tileSize' | 'side'> {
  const hiddenSize = fields.count('hidden_size', defaults.hiddenSize);
  checkChannels(fields, 'num_channels');
  const patchSize = readSide(fields, 'patch_size', defaults.patchSize);
  const block: BlockShape = {
    hiddenSize,
    heads: readHeads(fields, 'num_attention_heads', hiddenSize, defaults.heads),
    intermediateSize: fields.count('intermediate_size', defaults.intermediateSize),
    norm: { kind: 'layer', eps: fields.positive('layer_norm_eps', defaults.eps) },
    mlp: { gated: false, activation: readActivation(fields, defaults.activation) },
  };
  const imageSize = readSide(fields, 'image_size', defaults.imageSize);
  if (imageSize < patchSize) throw fields.odd('image_size', imageSize, `at least a patch (${patchSize})`);
  return {
    depth: fields.count('num_hidden_layers', defaults.depth),
    block,
    patchSize,
    tileSize: imageSize,
    side: Math.floor(imageSize / patchSize),
  };
}

export const ALL_BIASES = { qkv: true, proj: true, mlp: true };

/** What tensors of a block are called. */
export function siglipBlock(index: number): BlockNames {
  const at = `encoder.layers.${index}.`;
  return {
    norm1: `${at}layer_norm1`,
    norm2: `${at}layer_norm2`,
    qkv: [`${at}self_attn.q_proj`, `${at}self_attn.k_proj`, `${at}self_attn.v_proj`],
    proj: `${at}self_attn.out_proj`,
    up: [`${at}mlp.fc1`],
    down: `${at}mlp.fc2`,
  };
}

/** @param prefix what names begin with */
export function readSiglip(fields: ConfigFields, prefix: string, defaults = SIGLIP): Encoder {
  return {
    ...readEncoder(fields, defaults),
    prefix,
    biases: ALL_BIASES,
    names: {
      patches: 'embeddings.patch_embedding',
      patchBias: true,
      positions: 'embeddings.position_embedding.weight',
      positionAxes: 2,
      whole: null,
      before: null,
      behind: 'post_layernorm',
      block: siglipBlock,
    },
  };
}

export function readClip(fields: ConfigFields, prefix: string, defaults = CLIP): Encoder {
  const read = readEncoder(fields, defaults);
  return {
    ...read,
    prefix,
    biases: ALL_BIASES,
    names: {
      patches: 'embeddings.patch_embedding',
      patchBias: false,
      positions: 'embeddings.position_embedding.weight',
      positionAxes: 2,
      whole: { name: 'embeddings.class_embedding', shape: [read.block.hiddenSize] },
      // Spelled so.
      before: 'pre_layrnorm',
      behind: null,
      block: siglipBlock,
    },
  };
}
