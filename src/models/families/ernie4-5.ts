/**
 * ERNIE 4.5, dense: a Llama in which neighbours of a head rotate with each other, and whose linear layers all have biases or none.
 *
 * Source: the model code of transformers (models/ernie4_5).
 */

import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { Family } from '../family.js';
import { preNormLayout, recordPreNorm } from './pre-norm.js';

const TRAITS: DecoderTraits = {
  bias: (fields) => {
    const all = fields.flag('use_bias', false);
    return { qkv: all, output: all, mlp: all };
  },
  qkNorm: false,
  window: () => null,
  slides: () => false,
  defaults: { maxPositions: 131_072, ropeTheta: 500_000 },
};

/** What configs mean that leave fields out. A `null` is another thing: it gives heads their plain number and width. */
const DEFAULTS = { rms_norm_eps: 1e-5, tie_word_embeddings: true, num_key_value_heads: 2, head_dim: 128 };

export const ernie45: Family<DecoderConfig> = {
  name: 'ernie4_5',
  architectures: ['Ernie4_5ForCausalLM', 'Ernie4_5_ForCausalLM'],
  modelTypes: ['ernie4_5'],
  readConfig: (fields, architecture) => readDecoderConfig(fields.whereAbsent(DEFAULTS), architecture, TRAITS),
  layout: (config) => preNormLayout(config, 'interleaved'),
  record: recordPreNorm,
};
