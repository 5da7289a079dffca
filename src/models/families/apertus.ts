/**
 * Apertus. Beside a Llama:
 *
 * - the MLP has no gate, and its activation is xIELU, with numbers of each layer's own;
 * - q and k are normed, each head by itself;
 * - the norms have other names, and the rotation is that of Llama 3.
 *
 * Source: the model code of transformers (models/apertus).
 */

import type { UngatedActivation } from '../../device/graph.js';
import { attentionWeights } from '../blocks/attention.js';
import { decoderLayout } from '../blocks/layout-builder.js';
import { plainMlpWeights, xieluWeights } from '../blocks/plain-mlp.js';
import { plainPreNorm } from '../blocks/residual.js';
import { recordStack } from '../blocks/stack.js';
import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family } from '../family.js';
import { attentionBias } from '../stated-biases.js';
import { ROPE } from './pre-norm.js';

export interface ApertusConfig extends DecoderConfig {
  readonly mlpActivation: UngatedActivation;
}

const THETA = 12_000_000;

/** Where a config says nothing of the rotation. */
const DEFAULT_ROPE = {
  rope_type: 'llama3',
  rope_theta: THETA,
  factor: 8,
  original_max_position_embeddings: 8192,
  low_freq_factor: 1,
  high_freq_factor: 4,
};

const TRAITS: DecoderTraits = {
  bias: attentionBias,
  qkNorm: true,
  window: () => null,
  slides: () => false,
  normEps: { name: 'rms_norm_eps', fallback: 1e-5 },
  defaults: { maxPositions: 65_536, ropeTheta: THETA },
};

function readConfig(stated: ConfigFields, architecture: string): ApertusConfig {
  refuseOthers(stated);
  const fields = stated.has('rope_parameters', 'rope_scaling')
    ? stated
    : stated.replacing('rope_parameters', DEFAULT_ROPE);
  const isXielu = (fields.text('hidden_act') ?? 'xielu') === 'xielu';
  const config = readDecoderConfig(
    isXielu ? fields.replacing('hidden_act', null) : fields,
    architecture,
    TRAITS,
  );
  return { ...config, mlpActivation: isXielu ? 'xielu' : config.activation };
}

/** Published configs say these, and the model code knows one value of each. */
function refuseOthers(fields: ConfigFields): void {
  for (const [name, known] of [
    ['qk_norm', true],
    ['post_norm', false],
    ['mlp_bias', false],
  ] as const)
    if (fields.flag(name, known) !== known)
      throw fields.unsupported(name, `"${name}": ${!known} in an Apertus`, 'Use an Apertus as published.');
}

export const apertus: Family<ApertusConfig> = {
  name: 'apertus',
  architectures: ['ApertusForCausalLM'],
  modelTypes: ['apertus'],
  readConfig,
  layout: (config) =>
    decoderLayout(config, {
      ropes: [{ key: ROPE, parameters: config.rope, dims: config.rotaryDims }],
      layer: (at) => {
        at.norm('input-norm', 'attention_layernorm', config.hiddenSize);
        at.norm('mlp-norm', 'feedforward_layernorm', config.hiddenSize);
        attentionWeights(at, { ...config, window: null });
        plainMlpWeights(at, { ...config, bias: config.bias.mlp });
        if (config.mlpActivation === 'xielu') xieluWeights(at);
      },
    }),
  record: (ops, config, weights, options) =>
    recordStack(ops, config, weights, options, {
      layer: (x, at) => plainPreNorm(x, at, { ...config, window: null, rope: ROPE }, config.mlpActivation),
    }),
};
