/**
 * How Gemma 4 12B sees: without a tower. A patch is as large as a token, and its pixels are projected into the decoder's width:
 *
 *     x = norm(W₁ norm(pixels) + b) + table of columns + table of rows
 *     features = W₂ rms(norm(x))
 *
 * Norms without a name are layer norms. Source: the model code of transformers (models/gemma4_unified).
 */

import type { Ops } from '../../device/ops.js';
import type { ConfigFields } from '../config-fields.js';
import type { MatrixPart, Weights } from '../layout.js';
import type { VisionFamily } from './family.js';
import { gemma4Joining } from './gemma4-vision.js';
import type { PatchGrid, PlacedImage, TowerDefinition, TowerTensors } from './tower.js';
import { CHANNELS, TowerWeights } from './tower-weights.js';

interface UnifiedConfig {
  /** Side in pixels of what becomes a token. */
  readonly patchSize: number;
  readonly hiddenSize: number;
  /** Columns, and rows, that the table of positions has. */
  readonly positions: number;
  /** Of the last norm. */
  readonly eps: number;
  /** Of the decoder. */
  readonly width: number;
}

/** Of the layer norms, whatever the config says. */
const LAYER_EPS = 1e-5;

export const gemma4Unified: VisionFamily = {
  name: 'gemma4-unified',
  read(fields, { facts, layout }) {
    const section = fields.object('vision_config');
    if (section === null) return null;
    const config = readUnified(section, facts.hiddenSize);
    return {
      tower: unifiedTower(config, layout.groups),
      ...gemma4Joining(fields, 1, 'vision'),
      identity: config,
    };
  },
};

/** Gemma4UnifiedVisionConfig. */
function readUnified(fields: ConfigFields, width: number): UnifiedConfig {
  const patchSize = fields.count('patch_size', 16) * fields.count('pooling_kernel_size', 3);
  const stated = fields.count('model_patch_size', patchSize);
  if (stated !== patchSize)
    throw fields.odd('model_patch_size', stated, `patch_size · pooling_kernel_size (${patchSize})`);
  const hiddenSize = fields.count('mm_embed_dim', 3840);
  const out = fields.count('output_proj_dims', hiddenSize);
  if (out !== hiddenSize) throw fields.odd('output_proj_dims', out, `mm_embed_dim (${hiddenSize})`);
  return {
    patchSize,
    hiddenSize,
    positions: fields.count('mm_posemb_size', 1120),
    eps: fields.positive('rms_norm_eps', 1e-6),
    width,
  };
}

function unifiedTower(config: UnifiedConfig, group: number): TowerDefinition {
  const { patchSize, hiddenSize, positions, width } = config;
  const cols = CHANNELS * patchSize ** 2;
  const weights = new TowerWeights('vision_embedder.', group);
  const outside = new TowerWeights('embed_vision.', group);
  const byChannel = channelsFirst(patchSize);
  for (const part of ['weight', 'bias'])
    weights.vector(`vision.pixel-norm.${part}`, `patch_ln1.${part}`, [cols], byChannel);
  const dense: MatrixPart = weights.part('patch_dense', hiddenSize);
  weights.pixels('vision.patch', cols, {
    ...dense,
    stored: [{ shape: [hiddenSize, cols], make: byChannel }],
  });
  weights.norm('vision.patch-norm', 'patch_ln2', hiddenSize, true);
  weights.vector('vision.positions', 'pos_embedding', [positions, 2, hiddenSize]);
  weights.norm('vision.position-norm', 'pos_norm', hiddenSize, true);
  outside.matrix('vision.out', hiddenSize, [outside.part('embedding_projection', width, false)]);
  return {
    patchValues: cols,
    patchSize,
    tileSize: null,
    merged: 1,
    width,
    addedLevels: 0,
    matrices: [...weights.matrices, ...outside.matrices],
    vectors: [...weights.vectors, ...outside.vectors],
    probe: dense.name,
    record: (ops, loaded) => record(ops, config, loaded),
    place: (grid) => placeImage(config, grid),
  };
}

/** Rows of patches that are stored in the order row, column, channel: in the order channel, row, column. */
function channelsFirst(patchSize: number): (values: Float32Array) => Float32Array {
  const area = patchSize ** 2;
  const cols = CHANNELS * area;
  return (values) =>
    values.map((_, i) => {
      const [row, at] = [Math.floor(i / cols), i % cols];
      return values[row * cols + (at % area) * CHANNELS + Math.floor(at / area)]!;
    });
}

function record(ops: Ops, { patchSize, eps, hiddenSize }: UnifiedConfig, weights: Weights): TowerTensors {
  const dense = weights.matrix('vision.patch');
  const pixels = ops.input('tokens', dense.cols);
  const taps = ops.input('tokens', 4);
  const [weight, bias] = ['weight', 'bias'].map((part) => weights.vector(`vision.pixel-norm.${part}`));
  // What is behind a patch stays zero.
  const part = { from: 0, cols: CHANNELS * patchSize ** 2, groups: 1, weight: weight!, bias: bias! };
  const layerNorm = (x: typeof pixels, key: string): typeof pixels =>
    ops.layerNorm(x, weights.vector(key), weights.vector(`${key}.bias`), LAYER_EPS);
  const made = layerNorm(
    ops.linear(ops.norm(pixels, 'layer', [part], LAYER_EPS), dense),
    'vision.patch-norm',
  );
  const placed = layerNorm(
    ops.addGathered(made, weights.vector('vision.positions'), taps),
    'vision.position-norm',
  );
  const whole = { from: 0, cols: hiddenSize, groups: 1, weight: null, bias: null };
  const seen = ops.selectOutputs(ops.norm(placed, 'rms', [whole], eps));
  const features = [ops.keep(ops.linear(seen, weights.matrix('vision.out')))];
  return { pixels, places: [taps], bounds: [], features };
}

function placeImage({ positions }: UnifiedConfig, { rows, cols }: PatchGrid): PlacedImage {
  if (Math.max(rows, cols) > positions)
    throw new Error(`${rows} × ${cols} patches for a table of ${positions} positions`);
  const order = Uint32Array.from({ length: rows * cols }, (_, patch) => patch);
  const taps = new Float32Array(rows * cols * 4).fill(1);
  // Of a position first its column's row of the table, then its row's.
  for (const patch of order) taps.set([2 * (patch % cols), 2 * Math.floor(patch / cols) + 1], patch * 4);
  return { order, places: [taps], bounds: [], outputs: order };
}
