/**
 * Seed-OSS: a Llama whose q, k and v have biases, and whose heads are 128 wide whatever the hidden size.
 *
 * Source: the model code of transformers (models/seed_oss).
 */

import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { Family } from '../family.js';
import { preNormLayout, recordPreNorm } from './pre-norm.js';

const TRAITS: DecoderTraits = {
  bias: (fields) => ({
    qkv: fields.flag('attention_bias', true),
    output: fields.flag('attention_out_bias', false),
    mlp: fields.flag('mlp_bias', false),
  }),
  qkNorm: false,
  window: () => null,
  slides: () => false,
  defaults: { maxPositions: 524_288, ropeTheta: 10_000, kvHeads: 8 },
};

export const seedOss: Family<DecoderConfig> = {
  name: 'seed-oss',
  architectures: ['SeedOssForCausalLM'],
  modelTypes: ['seed_oss'],
  // A `null` is another thing: it gives heads their plain width.
  readConfig: (fields, architecture) =>
    readDecoderConfig(fields.whereAbsent({ head_dim: 128 }), architecture, TRAITS),
  layout: preNormLayout,
  record: recordPreNorm,
};
