/**
 * Hy3: Qwen3's attention, sigmoid scores with a bias where experts are chosen, an expert that sees every token, a plain MLP in the first
 * layers.
 *
 * Source: the model code of transformers (models/hy_v3).
 */

import { type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family } from '../family.js';
import { attentionAndMlpBias } from '../stated-biases.js';
import {
  type MixtureConfig,
  type MixtureTraits,
  mixtureLayout,
  readExperts,
  readMixes,
  recordMixture,
} from './mixture.js';

const TRAITS: DecoderTraits = {
  bias: attentionAndMlpBias,
  qkNorm: true,
  window: () => null,
  slides: () => false,
  normEps: { name: 'rms_norm_eps', fallback: 1e-5 },
  defaults: { maxPositions: 131_072, ropeTheta: 11_158_840, headDim: 128, kvHeads: 8 },
};

const MIXTURE: MixtureTraits = {
  names: { block: 'mlp', router: 'mlp.router.gate' },
  routerBias: { tensor: 'mlp.expert_bias', shape: (experts) => [experts] },
  shared: { block: 'mlp.shared_mlp', gate: null },
};

function readConfig(fields: ConfigFields, architecture: string): MixtureConfig {
  if (!fields.flag('qk_norm', true))
    throw fields.unsupported('qk_norm', '"qk_norm": false in a Hy3', 'Use a Hy3 as published.');
  const config = readDecoderConfig(fields, architecture, TRAITS);
  const names = {
    count: ['num_experts', 'num_local_experts'],
    chosen: 'num_experts_per_tok',
    size: 'moe_intermediate_size',
  };
  const experts = readExperts(fields, names, { count: 192, chosen: 8, size: 1536 });
  const shared = fields.count('num_shared_experts', 1);
  const dense = fields.count('first_k_dense_replace', 1, 0);
  return {
    ...config,
    experts,
    route: {
      score: 'sigmoid',
      bias: true,
      groups: null,
      normalise: { least: 0, add: 1e-20 },
      scale: fields.positive('router_scaling_factor', 2.826),
    },
    sharedSize: shared * experts.intermediateSize,
    mixes:
      readMixes(fields, config.layers) ?? Array.from({ length: config.layers }, (_, layer) => layer >= dense),
  };
}

export const hy3: Family<MixtureConfig> = {
  name: 'hy3',
  architectures: ['HYV3ForCausalLM'],
  modelTypes: ['hy_v3'],
  readConfig,
  layout: (config) => mixtureLayout(config, MIXTURE),
  record: (ops, config, weights, options) => recordMixture(ops, config, MIXTURE, weights, options),
};
