/**
 * Arcee (AFM): a Llama whose MLP has no gate and squares what is above 0.
 *
 * Source: the model code of transformers (models/arcee).
 */

import { attentionWeights } from '../blocks/attention.js';
import { decoderLayout } from '../blocks/layout-builder.js';
import { plainMlpWeights } from '../blocks/plain-mlp.js';
import { plainPreNorm, preNormWeights } from '../blocks/residual.js';
import { recordStack } from '../blocks/stack.js';
import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { Family } from '../family.js';
import { attentionAndMlpBias } from '../stated-biases.js';
import { ROPE } from './pre-norm.js';

const TRAITS: DecoderTraits = {
  bias: attentionAndMlpBias,
  qkNorm: false,
  window: () => null,
  slides: () => false,
  normEps: { name: 'rms_norm_eps', fallback: 1e-5 },
  defaults: { maxPositions: 4096, ropeTheta: 10_000 },
};

export const arcee: Family<DecoderConfig> = {
  name: 'arcee',
  architectures: ['ArceeForCausalLM'],
  modelTypes: ['arcee'],
  readConfig: (fields, architecture) =>
    readDecoderConfig(fields.withDefaults({ hidden_act: 'relu2' }), architecture, TRAITS),
  layout: (config) =>
    decoderLayout(config, {
      ropes: [{ key: ROPE, parameters: config.rope, dims: config.rotaryDims }],
      layer: (at) => {
        preNormWeights(at, config.hiddenSize);
        attentionWeights(at, { ...config, window: null });
        plainMlpWeights(at, { ...config, bias: config.bias.mlp });
      },
    }),
  record: (ops, config, weights, options) =>
    recordStack(ops, config, weights, options, {
      layer: (x, at) => plainPreNorm(x, at, { ...config, window: null, rope: ROPE }, config.activation),
    }),
};
