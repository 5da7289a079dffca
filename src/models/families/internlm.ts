/**
 * InternLM 1 and 3: Llamas whose biases go by other names. In InternLM 1 `bias` is that of all of attention; in InternLM 3
 * `qkv_bias` is that of q, k and v, and `bias` that of what stands behind them.
 *
 * vLLM runs both as Llamas. There is no model code of theirs in transformers, so logits were not compared: docs/models.md says so.
 */

import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { Family } from '../family.js';
import { preNormLayout, recordPreNorm } from './pre-norm.js';

const TRAITS: Omit<DecoderTraits, 'bias'> = {
  qkNorm: false,
  window: () => null,
  slides: () => false,
  defaults: { maxPositions: 2048, ropeTheta: 10_000 },
};

export const internLm: Family<DecoderConfig> = {
  name: 'internlm',
  architectures: ['InternLMForCausalLM'],
  modelTypes: ['internlm'],
  readConfig: (fields, architecture) =>
    readDecoderConfig(fields, architecture, {
      ...TRAITS,
      bias: (stated) => {
        const attention = stated.flag('bias', true);
        return { qkv: attention, output: attention, mlp: false };
      },
    }),
  layout: preNormLayout,
  record: recordPreNorm,
};

export const internLm3: Family<DecoderConfig> = {
  name: 'internlm3',
  architectures: ['InternLM3ForCausalLM'],
  modelTypes: ['internlm3'],
  readConfig: (fields, architecture) =>
    readDecoderConfig(fields, architecture, {
      ...TRAITS,
      bias: (stated) => {
        const others = stated.flag('bias', false);
        return { qkv: stated.flag('qkv_bias', false), output: others, mlp: others };
      },
    }),
  layout: preNormLayout,
  record: recordPreNorm,
};
