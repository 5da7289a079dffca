/** How InternVL 2 to 3.5 see as OpenGVLab publishes them (`internvl_chat`): the tower of InternVL under other names, pictures cut by config.json. */

import type { ConfigFields } from '../config-fields.js';
import type { VisionFamily } from './family.js';
import { INTERN_VIT, NORM_EPS, readMergeSize } from './internvl-vision.js';
import { twoLayers } from './projectors.js';
import { type Encoder, readEncoder } from './siglip.js';
import { tileCount } from './tower.js';
import { onlyAs, readFeatureLayer } from './tower-fields.js';
import { vitTower } from './vit-tower.js';

const IMAGE_TOKEN = '<IMG_CONTEXT>';
const PROJECTOR = { norm: 'mlp1.0', first: 'mlp1.1', second: 'mlp1.3' };

export const internVlChat: VisionFamily = {
  name: 'internvl-chat',
  read(fields, { facts, layout }) {
    const section = fields.object('vision_config');
    if (section === null) return null;
    onlyAs(fields, 'ps_version', 'v2', 'v2');
    onlyAs(fields, 'pad2square', false, false);
    const encoder = readInternVit(section);
    onlyAs(fields, 'force_image_size', encoder.tileSize, encoder.tileSize);
    const mergeSize = readMergeSize(fields, encoder.side);
    const depth = readFeatureLayer(fields, encoder.depth, -1, 'select_layer');
    const config = { ...encoder, depth, mergeSize, width: facts.hiddenSize };
    const each = (encoder.side / mergeSize) ** 2;
    const projector = twoLayers({ activation: 'gelu', bias: true, norm: NORM_EPS }, PROJECTOR);
    return {
      tower: vitTower(config, projector, layout.groups),
      // Whoever runs it looks for the token in the tokenizer.
      imageToken: IMAGE_TOKEN,
      mergeSize,
      axes: false,
      placeholder: '<image>',
      asText: '<image>\n',
      processor: readProcessor(fields, encoder.tileSize),
      pieces: (grid) => ['<img>', each * tileCount(grid), '</img>'],
      identity: config,
    };
  },
};

/** preprocessor_config.json is of another tower's time: code beside the model cuts pictures, by these. */
function readProcessor(fields: ConfigFields, size: number): Readonly<Record<string, unknown>> {
  const least = fields.count('min_dynamic_patch', 1);
  const most = fields.count('max_dynamic_patch', 12);
  if (most < least) throw fields.odd('max_dynamic_patch', most, 'no less than min_dynamic_patch');
  const cuts = fields.flag('dynamic_image_size', true);
  return {
    image_processor_type: 'InternVLImageProcessor',
    size,
    dynamic_min_num: cuts ? least : 1,
    dynamic_max_num: cuts ? most : 1,
    dynamic_use_thumbnail: fields.flag('use_thumbnail', true),
  };
}

/** InternVisionConfig. */
function readInternVit(fields: ConfigFields): Encoder {
  onlyAs(fields, 'norm_type', 'layer_norm', 'layer_norm');
  onlyAs(fields, 'qk_normalization', false, false);
  const read = readEncoder(fields, INTERN_VIT);
  return {
    ...read,
    prefix: 'vision_model.',
    biases: { qkv: fields.flag('qkv_bias', true), proj: true, mlp: true },
    names: {
      patches: 'embeddings.patch_embedding',
      patchBias: true,
      positions: 'embeddings.position_embedding',
      positionAxes: 3,
      whole: { name: 'embeddings.class_embedding', shape: [1, 1, read.block.hiddenSize] },
      before: null,
      behind: null,
      block: (index) => {
        const at = `encoder.layers.${index}.`;
        return {
          norm1: `${at}norm1`,
          norm2: `${at}norm2`,
          qkv: [`${at}attn.qkv`],
          proj: `${at}attn.proj`,
          up: [`${at}mlp.fc1`],
          down: `${at}mlp.fc2`,
          scales: { proj: `${at}ls1`, down: `${at}ls2` },
        };
      },
    },
  };
}
