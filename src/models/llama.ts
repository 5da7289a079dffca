/** Llama 1 to 3.3, and the many models published in its format. */

import { type DecoderTraits, readDecoderConfig } from './config.js';
import { decoderLayout, recordDecoder } from './decoder.js';
import type { Family } from './family.js';

const TRAITS: DecoderTraits = {
  family: 'llama',
  bias: (fields) => {
    const attention = fields.flag('attention_bias', false);
    return { qkv: attention, output: attention, mlp: fields.flag('mlp_bias', false) };
  },
  qkNorm: false,
  window: (fields) => (fields.has('sliding_window') ? fields.count('sliding_window') : null),
  slides: () => false,
  defaults: { maxPositions: 2048, ropeTheta: 10_000 },
};

export const llama: Family = {
  name: 'llama',
  architectures: ['LlamaForCausalLM'],
  modelTypes: ['llama'],
  readConfig: (fields, architecture) => readDecoderConfig(fields, architecture, TRAITS),
  layout: (config) => decoderLayout(config),
  record: recordDecoder,
};
