/**
 * The tower of Muse Glimmer:
 *
 *     x = norm(patches · W + positions)
 *     the blocks of blocks.ts
 *     features = W3 gelu(W2 gelu(W1 y)), y = norm(x), the patches of a token side by side
 *
 * A patch turns by its column and its row, counted from 1, and sees its window of the picture or, in some blocks, all of it. A window is as
 * large as the square of positions that was learnt, which is resampled to the picture. Rows are in the order of windows, so that what sees
 * each other stands together. Features are normed where the decoder norms its embedding.
 *
 * Source: the model code of transformers (models/muse_glimmer).
 */

import type { UngatedActivation } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import type { MatrixPart, Weights } from '../layout.js';
import { type BlockShape, blockWeights, normed, recordBlock, type TowerNorm } from './blocks.js';
import { finished, resampledTaps, Turns } from './places.js';
import { ALL_BIASES } from './siglip.js';
import type { PatchGrid, PlacedImage, TowerDefinition, TowerTensors } from './tower.js';
import { CHANNELS, FILM, TowerWeights } from './tower-weights.js';

export interface MuseGlimmerTowerConfig {
  readonly block: BlockShape;
  /** `[depth]` whether the patches of a block see their window alone. */
  readonly windowed: readonly boolean[];
  /** Of the norms before and behind the blocks. */
  readonly norm: TowerNorm;
  readonly patchSize: number;
  /** Frames that a patch of the checkpoint spans. */
  readonly frames: number;
  /** Patches a side that become one token. */
  readonly mergeSize: number;
  /** Side of the square of positions, and of a window, in patches. */
  readonly learned: number;
  readonly theta: number;
  /** Width between the layers behind the blocks. */
  readonly inner: number;
  readonly activation: UngatedActivation;
  /** Of the decoder. */
  readonly width: number;
}

/** Where a checkpoint keeps the tower, once its names are read (tensor-names.ts). */
const PREFIX = 'vision_tower.';

/** @param group the placement group of its weights */
export function museGlimmerTower(config: MuseGlimmerTowerConfig, group: number): TowerDefinition {
  const { patchSize, mergeSize, width } = config;
  const weights = new TowerWeights(PREFIX, group);
  const outside = new TowerWeights('', group);
  const probe = listWeights(weights, outside, config);
  return {
    patchValues: CHANNELS * patchSize ** 2,
    patchSize,
    tileSize: null,
    merged: mergeSize ** 2,
    width,
    addedLevels: 0,
    matrices: [...weights.matrices, ...outside.matrices],
    vectors: weights.vectors,
    probe,
    record: (ops, loaded) => record(ops, config, loaded),
    place: (grid) => finished(placeImage(config, grid)),
    placing: (grid) => placeImage(config, grid),
  };
}

function listWeights(weights: TowerWeights, outside: TowerWeights, config: MuseGlimmerTowerConfig): string {
  const { block, windowed, patchSize, frames, mergeSize, learned, inner, width } = config;
  const { hiddenSize } = block;
  const patches = { name: 'patch_embedder.patch_embedding', hiddenSize, patchSize, bias: false, frames };
  const probe = weights.patches('vision.patch', patches, 'linear');
  const table = 'patch_embedder.position_embedding_table.weight';
  weights.vector('vision.positions', table, [learned ** 2, hiddenSize]);
  weights.norm('vision.before', 'ln_pre', hiddenSize, true);
  for (const b of windowed.keys()) {
    const at = `layers.${b}.`;
    const names = {
      norm1: `${at}norm1`,
      norm2: `${at}norm2`,
      qkv: [`${at}attn.q_proj`, `${at}attn.k_proj`, `${at}attn.v_proj`] as const,
      proj: `${at}attn.proj`,
      up: [`${at}mlp.fc1`] as const,
      down: `${at}mlp.fc2`,
    };
    blockWeights(weights, `vision.${b}.`, block, names, ALL_BIASES);
  }
  weights.norm('vision.behind', 'ln_post', hiddenSize, true);
  const first = outside.part('vision_adapter.fc1', inner, false);
  outside.matrix('vision.out.1', hiddenSize * mergeSize ** 2, [patchByPatch(first, hiddenSize, mergeSize)]);
  outside.matrix('vision.out.2', inner, [outside.part('vision_adapter.fc2', inner, false)]);
  outside.matrix('vision.out.3', inner, [outside.part('vision_projection', width, false)]);
  return probe;
}

/** The columns of a part that is stored channel by channel, the patches of a token within, in the order patch, channel. */
function patchByPatch(part: MatrixPart, channels: number, side: number): MatrixPart {
  const [each, cols] = [side ** 2, channels * side ** 2];
  const make = (values: Float32Array): Float32Array =>
    values.map((_, i) => {
      const [first, at] = [i - (i % cols), i % cols];
      return values[first + (at % channels) * each + Math.trunc(at / channels)]!;
    });
  return { ...part, stored: [{ shape: [part.rows, cols], make }] };
}

function record(ops: Ops, config: MuseGlimmerTowerConfig, weights: Weights): TowerTensors {
  const { block, windowed, norm, frames, mergeSize, learned, activation } = config;
  const at = { ops, weights };
  const pixels = ops.input('tokens', weights.matrix('vision.patch').cols);
  const angles = ops.input('tokens', block.hiddenSize / block.heads);
  const taps = ops.input('tokens', 8);
  const whole = ops.input('tokens', 2);
  const windows = ops.input('tokens', 2);
  const motion = frames === FILM ? ops.input('tokens', pixels.cols) : undefined;
  let x = ops.linear(pixels, weights.matrix('vision.patch'));
  if (motion !== undefined) x = ops.linear(motion, weights.matrix('vision.patch.motion'), x);
  x = normed(at, 'vision.before', ops.addGathered(x, weights.vector('vision.positions'), taps), norm);
  for (const [b, within] of windowed.entries()) {
    const sight = within ? { bounds: windows, most: learned ** 2 } : { bounds: whole };
    x = recordBlock(at, `vision.${b}.`, x, block, { angles, ...sight });
  }
  const seen = ops.selectOutputs(normed(at, 'vision.behind', x, norm), mergeSize ** 2);
  const first = ops.act(ops.linear(seen, weights.matrix('vision.out.1')), activation);
  const second = ops.act(ops.linear(first, weights.matrix('vision.out.2')), activation);
  return {
    pixels,
    ...(motion === undefined ? {} : { motion }),
    places: [angles, taps],
    bounds: [whole, windows],
    features: [ops.keep(ops.linear(second, weights.matrix('vision.out.3')))],
  };
}

/** Window by window, and within it patches of a token together. The processor gives patches row by row. */
function* placeImage(
  { block, mergeSize: m, learned, theta }: MuseGlimmerTowerConfig,
  { rows, cols }: PatchGrid,
): Generator<void, PlacedImage> {
  const headDim = block.hiddenSize / block.heads;
  const frequencies = Float64Array.from({ length: headDim / 4 }, (_, i) => theta ** ((-4 * i) / headDim));
  const patches = rows * cols;
  const order = new Uint32Array(patches);
  const turns = new Turns(patches, [frequencies, frequencies]);
  const taps = new Float32Array(patches * 8);
  const whole = new Float32Array(patches * 2);
  const windows = new Float32Array(patches * 2);
  const outputs = new Uint32Array(patches / m ** 2);
  let at = 0;
  for (let top = 0; top < rows; top += learned)
    for (let left = 0; left < cols; left += learned) {
      const [bottom, right] = [Math.min(top + learned, rows), Math.min(left + learned, cols)];
      const [first, end] = [at, at + (bottom - top) * (right - left)];
      for (let y = top; y < bottom; y += m) {
        for (let x = left; x < right; x += m) {
          outputs[(y / m) * (cols / m) + x / m] = at / m ** 2;
          for (let within = 0; within < m * m; within++, at++) {
            const [row, col] = [y + Math.trunc(within / m), x + (within % m)];
            const patch = row * cols + col;
            order[at] = patch;
            turns.set(at, col + 1, row + 1);
            // As the reference: patches are counted row by row, positions of the table as if it had `cols` rows of `rows`.
            const place = [Math.trunc(patch / rows), patch % rows] as const;
            taps.set(resampledTaps(learned, place, [cols, rows]), at * 8);
            whole[at * 2 + 1] = patches;
            windows.set([first, end], at * 2);
          }
        }
        yield;
      }
    }
  return { order, places: [turns.angles, taps], bounds: [whole, windows], outputs };
}
