/**
 * Cohere (Command R). Beside a Llama:
 *
 * - attention and the MLP stand side by side and read one norm;
 * - the norms are layer norms without a bias;
 * - neighbours rotate with each other;
 * - q and k of some have layer norms, each head by itself with weights of its own;
 * - logits are multiplied by `logit_scale`, and the head is the embedding.
 *
 * Source: the model code of transformers (models/cohere).
 */

import type { Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import { attentionWeights } from '../blocks/attention.js';
import { gatedMlpWeights } from '../blocks/gated-mlp.js';
import { decoderLayout } from '../blocks/layout-builder.js';
import { parallel } from '../blocks/parallel.js';
import { normedQk, qkNormWeights } from '../blocks/qk-norms.js';
import { recordStack } from '../blocks/stack.js';
import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family, RecordOptions } from '../family.js';
import type { WeightLayout, Weights } from '../layout.js';
import { attentionBias } from '../stated-biases.js';
import { ROPE } from './pre-norm.js';

export interface CohereConfig extends DecoderConfig {
  /** Multiplies the logits. */
  readonly logitScale: number;
  /** Layer norms of q and k. */
  readonly headNorms: boolean;
}

export const COHERE_TRAITS: DecoderTraits = {
  bias: attentionBias,
  qkNorm: false,
  window: () => null,
  slides: () => false,
  normEps: { name: 'layer_norm_eps', fallback: 1e-5 },
  defaults: { maxPositions: 8192, ropeTheta: 500_000 },
};

/** What Cohere 1 and 2 read alike. */
export function readCohere(
  fields: ConfigFields,
  architecture: string,
  traits: DecoderTraits,
): Omit<CohereConfig, 'headNorms'> {
  const tied = fields.whereAbsent({ tie_word_embeddings: true });
  return {
    ...readDecoderConfig(tied, architecture, traits),
    logitScale: fields.positive('logit_scale', 0.0625),
  };
}

export function cohereLayout(config: CohereConfig): WeightLayout {
  return decoderLayout(config, {
    ropes: [{ key: ROPE, parameters: config.rope, dims: config.rotaryDims, style: 'interleaved' }],
    layer: (at) => {
      at.norm('input-norm', 'input_layernorm', config.hiddenSize);
      attentionWeights(at, { ...config, window: config.windows[at.index] ?? null });
      if (config.headNorms) qkNormWeights(at, config, 'head');
      gatedMlpWeights(at, { ...config, bias: config.bias.mlp });
    },
  });
}

/** Returns logits `[outputs, vocab]`. `rotates`: whether a layer does, by its window. */
export function recordCohere(
  ops: Ops,
  config: CohereConfig,
  weights: Weights,
  options: RecordOptions,
  rotates: (window: number | null) => boolean,
): Tensor {
  const { heads, kvHeads, headDim, qkNorm, windows, activation, logitScale, headNorms } = config;
  return recordStack(ops, config, weights, options, {
    norms: { kind: 'layer', bias: false },
    logits: { factor: logitScale, softcap: null },
    layer: (x, at) => {
      const window = windows[at.index] ?? null;
      const rope = rotates(window) ? ROPE : null;
      const prepare = (qkv: Tensor): Tensor => (headNorms ? normedQk(at, qkv, config, 'head', 'layer') : qkv);
      return parallel(x, at, { heads, kvHeads, headDim, qkNorm, window, rope, prepare }, activation);
    },
  });
}

export const cohere: Family<CohereConfig> = {
  name: 'cohere',
  architectures: ['CohereForCausalLM'],
  modelTypes: ['cohere'],
  readConfig: (fields, architecture) => ({
    ...readCohere(fields, architecture, COHERE_TRAITS),
    headNorms: fields.flag('use_qk_norm', false),
  }),
  layout: cohereLayout,
  record: (ops, config, weights, options) => recordCohere(ops, config, weights, options, () => true),
};
