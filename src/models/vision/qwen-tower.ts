/**
 * The towers of Qwen2-VL, Qwen2.5-VL and Qwen3-VL (arXiv:2409.12191, arXiv:2502.13923, arXiv:2511.21631):
 *
 *     x = patches · W (+ positions)
 *     the blocks of blocks.ts
 *     features = linear(gelu(linear(norm(x), the patches of a token side by side)))
 *
 * A patch turns by its row and its column in the picture, and sees its window or the whole picture. Rows are in the order of
 * windows, so that what sees each other stands together; the features are put back into reading order. Qwen3-VL makes features of some
 * blocks as well, which the decoder adds behind its first layers.
 */

import type { Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import type { Weights } from '../layout.js';
import { blockWeights, normed, recordBlock, type TowerRecording } from './blocks.js';
import { bilinearTaps, finished, Turns } from './places.js';
import type { QwenTowerConfig, QwenTowerKind } from './qwen-config.js';
import type { PatchGrid, PlacedImage, TowerDefinition, TowerTensors } from './tower.js';
import { CHANNELS, FILM, TowerWeights } from './tower-weights.js';

/** Where a checkpoint keeps the tower, once its names are read (tensor-names.ts). */
const PREFIX = 'visual.';

/** @param group the placement group of its weights */
export function qwenTower(config: QwenTowerConfig, kind: QwenTowerKind, group: number): TowerDefinition {
  const { patchSize, mergeSize, width, added } = config;
  const weights = new TowerWeights(PREFIX, group);
  const probe = listWeights(weights, config, kind);
  const { matrices, vectors } = weights;
  return {
    patchValues: CHANNELS * patchSize ** 2,
    patchSize,
    tileSize: null,
    merged: mergeSize ** 2,
    width,
    addedLevels: added.length,
    matrices,
    vectors,
    probe,
    record: (ops, loaded) => record(ops, config, loaded),
    place: (grid) => finished(placeImage(config, grid)),
    placing: (grid) => placeImage(config, grid),
  };
}

const mergerKey = (level: number | null): string =>
  level === null ? 'vision.merger.' : `vision.merger.${level}.`;

function listWeights(weights: TowerWeights, config: QwenTowerConfig, kind: QwenTowerKind): string {
  const { depth, block, patchSize, frames, mergeSize, width, learned, added } = config;
  const { hiddenSize } = block;
  const probe = weights.patches('vision.patch', {
    name: 'patch_embed.proj',
    hiddenSize,
    patchSize,
    bias: kind.learned,
    frames,
  });
  if (learned !== null) weights.vector('vision.positions', 'pos_embed.weight', [learned ** 2, hiddenSize]);
  for (let b = 0; b < depth; b++) {
    const at = `blocks.${b}.`;
    const [up, down] = kind.gated
      ? ([[`${at}mlp.gate_proj`, `${at}mlp.up_proj`], `${at}mlp.down_proj`] as const)
      : kind.learned
        ? ([[`${at}mlp.linear_fc1`], `${at}mlp.linear_fc2`] as const)
        : ([[`${at}mlp.fc1`], `${at}mlp.fc2`] as const);
    const names = {
      norm1: `${at}norm1`,
      norm2: `${at}norm2`,
      qkv: [`${at}attn.qkv`] as const,
      proj: `${at}attn.proj`,
      up,
      down,
    };
    blockWeights(weights, `vision.${b}.`, block, names, { qkv: true, proj: true, mlp: true });
  }
  const wide = hiddenSize * mergeSize ** 2;
  const merger = (key: string, names: readonly [string, string, string], normSize: number): void => {
    const [norm, first, second] = names;
    weights.norm(`${key}norm`, norm, normSize, kind.norm === 'layer');
    weights.matrix(`${key}in`, wide, [weights.part(first, wide)]);
    weights.matrix(`${key}out`, wide, [weights.part(second, width)]);
  };
  const named = (at: string): readonly [string, string, string] =>
    kind.learned
      ? [`${at}norm`, `${at}linear_fc1`, `${at}linear_fc2`]
      : [`${at}ln_q`, `${at}mlp.0`, `${at}mlp.2`];
  merger(mergerKey(null), named('merger.'), hiddenSize);
  added.forEach((_, level) => {
    merger(mergerKey(level), named(`deepstack_merger_list.${level}.`), wide);
  });
  return probe;
}

function record(ops: Ops, config: QwenTowerConfig, weights: Weights): TowerTensors {
  const { depth, block, window, wholeBlocks, learned, added } = config;
  const { hiddenSize, heads } = block;
  const at = { ops, weights };
  const pixels = ops.input('tokens', weights.matrix('vision.patch').cols);
  const angles = ops.input('tokens', hiddenSize / heads);
  const taps = learned === null ? null : ops.input('tokens', 8);
  const whole = ops.input('tokens', 2);
  const windows = window === null ? null : ops.input('tokens', 2);
  const motion = config.frames === FILM ? ops.input('tokens', pixels.cols) : undefined;
  let x = ops.linear(pixels, weights.matrix('vision.patch'));
  if (motion !== undefined) x = ops.linear(motion, weights.matrix('vision.patch.motion'), x);
  if (taps !== null) x = ops.addGathered(x, weights.vector('vision.positions'), taps);
  const levels: Tensor[] = [];
  for (let b = 0; b < depth; b++) {
    const sight =
      window === null || windows === null || wholeBlocks.includes(b)
        ? { bounds: whole }
        : { bounds: windows, most: (window * config.mergeSize) ** 2 };
    x = recordBlock(at, `vision.${b}.`, x, block, { angles, ...sight });
    const level = added.indexOf(b);
    if (level >= 0) levels.push(merge(at, config, x, level));
  }
  return {
    pixels,
    ...(motion === undefined ? {} : { motion }),
    places: taps === null ? [angles] : [angles, taps],
    bounds: windows === null ? [whole] : [whole, windows],
    features: [merge(at, config, x, null), ...levels],
  };
}

/** `level`: null for the rows that stand for the picture, whose norm comes before they are put side by side. */
function merge(at: TowerRecording, config: QwenTowerConfig, x: Tensor, level: number | null): Tensor {
  const { ops, weights } = at;
  const { norm } = config.block;
  const key = mergerKey(level);
  const each = config.mergeSize ** 2;
  const rows =
    level === null
      ? ops.selectOutputs(normed(at, `${key}norm`, x, norm), each)
      : normed(at, `${key}norm`, ops.selectOutputs(x, each), norm);
  const wide = ops.act(ops.linear(rows, weights.matrix(`${key}in`)), 'gelu');
  return ops.keep(ops.linear(wide, weights.matrix(`${key}out`)));
}

/** Patches of a token stand together in the processor's order: merged row, merged column, then row and column within. */
function* placeImage(config: QwenTowerConfig, { rows, cols }: PatchGrid): Generator<void, PlacedImage> {
  const { block, mergeSize: m, window, theta, learned } = config;
  const headDim = block.hiddenSize / block.heads;
  const quarter = Math.floor(headDim / 4);
  const frequencies = Float64Array.from({ length: quarter }, (_, i) => theta ** ((-4 * i) / headDim));
  const patches = rows * cols;
  const [down, across] = [rows / m, cols / m];
  const order = new Uint32Array(patches);
  const turns = new Turns(patches, [frequencies, frequencies]);
  const taps = new Float32Array(learned === null ? 0 : patches * 8);
  const whole = new Float32Array(patches * 2);
  const windows = new Float32Array(patches * 2);
  const outputs = new Uint32Array(patches / m ** 2);
  const side = window ?? Math.max(down, across);
  // The corners of the table lie on those of the picture.
  const along = (place: number, of: number): number =>
    of === 1 ? 0 : Math.fround((place * (learned! - 1)) / (of - 1));
  let at = 0;
  for (let top = 0; top < down; top += side)
    for (let left = 0; left < across; left += side) {
      const first = at;
      const [bottom, right] = [Math.min(top + side, down), Math.min(left + side, across)];
      const end = first + (bottom - top) * (right - left) * m * m;
      for (let y = top; y < bottom; y++) {
        for (let x = left; x < right; x++) {
          const cell = y * across + x;
          outputs[cell] = at / m ** 2;
          for (let within = 0; within < m * m; within++, at++) {
            order[at] = cell * m * m + within;
            whole[at * 2 + 1] = patches;
            windows[at * 2] = first;
            windows[at * 2 + 1] = end;
            const [row, col] = [y * m + Math.trunc(within / m), x * m + (within % m)];
            turns.set(at, row, col);
            if (learned !== null)
              taps.set(
                bilinearTaps({ rows: learned, cols: learned }, along(row, rows), along(col, cols)),
                at * 8,
              );
          }
        }
        yield;
      }
    }
  return {
    order,
    places: learned === null ? [turns.angles] : [turns.angles, taps],
    bounds: window === null ? [whole] : [whole, windows],
    outputs,
  };
}
