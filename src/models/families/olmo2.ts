/**
 * OLMo 2. Beside a Llama:
 *
 * - norms stand behind attention and the MLP, none before: `x += norm(o(attend(x)))`, `x += norm(down(mlp(x)))`;
 * - q and k are normed, all heads together.
 *
 * Source: the model code of transformers (models/olmo2).
 */

import type { Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import { attentionWeights } from '../blocks/attention.js';
import { gatedMlpWeights } from '../blocks/gated-mlp.js';
import { decoderLayout } from '../blocks/layout-builder.js';
import { normedQk, qkNormWeights } from '../blocks/qk-norms.js';
import { postNorm, postNormWeights } from '../blocks/residual.js';
import { recordStack } from '../blocks/stack.js';
import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { Family, RecordOptions } from '../family.js';
import type { RopeSpec, WeightLayout, Weights } from '../layout.js';
import { attentionBias } from '../stated-biases.js';
import { ROPE } from './pre-norm.js';

export const OLMO2_TRAITS: DecoderTraits = {
  bias: attentionBias,
  qkNorm: false,
  window: () => null,
  slides: () => false,
  normEps: { name: 'rms_norm_eps', fallback: 1e-5 },
  defaults: { maxPositions: 2048, ropeTheta: 10_000 },
};

/** The layout of OLMo 2 and 3, which differ in their rotations. */
export function olmoLayout(config: DecoderConfig, ropes: readonly RopeSpec[]): WeightLayout {
  return decoderLayout(config, {
    ropes,
    layer: (at) => {
      postNormWeights(at, config.hiddenSize);
      attentionWeights(at, { ...config, window: config.windows[at.index] ?? null });
      qkNormWeights(at, config, 'row');
      gatedMlpWeights(at, { ...config, bias: config.bias.mlp });
    },
  });
}

/** Returns logits `[outputs, vocab]`. `ropeOf`: key of the rotation of a layer, by its window. */
export function recordOlmo(
  ops: Ops,
  config: DecoderConfig,
  weights: Weights,
  options: RecordOptions,
  ropeOf: (window: number | null) => string,
): Tensor {
  const { heads, kvHeads, headDim, qkNorm, windows, activation } = config;
  return recordStack(ops, config, weights, options, {
    layer: (x, at) => {
      const window = windows[at.index] ?? null;
      const prepare = (qkv: Tensor): Tensor => normedQk(at, qkv, config, 'row', 'rms');
      const attention = { heads, kvHeads, headDim, qkNorm, window, rope: ropeOf(window), prepare };
      return postNorm(x, at, attention, activation);
    },
  });
}

export const olmo2: Family<DecoderConfig> = {
  name: 'olmo2',
  architectures: ['Olmo2ForCausalLM'],
  modelTypes: ['olmo2'],
  readConfig: (fields, architecture) => readDecoderConfig(fields, architecture, OLMO2_TRAITS),
  layout: (config) => olmoLayout(config, [{ key: ROPE, parameters: config.rope, dims: config.rotaryDims }]),
  record: (ops, config, weights, options) => recordOlmo(ops, config, weights, options, () => ROPE),
};
