/**
 * Towers that see square tiles of one size (CLIP, SigLIP, InternViT), and what makes rows of the decoder's width of what they see:
 *
 *     x = norm(patches · W + positions), beside the patches a row of the tile as a whole (class), where there is one
 *     the blocks of blocks.ts
 *     features = projector(norm(x), patches of a token side by side or each by itself)
 *
 * A patch sees its tile. Positions are rows of a table.
 */

import type { Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import type { Weights } from '../layout.js';
import { type AnyresConfig, anyresRows } from './anyres.js';
import {
  type BlockBiases,
  type BlockNames,
  type BlockShape,
  blockWeights,
  normed,
  recordBlock,
} from './blocks.js';
import { tileBounds, visitGroups } from './places.js';
import type { Projector } from './projectors.js';
import { NO_PATCH, type PatchGrid, type PlacedImage, type TowerDefinition, tileCount } from './tower.js';
import { CHANNELS, TowerWeights } from './tower-weights.js';

export interface VitConfig {
  /** What names begin with: `vision_tower.`. */
  readonly prefix: string;
  /** Blocks that are run. */
  readonly depth: number;
  readonly block: BlockShape;
  readonly patchSize: number;
  /** Side of a tile in pixels. Those at its rim that make no whole patch are left out. */
  readonly tileSize: number;
  /** Patches a side of a tile. */
  readonly side: number;
  readonly names: VitNames;
  readonly biases: BlockBiases;
  /** Patches a side that become one token. */
  readonly mergeSize: number;
  /** A token is the mean of its patches. Default: it has them side by side. */
  readonly means?: boolean;
  /** Tiles are of a padded picture: the tokens are not the patches alone. Default: they are. */
  readonly anyres?: AnyresConfig;
  /** Of the decoder. */
  readonly width: number;
}

/** Names of tensors, those of norms and the convolution without `.weight`. */
export interface VitNames {
  readonly patches: string;
  readonly patchBias: boolean;
  readonly positions: string;
  /** `[side² + class, hidden]`, or with a 1 before. */
  readonly positionAxes: 2 | 3;
  /** The row that is of the tile as a whole; null where there is none. */
  readonly whole: { readonly name: string; readonly shape: readonly number[] } | null;
  /** Before the blocks and behind them; null for none. */
  readonly before: string | null;
  readonly behind: string | null;
  readonly block: (index: number) => BlockNames;
}

/** @param group the placement group of its weights */
export function vitTower(config: VitConfig, projector: Projector, group: number): TowerDefinition {
  const weights = new TowerWeights(config.prefix, group);
  const probe = listWeights(weights, config);
  const outside = new TowerWeights('', group);
  projector.weights(outside, config.block.hiddenSize, config.means ? 1 : config.mergeSize, config.width);
  const { patchSize, mergeSize, width } = config;
  if (config.anyres !== undefined) outside.constant(NEWLINE, 'image_newline', width);
  return {
    patchValues: CHANNELS * patchSize ** 2,
    patchSize,
    tileSize: config.tileSize,
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

const POSITIONS = 'vision.positions';
const NEWLINE = 'vision.newline';

/** Rows of the table: the class, the positions (the first of them that of the class), what patches have as their bias. */
function listWeights(weights: TowerWeights, config: VitConfig): string {
  const { names, block, side, depth, patchSize } = config;
  const { hiddenSize, norm } = block;
  const probe = weights.patches('vision.patch', {
    name: names.patches,
    hiddenSize,
    patchSize,
    bias: names.patchBias,
    frames: null,
  });
  const rows = side ** 2 + (names.whole === null ? 0 : 1);
  const shape = names.positionAxes === 3 ? [1, rows, hiddenSize] : [rows, hiddenSize];
  weights.table(POSITIONS, [
    ...(names.whole === null ? [] : [names.whole]),
    { name: names.positions, shape },
    ...(hasBiasRow(names) ? [{ name: `${names.patches}.bias`, shape: [hiddenSize] }] : []),
  ]);
  const layer = norm.kind === 'layer';
  if (names.before !== null) weights.norm('vision.before', names.before, hiddenSize, layer);
  if (names.behind !== null) weights.norm('vision.behind', names.behind, hiddenSize, layer);
  for (let b = 0; b < depth; b++) blockWeights(weights, `vision.${b}.`, block, names.block(b), config.biases);
  return probe;
}

/** The row of the class has no patch, but the product adds the bias of patches to it: the table takes it off. */
const hasBiasRow = ({ whole, patchBias }: VitNames): boolean => whole !== null && patchBias;

/** Entries of the table that a row is given. */
const tapCount = (names: VitNames): number => (names.whole === null ? 1 : hasBiasRow(names) ? 3 : 2);

function record(
  ops: Ops,
  config: VitConfig,
  projector: Projector,
  weights: Weights,
): ReturnType<TowerDefinition['record']> {
  const { names, block, depth, mergeSize } = config;
  const at = { ops, weights };
  const pixels = ops.input('tokens', weights.matrix('vision.patch').cols);
  const taps = ops.input('tokens', 2 * tapCount(names));
  const bounds = ops.input('tokens', 2);
  const norm = (x: Tensor, key: string, name: string | null): Tensor =>
    name === null ? x : normed(at, key, x, block.norm);
  let x = ops.linear(pixels, weights.matrix('vision.patch'));
  x = norm(ops.addGathered(x, weights.vector(POSITIONS), taps), 'vision.before', names.before);
  for (let b = 0; b < depth; b++) x = recordBlock(at, `vision.${b}.`, x, block, { angles: null, bounds });
  const behind = norm(x, 'vision.behind', names.behind);
  const each = mergeSize ** 2;
  const seen = config.means ? ops.meanOutputs(behind, each) : ops.selectOutputs(behind, each);
  return {
    pixels,
    places: [taps],
    bounds: [bounds],
    features: [ops.keep(projector.record(at, seen))],
    ...(config.anyres !== undefined && { constants: weights.numbers(NEWLINE) }),
  };
}

/** Tile by tile: groups of patches that become a token, the class, and rows of nothing up to a whole group. */
function placeTiles(config: VitConfig, grid: PatchGrid): PlacedImage {
  const { names, side, mergeSize: m } = config;
  if (grid.rows !== side || grid.cols !== side)
    throw new Error(`tiles of ${grid.rows} × ${grid.cols} patches for a tower that takes ${side} × ${side}`);
  const tiles = tileCount(grid);
  const patches = side ** 2;
  const hasClass = names.whole !== null;
  const seen = patches + (hasClass ? 1 : 0);
  const each = Math.ceil(seen / m ** 2) * m ** 2;
  const count = tapCount(names);
  const order = new Uint32Array(tiles * each).fill(NO_PATCH);
  const taps = new Float32Array(tiles * each * 2 * count);
  const outputs = new Uint32Array((tiles * patches) / m ** 2);
  const tap = (row: number, entries: readonly number[], weights: readonly number[]): void => {
    taps.set(entries, row * 2 * count);
    taps.set(weights, row * 2 * count + count);
  };
  let output = 0;
  for (let tile = 0; tile < tiles; tile++) {
    let row = tile * each;
    for (let group = 0; group < patches / m ** 2; group++) outputs[output++] = row / m ** 2 + group;
    visitGroups(side, side, m, false, (patch) => {
      order[row] = tile * patches + patch;
      tap(row++, [patch + (hasClass ? 2 : 0)], [1]);
    });
    if (hasClass) tap(row, [0, 1, patches + 2].slice(0, count), [1, 1, -1].slice(0, count));
  }
  const tokens = config.anyres === undefined ? null : anyresRows(grid, side, config.anyres);
  const bounds = [tileBounds(grid, each, seen)];
  return { order, places: [taps], bounds, outputs, ...(tokens !== null && { tokens }) };
}
