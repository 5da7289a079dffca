/**
 * The tower of Pixtral and Mistral 3 (arXiv:2410.07073): pictures in their own ratio, a rotation by row and column, RMS norms and gated
 * MLPs without biases. Mistral 3 norms what it saw and makes one row of some patches.
 */

import type { Activation, Tensor, UngatedActivation } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import type { ConfigFields } from '../config-fields.js';
import type { Weights } from '../layout.js';
import { type BlockShape, blockWeights, normed, recordBlock } from './blocks.js';
import { Turns, tileBounds, visitGroups } from './places.js';
import type { PatchGrid, PlacedImage, TowerDefinition, TowerTensors } from './tower.js';
import { checkChannels, readActivation, readHeads, readSide } from './tower-fields.js';
import { CHANNELS, TowerWeights } from './tower-weights.js';

export interface PixtralEncoder {
  readonly depth: number;
  readonly block: BlockShape;
  readonly patchSize: number;
  readonly theta: number;
}

export interface PixtralConfig extends PixtralEncoder {
  /** Of the projector's norm; null where patches stay by themselves, without a norm. */
  readonly merger: { readonly side: number; readonly eps: number } | null;
  readonly activation: UngatedActivation;
  readonly bias: boolean;
  /** Of the decoder. */
  readonly width: number;
}

/** Of all norms of the tower. */
const EPS = 1e-5;
const PREFIX = 'vision_tower.';
const PROJECTOR = 'multi_modal_projector.';

/** Errors: `model-config`, `model-config-unsupported`. */
export function readPixtral(fields: ConfigFields): PixtralEncoder {
  const hiddenSize = fields.count('hidden_size', 1024);
  checkChannels(fields, 'num_channels');
  const activation = readActivation(fields, 'gelu');
  if (activation === 'quick-gelu')
    throw fields.odd('hidden_act', fields.value('hidden_act'), 'an activation of gated MLPs');
  return {
    depth: fields.count('num_hidden_layers', 24),
    block: {
      hiddenSize,
      heads: readHeads(fields, 'num_attention_heads', hiddenSize, 16),
      intermediateSize: fields.count('intermediate_size', 4096),
      norm: { kind: 'rms', eps: EPS },
      mlp: { gated: true, activation: activation as Activation },
    },
    patchSize: readSide(fields, 'patch_size', 16),
    theta:
      fields.object('rope_parameters')?.positiveOrNull('rope_theta') ?? fields.positive('rope_theta', 10_000),
  };
}

export function pixtralTower(config: PixtralConfig, group: number): TowerDefinition {
  const { patchSize, merger, width } = config;
  const side = merger?.side ?? 1;
  const inside = new TowerWeights(PREFIX, group);
  const outside = new TowerWeights(PROJECTOR, group);
  const probe = listTower(inside, config);
  listProjector(outside, config);
  return {
    patchValues: CHANNELS * patchSize ** 2,
    patchSize,
    tileSize: null,
    merged: side ** 2,
    width,
    addedLevels: 0,
    matrices: [...inside.matrices, ...outside.matrices],
    vectors: [...inside.vectors, ...outside.vectors],
    probe,
    record: (ops, weights) => record(ops, config, weights),
    place: (grid) => placeImage(config, side, grid),
  };
}

function listTower(weights: TowerWeights, { depth, block, patchSize }: PixtralConfig): string {
  const { hiddenSize } = block;
  const probe = weights.patches('vision.patch', {
    name: 'patch_conv',
    hiddenSize,
    patchSize,
    bias: false,
    frames: null,
  });
  weights.norm('vision.before', 'ln_pre', hiddenSize, false);
  for (let b = 0; b < depth; b++) {
    const at = `transformer.layers.${b}.`;
    const names = {
      norm1: `${at}attention_norm`,
      norm2: `${at}ffn_norm`,
      qkv: [`${at}attention.q_proj`, `${at}attention.k_proj`, `${at}attention.v_proj`] as const,
      proj: `${at}attention.o_proj`,
      up: [`${at}feed_forward.gate_proj`, `${at}feed_forward.up_proj`] as const,
      down: `${at}feed_forward.down_proj`,
    };
    blockWeights(weights, `vision.${b}.`, block, names, { qkv: false, proj: false, mlp: false });
  }
  return probe;
}

function listProjector(weights: TowerWeights, { block, merger, bias, width }: PixtralConfig): void {
  const { hiddenSize } = block;
  if (merger !== null) {
    const each = merger.side ** 2;
    weights.norm('vision.out.norm', 'norm', hiddenSize, false);
    const part = weights.part('patch_merger.merging_layer', hiddenSize, false);
    // Stored as [out, channel · (row, column)]; rows are put side by side patch by patch.
    const make = (values: Float32Array): Float32Array =>
      values.map((_, i) => {
        const row = Math.floor(i / (hiddenSize * each));
        const [patch, channel] = [Math.floor(i / hiddenSize) % each, i % hiddenSize];
        return values[row * hiddenSize * each + channel * each + patch]!;
      });
    const stored = [{ shape: [hiddenSize, hiddenSize * each], make }];
    weights.matrix('vision.merge', hiddenSize * each, [{ ...part, stored }]);
  }
  weights.matrix('vision.out.1', hiddenSize, [weights.part('linear_1', width, bias)]);
  weights.matrix('vision.out.2', width, [weights.part('linear_2', width, bias)]);
}

function record(ops: Ops, config: PixtralConfig, weights: Weights): TowerTensors {
  const { depth, block, merger, activation } = config;
  const at = { ops, weights };
  const pixels = ops.input('tokens', weights.matrix('vision.patch').cols);
  const angles = ops.input('tokens', block.hiddenSize / block.heads);
  const bounds = ops.input('tokens', 2);
  let x = normed(at, 'vision.before', ops.linear(pixels, weights.matrix('vision.patch')), block.norm);
  for (let b = 0; b < depth; b++) x = recordBlock(at, `vision.${b}.`, x, block, { angles, bounds });
  const merged = (rows: Tensor, { side, eps }: NonNullable<PixtralConfig['merger']>): Tensor => {
    const norm = normed(at, 'vision.out.norm', rows, { kind: 'rms', eps });
    return ops.linear(ops.selectOutputs(norm, side ** 2), weights.matrix('vision.merge'));
  };
  const seen = merger === null ? ops.selectOutputs(x) : merged(x, merger);
  const inner = ops.act(ops.linear(seen, weights.matrix('vision.out.1')), activation);
  const features = ops.keep(ops.linear(inner, weights.matrix('vision.out.2')));
  return { pixels, places: [angles], bounds: [bounds], features: [features] };
}

function placeImage({ block, theta }: PixtralConfig, side: number, grid: PatchGrid): PlacedImage {
  const { rows, cols } = grid;
  const headDim = block.hiddenSize / block.heads;
  // Of the frequencies of a plain rotation those in even places are of rows, the others of columns.
  const frequencies = (first: number): Float64Array =>
    Float64Array.from({ length: headDim / 4 }, (_, i) => theta ** ((-2 * (2 * i + first)) / headDim));
  const turns = new Turns(rows * cols, [frequencies(0), frequencies(1)]);
  const order = new Uint32Array(rows * cols);
  let at = 0;
  visitGroups(rows, cols, side, false, (patch, row, col) => {
    order[at] = patch;
    turns.set(at++, row, col);
  });
  const outputs = Uint32Array.from({ length: (rows * cols) / side ** 2 }, (_, i) => i);
  return { order, places: [turns.angles], bounds: [tileBounds(grid, rows * cols)], outputs };
}
