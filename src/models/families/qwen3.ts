/** Qwen3, dense: no biases by default, q and k normed per head, heads wider than hidden / heads. */

import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { Family } from '../family.js';
import { attentionBias } from '../stated-biases.js';
import { preNormLayout, recordPreNorm } from './pre-norm.js';
import { qwenSlides, qwenWindow } from './qwen2.js';

const TRAITS: DecoderTraits = {
  bias: attentionBias,
  qkNorm: true,
  window: qwenWindow,
  slides: qwenSlides,
  defaults: { maxPositions: 32_768, ropeTheta: 10_000, headDim: 128 },
};

export const qwen3: Family<DecoderConfig> = {
  name: 'qwen3',
  architectures: ['Qwen3ForCausalLM'],
  modelTypes: ['qwen3'],
  readConfig: (fields, architecture) => readDecoderConfig(fields, architecture, TRAITS),
  layout: preNormLayout,
  record: recordPreNorm,
};
