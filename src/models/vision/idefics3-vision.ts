/** How Idefics3 and SmolVLM see (arXiv:2408.12637, arXiv:2504.05299): SigLIP on tiles and on the whole, patches of a token side by side. */

import type { VisionFamily } from './family.js';
import { connector } from './projectors.js';
import { type EncoderDefaults, readSiglip, SIGLIP } from './siglip.js';
import type { PatchGrid, PromptPiece } from './tower.js';
import { vitTower } from './vit-tower.js';

/** Idefics3VisionConfig and SmolVLMVisionConfig. */
const DEFAULTS: EncoderDefaults = { ...SIGLIP, hiddenSize: 1152, heads: 16, patchSize: 32 };
const IMAGE_TOKEN = 128_257;
const AROUND = '<fake_token_around_image>';
const WHOLE = '<global-img>';

export const idefics3: VisionFamily = {
  name: 'idefics3',
  read(fields, { facts, layout }) {
    const section = fields.object('vision_config');
    if (section === null) return null;
    const encoder = readSiglip(section, 'vision_model.', DEFAULTS);
    const mergeSize = fields.count('scale_factor', 2);
    const { side } = encoder;
    if (side % mergeSize !== 0)
      throw fields.odd('scale_factor', mergeSize, `a divisor of a tile's side of ${side} patches`);
    const config = { ...encoder, mergeSize, width: facts.hiddenSize };
    const each = (side / mergeSize) ** 2;
    return {
      tower: vitTower(config, connector, layout.groups),
      imageToken: fields.count('image_token_id', IMAGE_TOKEN, 0),
      mergeSize,
      axes: false,
      placeholder: null,
      pieces: (grid) => pieces(grid, each),
      identity: config,
    };
  },
};

/** `each`: tokens of a tile. */
function pieces({ tiles }: PatchGrid, each: number): PromptPiece[] {
  const whole = [`${AROUND}${WHOLE}`, each, AROUND];
  if (tiles === undefined) return whole;
  const rows = Array.from({ length: tiles.rows }, (_, r) => [
    ...Array.from({ length: tiles.cols }, (_, c) => [`${AROUND}<row_${r + 1}_col_${c + 1}>`, each]).flat(),
    '\n',
  ]);
  return [...rows.flat(), '\n', ...whole];
}
