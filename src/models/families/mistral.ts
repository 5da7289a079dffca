/** Mistral, and Ministral 8B: a Llama whose every layer may slide. */

import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { Family } from '../family.js';
import { preNormLayout, recordPreNorm } from './pre-norm.js';

/** What it means where a config leaves the field out; `null` means no window. */
const DEFAULT_WINDOW = 4096;

const TRAITS: DecoderTraits = {
  bias: () => ({ qkv: false, output: false, mlp: false }),
  qkNorm: false,
  window: (fields) => {
    if (!fields.states('sliding_window')) return DEFAULT_WINDOW;
    return fields.has('sliding_window') ? fields.count('sliding_window') : null;
  },
  slides: () => true,
  defaults: { maxPositions: 131_072, ropeTheta: 10_000, kvHeads: 8 },
};

export const mistral: Family<DecoderConfig> = {
  name: 'mistral',
  architectures: ['MistralForCausalLM', 'MinistralForCausalLM'],
  modelTypes: ['mistral', 'ministral'],
  readConfig: (fields, architecture) => readDecoderConfig(fields, architecture, TRAITS),
  layout: preNormLayout,
  record: recordPreNorm,
};
