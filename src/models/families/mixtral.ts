/**
 * Mixtral: a Mistral with a softmax over the experts chosen in the place of the MLP.
 *
 * Source: the model code of transformers (models/mixtral).
 */

import { type DecoderTraits, readDecoderConfig } from '../config.js';
import type { Family } from '../family.js';
import {
  type MixtureConfig,
  type MixtureTraits,
  mixtureLayout,
  readExperts,
  recordMixture,
} from './mixture.js';

const TRAITS: DecoderTraits = {
  bias: () => ({ qkv: false, output: false, mlp: false }),
  qkNorm: false,
  window: (fields) => (fields.has('sliding_window') ? fields.count('sliding_window') : null),
  slides: () => true,
  normEps: { name: 'rms_norm_eps', fallback: 1e-5 },
  defaults: { maxPositions: 131_072, ropeTheta: 1e6, kvHeads: 8 },
};

/** Matrices of an expert where its block is called that of sparse ones: gate, up and down. */
export const SPARSE_NAMES = { block: 'block_sparse_moe', matrices: ['w1', 'w3', 'w2'] } as const;

const MIXTURE: MixtureTraits = { names: SPARSE_NAMES };

export const mixtral: Family<MixtureConfig> = {
  name: 'mixtral',
  architectures: ['MixtralForCausalLM'],
  modelTypes: ['mixtral'],
  readConfig: (fields, architecture) => {
    const config = readDecoderConfig(fields, architecture, TRAITS);
    const names = {
      count: ['num_local_experts', 'num_experts'],
      chosen: 'num_experts_per_tok',
      size: 'intermediate_size',
    };
    return {
      ...config,
      experts: readExperts(fields, names, { count: 8, chosen: 2 }),
      // Of those chosen alone: the scores of all, divided by the sum of these.
      route: { score: 'softmax', bias: false, groups: null, normalise: { least: 0, add: 0 }, scale: 1 },
      sharedSize: null,
      mixes: Array.from({ length: config.layers }, () => true),
    };
  },
  layout: (config) => mixtureLayout(config, MIXTURE),
  record: (ops, config, weights, options) => recordMixture(ops, config, MIXTURE, weights, options),
};
