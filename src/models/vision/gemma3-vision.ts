/** How Gemma 3 sees (arXiv:2503.19786): SigLIP on the picture as one square, means of patches; tokens of a picture see each other. */

import type { VisionFamily } from './family.js';
import { meansProjector } from './projectors.js';
import { readSiglip, SIGLIP } from './siglip.js';
import { vitTower } from './vit-tower.js';

const IMAGE_TOKEN = 262_144;
const TOKENS = 256;

export const gemma3: VisionFamily = {
  name: 'gemma3',
  read(fields, { facts, layout }) {
    const section = fields.object('vision_config');
    if (section === null) return null;
    const encoder = readSiglip(section, 'vision_tower.', SIGLIP);
    const tokens = fields.count('mm_tokens_per_image', TOKENS);
    const mergeSize = encoder.side / Math.sqrt(tokens);
    if (!Number.isInteger(mergeSize)) {
      fields.notice('pictures are refused: patches of a side do not divide into tokens', {
        field: 'mm_tokens_per_image',
      });
      return null;
    }
    const config = { ...encoder, mergeSize, means: true, width: facts.hiddenSize };
    return {
      tower: vitTower(config, meansProjector(encoder.block.norm.eps), layout.groups),
      imageToken: fields.count(['image_token_index', 'image_token_id'], IMAGE_TOKEN, 0),
      mergeSize,
      axes: false,
      ahead: { layers: 'all', most: tokens },
      placeholder: '<start_of_image>',
      pieces: () => ['\n\n<start_of_image>', tokens, '<end_of_image>\n\n'],
      identity: config,
    };
  },
};
