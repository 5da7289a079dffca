/** How InternVL 2.5, 3 and 3.5 see, as transformers has them (arXiv:2504.10479): InternViT on tiles, four patches a token. */

import type { ConfigFields } from '../config-fields.js';
import type { VisionFamily } from './family.js';
import { twoLayers } from './projectors.js';
import { type Encoder, type EncoderDefaults, readEncoder, SIGLIP } from './siglip.js';
import { tileCount } from './tower.js';
import { onlyAs, readActivation, readFeatureLayer } from './tower-fields.js';
import { vitTower } from './vit-tower.js';

/** InternVLVisionConfig. */
export const INTERN_VIT: EncoderDefaults = {
  ...SIGLIP,
  hiddenSize: 1024,
  intermediateSize: 4096,
  depth: 24,
  heads: 16,
  imageSize: 448,
  patchSize: 14,
  activation: 'gelu',
};
const IMAGE_TOKEN = 151_667;
/** Of nn.LayerNorm. */
export const NORM_EPS = 1e-5;

export const internVl: VisionFamily = {
  name: 'internvl',
  read(fields, { facts, layout }) {
    const section = fields.object('vision_config');
    if (section === null) return null;
    const encoder = readInternVit(section);
    onlyAs(fields, 'vision_feature_select_strategy', 'default', 'default');
    const mergeSize = readMergeSize(fields, encoder.side);
    const depth = readFeatureLayer(fields, encoder.depth, -1);
    const config = { ...encoder, depth, mergeSize, width: facts.hiddenSize };
    const activation = readActivation(fields, 'gelu', 'projector_hidden_act');
    const each = (encoder.side / mergeSize) ** 2;
    const projector = twoLayers({ activation, bias: true, norm: NORM_EPS });
    return {
      tower: vitTower(config, projector, layout.groups),
      imageToken: fields.count('image_token_id', IMAGE_TOKEN, 0),
      mergeSize,
      axes: false,
      placeholder: null,
      pieces: (grid) => ['<img>', each * tileCount(grid), '</img>'],
      identity: { ...config, activation },
    };
  },
};

/** `side`: patches a side of a tile. Errors: `model-config`. */
export function readMergeSize(fields: ConfigFields, side: number): number {
  const ratio = fields.positive('downsample_ratio', 0.5);
  const mergeSize = Math.trunc(1 / ratio);
  if (side % mergeSize === 0 && mergeSize * ratio === 1) return mergeSize;
  throw fields.odd('downsample_ratio', ratio, `one by a divisor of a tile's side of ${side} patches`);
}

function readInternVit(fields: ConfigFields): Encoder {
  onlyAs(fields, 'norm_type', 'layer_norm', 'layer_norm');
  onlyAs(fields, 'use_qk_norm', false, false);
  onlyAs(fields, 'use_absolute_position_embeddings', true, true);
  onlyAs(fields, 'use_mean_pooling', true, true);
  const read = readEncoder(fields, INTERN_VIT);
  const { hiddenSize } = read.block;
  return {
    ...read,
    prefix: 'vision_tower.',
    biases: { qkv: fields.flag('attention_bias', false), proj: true, mlp: true },
    names: {
      patches: 'embeddings.patch_embeddings.projection',
      patchBias: true,
      positions: 'embeddings.position_embeddings',
      positionAxes: 3,
      whole: { name: 'embeddings.cls_token', shape: [1, 1, hiddenSize] },
      before: null,
      behind: null,
      block: (index) => {
        const at = `encoder.layer.${index}.`;
        return {
          norm1: `${at}layernorm_before`,
          norm2: `${at}layernorm_after`,
          qkv: [`${at}attention.q_proj`, `${at}attention.k_proj`, `${at}attention.v_proj`],
          proj: `${at}attention.projection_layer`,
          up: [`${at}mlp.fc1`],
          down: `${at}mlp.fc2`,
          scales: { proj: `${at}lambda_1`, down: `${at}lambda_2` },
        };
      },
    },
  };
}
