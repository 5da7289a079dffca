/**
 * The towers of GLM-4.1V, 4.5V and 4.6V (arXiv:2507.01006), and of GLM-OCR:
 *
 *     x = norm(patches · W) + positions
 *     the blocks of blocks.ts
 *     y = W norm(x), the patches of a token side by side
 *     features = down(silu(gate(z)) · up(z)), z = gelu(layer norm(W y))
 *
 * Positions are those of a square that was learnt, resampled to the picture's rows and columns by cubic convolution; patches turn by
 * row and column besides. GLM-OCR has neither that square nor the norm before it, but norms of each head of q and k.
 *
 * Source: the model code of transformers (models/glm4v, models/glm_ocr).
 */

import type { Activation } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import type { MatrixPart, Weights } from '../layout.js';
import { type BlockBiases, type BlockShape, blockWeights, normed, recordBlock } from './blocks.js';
import { bicubicTaps, Turns, tileBounds, visitGroups } from './places.js';
import type { PatchGrid, PlacedImage, TowerDefinition, TowerTensors } from './tower.js';
import { CHANNELS, FILM, TowerWeights } from './tower-weights.js';

export interface GlmTowerConfig {
  readonly depth: number;
  readonly block: BlockShape;
  readonly biases: BlockBiases;
  readonly patchSize: number;
  /** Frames that a patch of the checkpoint spans. */
  readonly frames: number;
  /** Patches a side that become one token. */
  readonly mergeSize: number;
  /** Of the decoder. */
  readonly width: number;
  /** Width within the merger's MLP. */
  readonly inner: number;
  readonly activation: Activation;
  readonly theta: number;
  /** Side of the square of positions that were learnt; null where there is none, and no norm before it. */
  readonly learned: number | null;
}

/** Where a checkpoint keeps the tower, once its names are read (tensor-names.ts). */
const PREFIX = 'visual.';
/** Of the merger's norm: PyTorch's own. */
const MERGER_EPS = 1e-5;
/** Entries of the square that a position is made of. */
const TAPS = 16;

/** @param group the placement group of its weights */
export function glmTower(config: GlmTowerConfig, group: number): TowerDefinition {
  const { patchSize, mergeSize, width } = config;
  const weights = new TowerWeights(PREFIX, group);
  const probe = listWeights(weights, config);
  return {
    patchValues: CHANNELS * patchSize ** 2,
    patchSize,
    tileSize: null,
    merged: mergeSize ** 2,
    width,
    addedLevels: 0,
    matrices: weights.matrices,
    vectors: weights.vectors,
    probe,
    record: (ops, loaded) => record(ops, config, loaded),
    place: (grid) => placeImage(config, grid),
  };
}

function listWeights(weights: TowerWeights, config: GlmTowerConfig): string {
  const { depth, block, biases, patchSize, frames, mergeSize, width, inner, learned } = config;
  const { hiddenSize } = block;
  const probe = weights.patches('vision.patch', {
    name: 'patch_embed.proj',
    hiddenSize,
    patchSize,
    bias: true,
    frames,
  });
  if (learned !== null) {
    weights.norm('vision.before', 'post_conv_layernorm', hiddenSize, false);
    weights.vector('vision.positions', 'embeddings.position_embedding.weight', [learned ** 2, hiddenSize]);
  }
  for (let b = 0; b < depth; b++) {
    const at = `blocks.${b}.`;
    const names = {
      norm1: `${at}norm1`,
      norm2: `${at}norm2`,
      qkv: [`${at}attn.qkv`] as const,
      proj: `${at}attn.proj`,
      up: [`${at}mlp.gate_proj`, `${at}mlp.up_proj`] as const,
      down: `${at}mlp.down_proj`,
      ...(block.headNorms === true && {
        headNorms: { q: `${at}attn.q_norm`, k: `${at}attn.k_norm` },
      }),
    };
    blockWeights(weights, `vision.${b}.`, block, names, biases);
  }
  weights.norm('vision.behind', 'post_layernorm', hiddenSize, false);
  weights.matrix('vision.merge', hiddenSize * mergeSize ** 2, [
    sideBySide(weights.part('downsample', width), hiddenSize, mergeSize),
  ]);
  weights.matrix('vision.out.1', width, [weights.part('merger.proj', width, false)]);
  weights.norm('vision.out.norm', 'merger.post_projection_norm', width, true);
  weights.matrix('vision.out.up', width, [
    weights.part('merger.gate_proj', inner, false),
    weights.part('merger.up_proj', inner, false),
  ]);
  weights.matrix('vision.out.down', inner, [weights.part('merger.down_proj', width, false)]);
  return probe;
}

/**
 * The convolution that makes one row of `side` × `side` as a product with those rows side by side. PyTorch stores
 * `[out, channel, row, column]`, MLX `[out, row, column, channel]`, which is the order of the rows.
 */
function sideBySide(part: MatrixPart, channels: number, side: number): MatrixPart {
  const [each, cols] = [side ** 2, channels * side ** 2];
  const make = (values: Float32Array): Float32Array =>
    values.map((_, i) => {
      const [first, at] = [i - (i % cols), i % cols];
      return values[first + (at % channels) * each + Math.floor(at / channels)]!;
    });
  const stored = [
    { shape: [part.rows, channels, side, side], make },
    { shape: [part.rows, side, side, channels], make: (values: Float32Array) => values },
  ];
  return { ...part, stored };
}

function record(ops: Ops, config: GlmTowerConfig, weights: Weights): TowerTensors {
  const { depth, block, mergeSize, learned, activation } = config;
  const { hiddenSize, heads, norm } = block;
  const at = { ops, weights };
  const pixels = ops.input('tokens', weights.matrix('vision.patch').cols);
  const angles = ops.input('tokens', hiddenSize / heads);
  const taps = learned === null ? null : ops.input('tokens', 2 * TAPS);
  const bounds = ops.input('tokens', 2);
  const motion = config.frames === FILM ? ops.input('tokens', pixels.cols) : undefined;
  let x = ops.linear(pixels, weights.matrix('vision.patch'));
  if (motion !== undefined) x = ops.linear(motion, weights.matrix('vision.patch.motion'), x);
  if (taps !== null)
    x = ops.addGathered(normed(at, 'vision.before', x, norm), weights.vector('vision.positions'), taps);
  for (let b = 0; b < depth; b++) x = recordBlock(at, `vision.${b}.`, x, block, { angles, bounds });
  const rows = ops.selectOutputs(normed(at, 'vision.behind', x, norm), mergeSize ** 2);
  const merged = ops.linear(ops.linear(rows, weights.matrix('vision.merge')), weights.matrix('vision.out.1'));
  const inner = ops.act(normed(at, 'vision.out.norm', merged, { kind: 'layer', eps: MERGER_EPS }), 'gelu');
  const up = ops.glu(ops.linear(inner, weights.matrix('vision.out.up')), activation);
  return {
    pixels,
    ...(motion === undefined ? {} : { motion }),
    places: taps === null ? [angles] : [angles, taps],
    bounds: [bounds],
    features: [ops.keep(ops.linear(up, weights.matrix('vision.out.down')))],
  };
}

/** Patches of a token stand together, as the processor gives them. */
function placeImage({ block, mergeSize, theta, learned }: GlmTowerConfig, grid: PatchGrid): PlacedImage {
  const { rows, cols } = grid;
  const headDim = block.hiddenSize / block.heads;
  const frequencies = Float64Array.from({ length: headDim / 4 }, (_, i) => theta ** ((-4 * i) / headDim));
  const turns = new Turns(rows * cols, [frequencies, frequencies]);
  const taps = new Float32Array(learned === null ? 0 : rows * cols * 2 * TAPS);
  // Centres of patches lie on centres of entries.
  const along = (place: number, of: number): number => ((place + 0.5) / of) * learned! - 0.5;
  const order = new Uint32Array(rows * cols);
  let at = 0;
  visitGroups(rows, cols, mergeSize, true, (patch, row, col) => {
    order[at] = patch;
    if (learned !== null) taps.set(bicubicTaps(learned, along(row, rows), along(col, cols)), at * 2 * TAPS);
    turns.set(at++, row, col);
  });
  const outputs = Uint32Array.from({ length: (rows * cols) / mergeSize ** 2 }, (_, i) => i);
  return {
    order,
    places: learned === null ? [turns.angles] : [turns.angles, taps],
    bounds: [tileBounds(grid, rows * cols)],
    outputs,
  };
}
