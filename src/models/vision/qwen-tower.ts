/**
 * The tower of Qwen2-VL and Qwen2.5-VL (arXiv:2409.12191, arXiv:2502.13923):
 *
 *     x = patches · W
 *     each block:  x += proj(attend(rotate(qkv(norm1(x)))))
 *                  x += mlp(norm2(x))
 *     features = linear(gelu(linear(norm(x), the patches of a token side by side)))
 *
 * A patch turns by its row and its column in the picture, and sees its window or the whole picture. Rows are in the order of
 * windows, so that what sees each other stands together; the features are put back into reading order.
 */

import type { Ops } from '../../device/ops.js';
import type { MatrixPart, MatrixSpec, VectorSpec, Weights } from '../layout.js';
import type { QwenTowerConfig, QwenTowerKind } from './qwen-config.js';
import type { PatchGrid, PlacedImage, TowerDefinition, TowerTensors } from './tower.js';

/** Of all norms of these towers. */
const EPS = 1e-6;
/** Where a checkpoint keeps the tower, once its names are read (tensor-names.ts). */
const PREFIX = 'visual.';
const CHANNELS = 3;

/** @param group the placement group of its weights */
export function qwenTower(config: QwenTowerConfig, kind: QwenTowerKind, group: number): TowerDefinition {
  const { patchSize, mergeSize, width } = config;
  return {
    patchValues: CHANNELS * patchSize ** 2,
    patchSize,
    mergeSize,
    width,
    addedLevels: 0,
    ...towerWeights(config, kind, group),
    probe: PATCH_WEIGHT,
    record: (ops, weights) => record(ops, config, kind, weights),
    place: (grid) => placeImage(config, grid),
  };
}

const PATCH_WEIGHT = `${PREFIX}patch_embed.proj.weight`;

function towerWeights(
  config: QwenTowerConfig,
  { modern }: QwenTowerKind,
  group: number,
): { readonly matrices: MatrixSpec[]; readonly vectors: VectorSpec[] } {
  const { depth, hiddenSize, intermediateSize, mergeSize, width } = config;
  const matrices: MatrixSpec[] = [];
  const vectors: VectorSpec[] = [];
  const matrix = (key: string, cols: number, parts: readonly MatrixPart[]): void => {
    matrices.push({ key, kind: 'vision', parts, cols, use: 'linear', group, float: true });
  };
  const part = (name: string, rows: number): MatrixPart => ({
    name: `${PREFIX}${name}.weight`,
    rows,
    bias: `${PREFIX}${name}.bias`,
  });
  const norm = (key: string, name: string): void => {
    const shape = [hiddenSize];
    vectors.push({ key, parts: [{ name: `${PREFIX}${name}.weight`, shape }], group });
    if (!modern)
      vectors.push({ key: `${key}.bias`, parts: [{ name: `${PREFIX}${name}.bias`, shape }], group });
  };
  matrix('vision.patch', CHANNELS * config.patchSize ** 2, [patchPart(config)]);
  for (let b = 0; b < depth; b++) {
    const at = `blocks.${b}.`;
    const key = `vision.${b}.`;
    norm(`${key}norm1`, `${at}norm1`);
    norm(`${key}norm2`, `${at}norm2`);
    matrix(`${key}qkv`, hiddenSize, [part(`${at}attn.qkv`, 3 * hiddenSize)]);
    matrix(`${key}proj`, hiddenSize, [part(`${at}attn.proj`, hiddenSize)]);
    if (modern) {
      matrix(`${key}up`, hiddenSize, [
        part(`${at}mlp.gate_proj`, intermediateSize),
        part(`${at}mlp.up_proj`, intermediateSize),
      ]);
      matrix(`${key}down`, intermediateSize, [part(`${at}mlp.down_proj`, hiddenSize)]);
    } else {
      matrix(`${key}up`, hiddenSize, [part(`${at}mlp.fc1`, intermediateSize)]);
      matrix(`${key}down`, intermediateSize, [part(`${at}mlp.fc2`, hiddenSize)]);
    }
  }
  norm('vision.merger.norm', 'merger.ln_q');
  const merged = hiddenSize * mergeSize ** 2;
  matrix('vision.merger.in', merged, [part('merger.mlp.0', merged)]);
  matrix('vision.merger.out', merged, [part('merger.mlp.2', width)]);
  return { matrices, vectors };
}

/**
 * The convolution over patches as a product: stride and kernel are one. A still picture is all frames of a patch, so the weights of the
 * frames are added up. PyTorch stores `[out, channel, frame, y, x]`, MLX `[out, frame, y, x, channel]`.
 */
function patchPart({ hiddenSize, patchSize: p, frames }: QwenTowerConfig): MatrixPart {
  const area = p * p;
  const summed =
    (at: (channel: number, frame: number, pixel: number) => number) =>
    (values: Float32Array): Float32Array => {
      const cols = CHANNELS * area;
      const out = new Float32Array(hiddenSize * cols);
      for (let row = 0; row < hiddenSize; row++)
        for (let c = 0; c < CHANNELS; c++)
          for (let i = 0; i < area; i++) {
            let sum = 0;
            for (let f = 0; f < frames; f++) sum += values[row * cols * frames + at(c, f, i)]!;
            out[row * cols + c * area + i] = sum;
          }
      return out;
    };
  return {
    name: PATCH_WEIGHT,
    rows: hiddenSize,
    bias: null,
    stored: [
      {
        shape: [hiddenSize, CHANNELS, frames, p, p],
        make: summed((c, f, i) => (c * frames + f) * area + i),
      },
      {
        shape: [hiddenSize, frames, p, p, CHANNELS],
        make: summed((c, f, i) => (f * area + i) * CHANNELS + c),
      },
    ],
  };
}

function record(
  ops: Ops,
  config: QwenTowerConfig,
  { modern }: QwenTowerKind,
  weights: Weights,
): TowerTensors {
  const { depth, hiddenSize, heads, mlp, mergeSize, window, wholeBlocks } = config;
  const headDim = hiddenSize / heads;
  const pixels = ops.input('tokens', CHANNELS * config.patchSize ** 2);
  const angles = ops.input('tokens', headDim);
  const whole = ops.input('tokens', 2);
  const windows = window === null ? null : ops.input('tokens', 2);
  const norm = (x: typeof pixels, key: string): typeof pixels =>
    modern
      ? ops.rmsNorm(x, weights.vector(key), EPS)
      : ops.layerNorm(x, weights.vector(key), weights.vector(`${key}.bias`), EPS);
  let x = ops.linear(pixels, weights.matrix('vision.patch'));
  for (let b = 0; b < depth; b++) {
    const key = `vision.${b}.`;
    const qkv = ops.linear(norm(x, `${key}norm1`), weights.matrix(`${key}qkv`));
    const turned = ops.rotate(qkv, angles, { heads: 2 * heads, headDim, style: 'half' });
    const bounds = windows === null || wholeBlocks.includes(b) ? whole : windows;
    const attended = ops.attendSegments(turned, bounds, { heads, headDim });
    x = ops.linear(attended, weights.matrix(`${key}proj`), x);
    const up = ops.linear(norm(x, `${key}norm2`), weights.matrix(`${key}up`));
    const inner = mlp.gated ? ops.glu(up, mlp.activation) : ops.act(up, mlp.activation);
    x = ops.linear(inner, weights.matrix(`${key}down`), x);
  }
  const merged = ops.selectOutputs(norm(x, 'vision.merger.norm'), mergeSize ** 2);
  const wide = ops.act(ops.linear(merged, weights.matrix('vision.merger.in')), 'gelu');
  const features = ops.keep(ops.linear(wide, weights.matrix('vision.merger.out')));
  return { pixels, angles, bounds: windows === null ? [whole] : [whole, windows], features: [features] };
}

/** Patches of a token stand together in the processor's order: merged row, merged column, then row and column within. */
function placeImage(config: QwenTowerConfig, { rows, cols }: PatchGrid): PlacedImage {
  const { hiddenSize, heads, mergeSize: m, window, theta } = config;
  const headDim = hiddenSize / heads;
  const quarter = Math.floor(headDim / 4);
  const frequencies = Float64Array.from({ length: quarter }, (_, i) => theta ** ((-4 * i) / headDim));
  const patches = rows * cols;
  const [down, across] = [rows / m, cols / m];
  const order = new Uint32Array(patches);
  const angles = new Float32Array(patches * headDim);
  const whole = new Float32Array(patches * 2);
  const windows = new Float32Array(patches * 2);
  const outputs = new Uint32Array(patches / m ** 2);
  const side = window ?? Math.max(down, across);
  let at = 0;
  for (let top = 0; top < down; top += side)
    for (let left = 0; left < across; left += side) {
      const first = at;
      const [bottom, right] = [Math.min(top + side, down), Math.min(left + side, across)];
      const end = first + (bottom - top) * (right - left) * m * m;
      for (let y = top; y < bottom; y++)
        for (let x = left; x < right; x++) {
          const cell = y * across + x;
          outputs[cell] = at / m ** 2;
          for (let within = 0; within < m * m; within++, at++) {
            order[at] = cell * m * m + within;
            whole.set([0, patches], at * 2);
            windows.set([first, end], at * 2);
            const place = [y * m + Math.trunc(within / m), x * m + (within % m)] as const;
            place.forEach((position, axis) => {
              for (let i = 0; i < quarter; i++) {
                const pair = at * headDim + axis * quarter + i;
                angles[pair] = Math.cos(position * frequencies[i]!);
                angles[pair + headDim / 2] = Math.sin(position * frequencies[i]!);
              }
            });
          }
        }
    }
  return { order, angles, bounds: window === null ? [whole] : [whole, windows], outputs };
}
