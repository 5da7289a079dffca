/**
 * SigLIP 2 on pictures of any size (NaFlex, arXiv:2502.14786): blocks of SigLIP, and positions of a square table that is resized to the
 * patches of a tile.
 *
 *     x = patches · W + taps · table
 *     the blocks of blocks.ts
 *     features = projector(norm(x)), patches of a token side by side
 *
 * A patch sees its tile.
 */

import type { Ops } from '../../device/ops.js';
import { type TileGrid, tileGrids } from '../../media/processor.js';
import type { Weights } from '../layout.js';
import { type BlockShape, blockWeights, normed, recordBlock } from './blocks.js';
import { resizedTaps, visitGroups } from './places.js';
import type { Projector } from './projectors.js';
import { ALL_BIASES, siglipBlock } from './siglip.js';
import type { PatchGrid, PlacedImage, TowerDefinition } from './tower.js';
import { CHANNELS, paddedColumns, TowerWeights } from './tower-weights.js';

export interface NaflexConfig {
  /** What names begin with: `vision_tower.`. */
  readonly prefix: string;
  readonly depth: number;
  readonly block: BlockShape;
  readonly patchSize: number;
  /** Of the table of positions. */
  readonly side: number;
  /** Patches a side that become one token. */
  readonly mergeSize: number;
  /** Of the decoder. */
  readonly width: number;
}

/** @param group the placement group of its weights */
export function naflexTower(config: NaflexConfig, projector: Projector, group: number): TowerDefinition {
  const weights = new TowerWeights(config.prefix, group);
  const probe = listWeights(weights, config);
  const outside = new TowerWeights('', group);
  const { patchSize, mergeSize, width } = config;
  projector.weights(outside, config.block.hiddenSize, mergeSize, width);
  return {
    patchValues: CHANNELS * patchSize ** 2,
    patchSize,
    tileSize: null,
    merged: mergeSize ** 2,
    width,
    addedLevels: 0,
    matrices: [...weights.matrices, ...outside.matrices],
    vectors: [...weights.vectors, ...outside.vectors],
    probe,
    record: (ops, loaded) => record(ops, config, projector, loaded),
    place: (grid) => placeTiles(config, grid),
  };
}

function listWeights(weights: TowerWeights, { block, patchSize, side, depth }: NaflexConfig): string {
  const { hiddenSize } = block;
  const probe = weights.pixelRows('vision.patch', {
    name: 'embeddings.patch_embedding',
    hiddenSize,
    patchSize,
  });
  weights.columns('vision.positions', 'embeddings.position_embedding', side ** 2, hiddenSize);
  for (let b = 0; b < depth; b++) blockWeights(weights, `vision.${b}.`, block, siglipBlock(b), ALL_BIASES);
  weights.norm('vision.behind', 'post_layernorm', hiddenSize, true);
  return probe;
}

function record(
  ops: Ops,
  { block, depth, mergeSize }: NaflexConfig,
  projector: Projector,
  weights: Weights,
): ReturnType<TowerDefinition['record']> {
  const at = { ops, weights };
  const positions = weights.matrix('vision.positions');
  const pixels = ops.input('tokens', weights.matrix('vision.patch').cols);
  const taps = ops.input('tokens', positions.cols);
  const bounds = ops.input('tokens', 2);
  let x = ops.linear(taps, positions, ops.linear(pixels, weights.matrix('vision.patch')));
  for (let b = 0; b < depth; b++) x = recordBlock(at, `vision.${b}.`, x, block, { angles: null, bounds });
  const seen = ops.selectOutputs(normed(at, 'vision.behind', x, block.norm), mergeSize ** 2);
  return { pixels, places: [taps], bounds: [bounds], features: [ops.keep(projector.record(at, seen))] };
}

/** Tile by tile: groups of patches that become a token. */
function placeTiles({ side, mergeSize: m }: NaflexConfig, grid: PatchGrid): PlacedImage {
  const tiles = tileGrids(grid);
  const patches = tiles.reduce((sum, { rows, cols }) => sum + rows * cols, 0);
  const order = new Uint32Array(patches);
  const bounds = new Float32Array(patches * 2);
  const width = paddedColumns(side ** 2);
  const taps = new Float32Array(patches * width);
  let first = 0;
  let row = 0;
  for (const tile of tiles) {
    const end = first + tile.rows * tile.cols;
    const weigh = tileTaps(side, tile);
    visitGroups(tile.rows, tile.cols, m, false, (patch, y, x) => {
      order[row] = first + patch;
      bounds.set([first, end], row * 2);
      weigh(taps.subarray(row * width, (row + 1) * width), y, x);
      row++;
    });
    first = end;
  }
  const outputs = Uint32Array.from({ length: patches / m ** 2 }, (_, group) => group);
  return { order, places: [taps], bounds: [bounds], outputs };
}

/** The weights of all entries of the table for a patch of a tile. */
function tileTaps(
  side: number,
  { rows, cols }: TileGrid,
): (out: Float32Array, row: number, col: number) => void {
  const [down, across] = [resizedTaps(side, rows), resizedTaps(side, cols)];
  return (out, row, col) => {
    for (const [y, wy] of down[row]!.entries())
      for (const [x, wx] of across[col]!.entries()) out[y * side + x] = wy * wx;
  };
}
