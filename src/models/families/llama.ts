/** Llama 1 to 3.3, and the many models published in its format. */

import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { Family } from '../family.js';
import { attentionAndMlpBias } from '../stated-biases.js';
import { preNormLayout, recordPreNorm } from './pre-norm.js';

const TRAITS: DecoderTraits = {
  bias: attentionAndMlpBias,
  qkNorm: false,
  window: (fields) => (fields.has('sliding_window') ? fields.count('sliding_window') : null),
  slides: () => false,
  defaults: { maxPositions: 2048, ropeTheta: 10_000 },
};

export const llama: Family<DecoderConfig> = {
  name: 'llama',
  // Aquila and XVERSE name themselves otherwise; vLLM runs them as Llamas too.
  architectures: ['LlamaForCausalLM', 'AquilaForCausalLM', 'XverseForCausalLM'],
  modelTypes: ['llama', 'aquila', 'xverse'],
  readConfig: (fields, architecture) => readDecoderConfig(fields, architecture, TRAITS),
  layout: preNormLayout,
  record: recordPreNorm,
};
