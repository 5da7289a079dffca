/**
 * Granite 3, dense: a Llama with four multipliers, of the embedding, the scores, what each branch adds, and the logits.
 *
 * Source: the model code of transformers (models/granite).
 */

import type { Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import { attend } from '../blocks/attention.js';
import { gated } from '../blocks/gated-mlp.js';
import { type Layer, recordStack } from '../blocks/stack.js';
import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family, RecordOptions } from '../family.js';
import type { Weights } from '../layout.js';
import { attentionAndMlpBias } from '../stated-biases.js';
import { preNormLayout, ROPE } from './pre-norm.js';

export interface GraniteConfig extends DecoderConfig {
  readonly embeddingScale: number;
  /** Multiplies the scores, in place of `1 / sqrt(headDim)`. */
  readonly attentionScale: number;
  /** Multiplies what attention and the MLP add. */
  readonly residualScale: number;
  /** Divides the logits. */
  readonly logitsDivisor: number;
}

const TRAITS: DecoderTraits = {
  bias: attentionAndMlpBias,
  qkNorm: false,
  window: () => null,
  slides: () => false,
  defaults: { maxPositions: 2048, ropeTheta: 10_000 },
};

export const readGranite = (fields: ConfigFields, architecture: string): GraniteConfig => ({
  ...readDecoderConfig(fields, architecture, TRAITS),
  embeddingScale: fields.positive('embedding_multiplier', 1),
  attentionScale: fields.positive('attention_multiplier', 1),
  residualScale: fields.positive('residual_multiplier', 1),
  logitsDivisor: fields.positive('logits_scaling', 1),
});

/** What stands in the place of attention or of the MLP, the output matrix included. Null: nothing does. */
export interface GraniteParts {
  readonly mixed?: (at: Layer, normed: Tensor) => Tensor | null;
  readonly mlp?: (at: Layer, normed: Tensor) => Tensor | null;
}

/** Returns logits `[outputs, vocab]`. `rope`: key of the rotation, null for none. */
export function recordGranite(
  ops: Ops,
  config: GraniteConfig,
  weights: Weights,
  options: RecordOptions,
  rope: string | null,
  parts: GraniteParts = {},
): Tensor {
  const { heads, kvHeads, headDim, qkNorm, attentionScale: scale, residualScale } = config;
  const attention = { heads, kvHeads, headDim, qkNorm, window: null, rope, scale };
  return recordStack(ops, config, weights, options, {
    embeddingScale: config.embeddingScale,
    logits: { factor: 1 / config.logitsDivisor, softcap: null },
    layer: (x, at) => {
      const normed = at.norm(x, 'input-norm');
      const mixed =
        parts.mixed?.(at, normed) ?? at.linear(at.wanted(attend(at, normed, attention)), 'output');
      const sum = ops.add(at.wanted(x), ops.scale(mixed, residualScale));
      const again = at.norm(sum, 'mlp-norm');
      const down = parts.mlp?.(at, again) ?? at.linear(gated(at, again, config.activation), 'down');
      return ops.add(sum, ops.scale(down, residualScale));
    },
  });
}

export const granite: Family<GraniteConfig> = {
  name: 'granite',
  architectures: ['GraniteForCausalLM'],
  modelTypes: ['granite'],
  readConfig: readGranite,
  layout: preNormLayout,
  record: (ops, config, weights, options) => recordGranite(ops, config, weights, options, ROPE),
};
