/**
 * InternLM 1 and 3: Llamas whose biases go by other names. In InternLM 1 `bias` is that of all of attention; in InternLM 3
 * `qkv_bias` is that of q, k and v, and `bias` that of what stands behind them.
 *
 * vLLM runs both as Llamas, and transformers 5 the third. Of the first there is no model code in transformers: its fixture was
 * answered by the layers that its publisher has for PyTorch.
 */

import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
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
    readDecoderConfig(withRotation(fields), architecture, {
      ...TRAITS,
      bias: (stated) => {
        const attention = stated.flag('bias', true);
        return { qkv: attention, output: attention, mlp: false };
      },
    }),
  layout: preNormLayout,
  record: recordPreNorm,
};

/** The publisher's name for the rotation is `rotary`: a base, and how it is stretched (`origin`: not at all, or `dynamic`). */
function withRotation(fields: ConfigFields): ConfigFields {
  const rotary = fields.object('rotary');
  if (rotary === null) return fields;
  const type = rotary.text('type') ?? 'origin';
  if (type !== 'origin' && type !== 'dynamic')
    throw rotary.unsupported(
      'type',
      `the rotary scaling ${JSON.stringify(type)} of an InternLM`,
      'Use a checkpoint with "origin" or "dynamic".',
    );
  return fields.withDefaults({ rope_theta: rotary.positive('base', TRAITS.defaults.ropeTheta) });
}

/** What an InternLM 3 means that leaves fields out. */
const DEFAULTS = {
  rms_norm_eps: 1e-5,
  num_key_value_heads: 2,
  head_dim: 128,
  max_position_embeddings: 32_768,
};

export const internLm3: Family<DecoderConfig> = {
  name: 'internlm3',
  architectures: ['InternLM3ForCausalLM'],
  modelTypes: ['internlm3'],
  readConfig: (fields, architecture) =>
    readDecoderConfig(fields.whereAbsent(DEFAULTS), architecture, {
      ...TRAITS,
      // transformers 5 writes these by Llama's names.
      bias: (stated) => {
        const others = stated.flag('bias', stated.flag('mlp_bias', false));
        return {
          qkv: stated.flag('qkv_bias', stated.flag('attention_bias', false)),
          output: others,
          mlp: others,
        };
      },
    }),
  layout: preNormLayout,
  record: recordPreNorm,
};
