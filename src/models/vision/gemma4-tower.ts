/**
 * The tower of Gemma 4: pictures in their own ratio, norms before and behind attention and MLP, q, k and v normed per head.
 *
 *     x = (2 patches − 1) · W + table of columns + table of rows
 *     each block:  x += norm(proj(attend(rotate(norm(qkv(norm(x)))))));  x += norm(mlp(norm(x)))
 *     features = W norm(means of k × k patches · √hidden, less a bias, times a scale)
 *
 * Half of a head turns by the patch's column, the other half by its row. Of E2B and E4B products are those of bounded-linear.ts. Source: the model code of transformers (models/gemma4).
 */

import type { Activation, NormPart, Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import type { Vector } from '../../device/weights.js';
import type { MatrixPart, Weights } from '../layout.js';
import { boundLinear, boundWeights } from './bounded-linear.js';
import { Turns, tileBounds, visitGroups } from './places.js';
import type { PatchGrid, PlacedImage, TowerDefinition, TowerTensors } from './tower.js';
import { CHANNELS, TowerWeights } from './tower-weights.js';

export interface Gemma4TowerConfig {
  readonly depth: number;
  readonly hiddenSize: number;
  readonly heads: number;
  readonly headDim: number;
  readonly intermediateSize: number;
  readonly activation: Activation;
  readonly eps: number;
  readonly theta: number;
  readonly patchSize: number;
  /** Patches a side whose mean is a token. */
  readonly pool: number;
  /** Rows of each of the two tables of positions. */
  readonly positions: number;
  /** A bias and a scale for each column of the means. */
  readonly standardize: boolean;
  /** Products within blocks have bounds (E2B, E4B). */
  readonly bounded: boolean;
  /** Of the decoder. */
  readonly width: number;
}

const PREFIX = 'vision_tower.';

export function gemma4Tower(config: Gemma4TowerConfig, group: number): TowerDefinition {
  const { patchSize, pool, width } = config;
  const weights = new TowerWeights(PREFIX, group);
  const outside = new TowerWeights('', group);
  listWeights(weights, config);
  outside.matrix('vision.out', config.hiddenSize, [
    outside.part('embed_vision.embedding_projection', width, false),
  ]);
  return {
    patchValues: CHANNELS * patchSize ** 2,
    patchSize,
    tileSize: null,
    merged: pool ** 2,
    width,
    addedLevels: 0,
    matrices: [...weights.matrices, ...outside.matrices],
    vectors: [...weights.vectors, ...outside.vectors],
    probe: `${PREFIX}${PATCHES}.weight`,
    record: (ops, loaded) => record(ops, config, loaded),
    place: (grid) => placeImage(config, grid),
  };
}

const PATCHES = 'patch_embedder.input_proj';

function listWeights(weights: TowerWeights, config: Gemma4TowerConfig): void {
  const { depth, hiddenSize, heads, headDim, intermediateSize, patchSize, positions } = config;
  const area = patchSize ** 2;
  const cols = CHANNELS * area;
  // Stored as [out, (row, column, channel)], of pixels from −1 to 1: of pixels from 0 to 1 it is twice that, less its own sum.
  const make = (values: Float32Array): Float32Array =>
    values.map((_, i) => {
      const [row, at] = [Math.floor(i / cols), i % cols];
      return 2 * values[row * cols + (at % area) * CHANNELS + Math.floor(at / area)]!;
    });
  const patches: MatrixPart = { ...weights.part(PATCHES, hiddenSize, false) };
  weights.pixels('vision.patch', cols, { ...patches, stored: [{ shape: [hiddenSize, cols], make }] });
  weights.table(
    'vision.positions',
    [
      { name: `${PATCHES}.weight`, shape: [hiddenSize, cols] },
      { name: 'patch_embedder.position_embedding_table', shape: [2, positions, hiddenSize] },
    ],
    (values) => withSumFirst(values, hiddenSize, cols),
  );
  const inner = heads * headDim;
  const linear = (name: string, rows: number): MatrixPart => weights.part(`${name}.linear`, rows, false);
  if (config.standardize) {
    const root = Math.sqrt(hiddenSize);
    const make = (values: Float32Array): Float32Array => {
      const diagonal = new Float32Array(hiddenSize ** 2);
      for (const [i, scale] of values.entries()) diagonal[i * (hiddenSize + 1)] = scale * root;
      return diagonal;
    };
    const stored = [{ shape: [hiddenSize], make }];
    weights.matrix('vision.scale', hiddenSize, [
      { name: `${PREFIX}std_scale`, rows: hiddenSize, bias: null, stored },
    ]);
    weights.table(
      'vision.shift',
      ['std_bias', 'std_scale'].map((name) => ({ name, shape: [hiddenSize] })),
      (values) => values.map((bias, i) => (i < hiddenSize ? -bias * values[hiddenSize + i]! : 0)),
    );
  }
  for (let b = 0; b < depth; b++) {
    const [at, key] = [`encoder.layers.${b}.`, `vision.${b}.`];
    for (const name of NORMS) weights.norm(key + name, at + name, hiddenSize, false);
    // Once for each head.
    for (const name of ['q_norm', 'k_norm'])
      weights.table(
        key + name,
        Array.from({ length: heads }, () => ({ name: `${at}self_attn.${name}.weight`, shape: [headDim] })),
        (values) => values.map((_, i) => values[halves(i % headDim, headDim)]!),
      );
    const rotated = (name: string): MatrixPart => ({
      ...linear(`${at}self_attn.${name}`, inner),
      stored: [{ shape: [inner, hiddenSize], make: (values) => byHalves(values, hiddenSize, headDim) }],
    });
    weights.matrix(`${key}qkv`, hiddenSize, [
      rotated('q_proj'),
      rotated('k_proj'),
      linear(`${at}self_attn.v_proj`, inner),
    ]);
    weights.matrix(`${key}proj`, inner, [linear(`${at}self_attn.o_proj`, hiddenSize)]);
    weights.matrix(`${key}up`, hiddenSize, [
      linear(`${at}mlp.gate_proj`, intermediateSize),
      linear(`${at}mlp.up_proj`, intermediateSize),
    ]);
    weights.matrix(`${key}down`, intermediateSize, [linear(`${at}mlp.down_proj`, hiddenSize)]);
    if (config.bounded)
      for (const [product, names] of Object.entries(PRODUCTS))
        boundWeights(
          weights,
          key + product,
          names.map((name) => at + name),
        );
  }
}

/** Products of a block, and what they are made of. */
const PRODUCTS = {
  qkv: ['self_attn.q_proj', 'self_attn.k_proj', 'self_attn.v_proj'],
  proj: ['self_attn.o_proj'],
  up: ['mlp.gate_proj', 'mlp.up_proj'],
  down: ['mlp.down_proj'],
} as const;

/** Norms of a block, before and behind its halves. */
const NORMS = [
  'input_layernorm',
  'post_attention_layernorm',
  'pre_feedforward_layernorm',
  'post_feedforward_layernorm',
] as const;

/**
 * Where a dim of a head is stored. The two of a pair, which are in the same half of a head there, are to be as far apart as in a head
 * that turns as a whole: scores are the same in any order of dims.
 */
function halves(dim: number, headDim: number): number {
  const quarter = headDim / 4;
  const [part, within] = [Math.floor(dim / quarter), dim % quarter];
  return [0, 2, 1, 3][part]! * quarter + within;
}

/** Rows of heads, in the order of {@link halves}. */
function byHalves(values: Float32Array, cols: number, headDim: number): Float32Array {
  const out = new Float32Array(values.length);
  for (let row = 0; row < values.length / cols; row++) {
    const from = row - (row % headDim) + halves(row % headDim, headDim);
    out.set(values.subarray(from * cols, (from + 1) * cols), row * cols);
  }
  return out;
}

/** Of a matrix `[rows, cols]` and what follows: in the first `rows` numbers less the sum of each of its rows. */
function withSumFirst(values: Float32Array, rows: number, cols: number): Float32Array {
  const out = values.slice();
  out.fill(0, 0, rows * cols);
  for (let row = 0; row < rows; row++) {
    let sum = 0;
    for (let col = 0; col < cols; col++) sum += values[row * cols + col]!;
    out[row] = -sum;
  }
  return out;
}

function record(ops: Ops, config: Gemma4TowerConfig, weights: Weights): TowerTensors {
  const { depth, hiddenSize, heads, headDim, activation, eps, pool } = config;
  const inner = heads * headDim;
  const pixels = ops.input('tokens', weights.matrix('vision.patch').cols);
  const taps = ops.input('tokens', 6);
  const angles = ops.input('tokens', headDim);
  const bounds = ops.input('tokens', 2);
  const linear = (x: Tensor, key: string): Tensor =>
    config.bounded ? boundLinear({ ops, weights }, key, x) : ops.linear(x, weights.matrix(key));
  const norm = (x: Tensor, key: string): Tensor => ops.rmsNorm(x, weights.vector(key), eps);
  let x = ops.addGathered(
    ops.linear(pixels, weights.matrix('vision.patch')),
    weights.vector('vision.positions'),
    taps,
  );
  for (let b = 0; b < depth; b++) {
    const at = `vision.${b}.`;
    const [before, behind, beforeMlp, behindMlp] = NORMS.map((name) => at + name) as [
      string,
      string,
      string,
      string,
    ];
    const qkv = linear(norm(x, before), `${at}qkv`);
    const part = (which: number, weight: Vector | null): NormPart => ({
      ...{ from: which * inner, cols: headDim, groups: heads },
      weight,
      bias: null,
    });
    const parts = [
      part(0, weights.vector(`${at}q_norm`)),
      part(1, weights.vector(`${at}k_norm`)),
      part(2, null),
    ];
    const rotated = ops.rotate(ops.norm(qkv, 'rms', parts, eps), angles, {
      heads: 2 * heads,
      headDim,
      style: 'half',
    });
    const attended = ops.attendSegments(rotated, bounds, { heads, headDim, scale: 1 });
    x = ops.add(x, norm(linear(attended, `${at}proj`), behind));
    const up = linear(norm(x, beforeMlp), `${at}up`);
    x = ops.add(x, norm(linear(ops.glu(up, activation), `${at}down`), behindMlp));
  }
  const places = [taps, angles];
  const means = (rows: Tensor): Tensor => ops.meanOutputs(rows, pool ** 2);
  let seen: Tensor;
  if (config.standardize) {
    // What is large cancels: as it is, whatever the precision.
    const scaled = ops.linear(x, weights.matrix('vision.scale'), null, true);
    const first = ops.input('tokens', 2);
    places.push(first);
    seen = means(ops.addGathered(scaled, weights.vector('vision.shift'), first));
  } else seen = ops.scale(means(x), Math.sqrt(hiddenSize));
  const all = [{ from: 0, cols: hiddenSize, groups: 1, weight: null, bias: null }];
  const out = ops.linear(ops.norm(seen, 'rms', all, eps), weights.matrix('vision.out'));
  return { pixels, places, bounds: [bounds], features: [ops.keep(out)] };
}

function placeImage(config: Gemma4TowerConfig, grid: PatchGrid): PlacedImage {
  const { headDim, theta, pool, patchSize, positions } = config;
  const { rows, cols } = grid;
  if (Math.max(rows, cols) > positions)
    throw new Error(`${rows} × ${cols} patches for tables of ${positions} positions`);
  const quarter = headDim / 4;
  const frequencies = Float64Array.from({ length: quarter }, (_, i) => theta ** (-i / quarter));
  const turns = new Turns(rows * cols, [frequencies, frequencies]);
  const order = new Uint32Array(rows * cols);
  const taps = new Float32Array(rows * cols * 6).fill(1);
  const first = new Float32Array(rows * cols * 2);
  const behind = CHANNELS * patchSize ** 2;
  let at = 0;
  visitGroups(rows, cols, pool, false, (patch, row, col) => {
    order[at] = patch;
    taps.set([0, behind + col, behind + positions + row], at * 6);
    first[at * 2 + 1] = 1;
    turns.set(at++, col, row);
  });
  const outputs = Uint32Array.from({ length: (rows * cols) / pool ** 2 }, (_, i) => i);
  return {
    order,
    places: config.standardize ? [taps, turns.angles, first] : [taps, turns.angles],
    bounds: [tileBounds(grid, rows * cols)],
    outputs,
  };
}
