/** How LFM2-VL sees (arXiv:2511.23404): SigLIP 2 on pictures in their own ratio, and on tiles of large ones; patches of a token side by side. */

import { type ImageTiles, type TileGrid, tileGrids } from '../../media/processor.js';
import type { ConfigFields } from '../config-fields.js';
import type { VisionFamily } from './family.js';
import { type NaflexConfig, naflexTower } from './naflex-tower.js';
import { twoLayers } from './projectors.js';
import { SIGLIP } from './siglip.js';
import type { PatchGrid, PromptPiece } from './tower.js';
import { checkChannels, onlyAs, readActivation, readHeads, readSide } from './tower-fields.js';

const IMAGE_TOKEN = 396;
/** Of nn.LayerNorm. */
const NORM_EPS = 1e-5;

export const lfm2Vl: VisionFamily = {
  name: 'lfm2-vl',
  read(fields, { facts, layout }) {
    const section = fields.object('vision_config');
    if (section === null) return null;
    onlyAs(fields, 'vision_feature_layer', -1, -1);
    onlyAs(fields, 'use_image_special_tokens', true, true);
    const mergeSize = fields.count('downsample_factor', 2);
    const config = { ...readNaflex(section), mergeSize, width: facts.hiddenSize };
    const activation = readActivation(fields, 'gelu', 'projector_hidden_act');
    const bias = fields.flag('projector_bias', true);
    const norm = fields.flag('projector_use_layernorm', true) ? NORM_EPS : null;
    const inner = fields.count('projector_hidden_size', 2560);
    return {
      tower: naflexTower(config, twoLayers({ activation, bias, norm, inner }), layout.groups),
      imageToken: fields.count(['image_token_id', 'image_token_index'], IMAGE_TOKEN, 0),
      mergeSize,
      axes: false,
      placeholder: null,
      pieces: (grid) => pieces(grid, mergeSize),
      identity: { ...config, activation, bias, norm, inner },
    };
  },
};

/** Siglip2VisionConfig. */
function readNaflex(fields: ConfigFields): Omit<NaflexConfig, 'mergeSize' | 'width'> {
  checkChannels(fields, 'num_channels');
  const hiddenSize = fields.count('hidden_size', SIGLIP.hiddenSize);
  const entries = fields.count('num_patches', 256);
  const side = Math.sqrt(entries);
  if (!Number.isInteger(side)) throw fields.odd('num_patches', entries, 'the square of a whole number');
  return {
    prefix: 'vision_tower.',
    depth: fields.count('num_hidden_layers', SIGLIP.depth),
    block: {
      hiddenSize,
      heads: readHeads(fields, 'num_attention_heads', hiddenSize, SIGLIP.heads),
      intermediateSize: fields.count('intermediate_size', SIGLIP.intermediateSize),
      norm: { kind: 'layer', eps: fields.positive('layer_norm_eps', SIGLIP.eps) },
      mlp: { gated: false, activation: readActivation(fields, SIGLIP.activation) },
    },
    patchSize: readSide(fields, 'patch_size', SIGLIP.patchSize),
    side,
  };
}

/** Tiles with their rows and columns in text, and the whole behind them. */
function pieces(grid: PatchGrid, side: number): PromptPiece[] {
  const counts = tileGrids(grid).map(({ rows, cols }: TileGrid) => (rows * cols) / side ** 2);
  const named = counts.flatMap((count, i) => [...nameOf(grid.tiles, i), count]);
  return ['<|image_start|>', ...named, '<|image_end|>'];
}

function nameOf(tiles: ImageTiles | undefined, index: number): string[] {
  if (tiles === undefined) return [];
  const row = Math.floor(index / tiles.cols);
  return [
    row === tiles.rows ? '<|img_thumbnail|>' : `<|img_row_${row + 1}_col_${(index % tiles.cols) + 1}|>`,
  ];
}
