/** How Aya Vision sees (arXiv:2505.08751): SigLIP on tiles, and the whole behind them; four patches a token, and a gated MLP. */

import { normed } from './blocks.js';
import type { VisionFamily } from './family.js';
import type { Projector } from './projectors.js';
import { readSiglip, SIGLIP } from './siglip.js';
import { type PatchGrid, type PromptPiece, tileCount } from './tower.js';
import { onlyAs, readFeatureLayer } from './tower-fields.js';
import { vitTower } from './vit-tower.js';

/** What AyaVisionConfig makes of a SigLIP whose config leaves fields out. */
const DEFAULTS = {
  ...SIGLIP,
  hiddenSize: 1152,
  intermediateSize: 4304,
  depth: 26,
  heads: 14,
  imageSize: 384,
  patchSize: 14,
};
const IMAGE_TOKEN = 255_036;
const AT = 'multi_modal_projector.';

export const ayaVision: VisionFamily = {
  name: 'aya-vision',
  read(fields, { facts, layout }) {
    const section = fields.object('vision_config');
    if (section === null) return null;
    onlyAs(section, 'model_type', 'siglip_vision_model', 'siglip_vision_model');
    onlyAs(fields, 'vision_feature_select_strategy', 'full', 'full');
    const read = readSiglip(section, 'vision_tower.', DEFAULTS);
    const mergeSize = fields.count('downsample_factor', 2);
    if (read.side % mergeSize !== 0)
      throw fields.odd('downsample_factor', mergeSize, `a divisor of a tile's side of ${read.side} patches`);
    const depth = readFeatureLayer(fields, read.depth, -1);
    // What the last block gives, before the norm behind it.
    const encoder = { ...read, depth, names: { ...read.names, behind: null } };
    const config = { ...encoder, mergeSize, width: facts.hiddenSize };
    const inner = fields.count('alignment_intermediate_size', facts.hiddenSize);
    if (inner % 8 !== 0) throw fields.odd('alignment_intermediate_size', inner, 'a multiple of 8');
    const eps = fields.positive('adapter_layer_norm_eps', 1e-6);
    const each = (read.side / mergeSize) ** 2;
    return {
      tower: vitTower(config, gatedProjector(inner, eps), layout.groups),
      imageToken: fields.count(['image_token_index', 'image_token_id'], IMAGE_TOKEN, 0),
      mergeSize,
      axes: false,
      placeholder: '<image>',
      pieces: (grid) => pieces(grid, each),
      identity: { ...config, inner, eps },
    };
  },
};

/** `each`: tokens of a tile. */
function pieces(grid: PatchGrid, each: number): PromptPiece[] {
  const tiles = Array.from({ length: tileCount(grid) - 1 }, (_, i) => [`TILE_${i + 1}`, each]);
  return ['<|START_OF_IMG|>', ...tiles.flat(), 'TILE_GLOBAL', each, '<|END_OF_IMG|>'];
}

/** `W2 (silu(gate) · up)`, with up and gate the halves of `W1 norm(x)`, up first. */
function gatedProjector(inner: number, eps: number): Projector {
  const half = inner / 2;
  return {
    weights(weights, hiddenSize, mergeSize, width) {
      const cols = hiddenSize * mergeSize ** 2;
      weights.norm('vision.out.norm', `${AT}layernorm`, cols, true);
      weights.matrix('vision.out.1', cols, [weights.part(`${AT}linear_1`, inner)]);
      weights.matrix('vision.out.2', half, [weights.part(`${AT}linear_2`, width)]);
    },
    record(at, seen) {
      const { ops, weights } = at;
      const x = normed(at, 'vision.out.norm', seen, { kind: 'layer', eps });
      const both = ops.linear(x, weights.matrix('vision.out.1'));
      const run = (from: number, to: number) => ({
        ...{ x: both, from, to, cols: half },
        ...{ count: 1, fromStep: half, toStep: half },
      });
      const gateFirst = ops.columns(inner, [run(half, 0), run(0, half)]);
      return ops.linear(ops.glu(gateFirst, 'silu'), weights.matrix('vision.out.2'));
    },
  };
}
