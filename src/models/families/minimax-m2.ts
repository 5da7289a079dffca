/**
 * MiniMax M2: sigmoid scores with a bias where experts are chosen; q and k normed, all heads together; the first half of a head
 * rotates.
 *
 * Source: the model code of transformers (models/minimax_m2).
 */

import { normedQk, qkNormWeights } from '../blocks/qk-norms.js';
import { type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family } from '../family.js';
import { SPARSE_NAMES } from './mixtral.js';
import {
  type MixtureConfig,
  type MixtureTraits,
  mixtureLayout,
  readExperts,
  recordMixture,
} from './mixture.js';

const HEAD_DIM = 128;

const TRAITS: DecoderTraits = {
  bias: () => ({ qkv: false, output: false, mlp: false }),
  qkNorm: false,
  rotation: { partial: 1 },
  window: () => null,
  slides: () => false,
  defaults: { maxPositions: 196_608, ropeTheta: 5e6, headDim: HEAD_DIM, kvHeads: 8 },
};

const MIXTURE: MixtureTraits = {
  names: SPARSE_NAMES,
  routerBias: { tensor: 'block_sparse_moe.e_score_correction_bias', shape: (experts) => [experts] },
  attention: (at, config) => qkNormWeights(at, config, 'row'),
  attend: (at, config) => ({ prepare: (qkv) => normedQk(at, qkv, config, 'row', 'rms') }),
};

/** Published configs say how many elements of a head rotate, not which part of it. */
function withPart(fields: ConfigFields): ConfigFields {
  if (!fields.has('rotary_dim')) return fields;
  const part = fields.count('rotary_dim') / fields.count('head_dim', HEAD_DIM);
  return fields.withDefaults({ partial_rotary_factor: part });
}

function readConfig(stated: ConfigFields, architecture: string): MixtureConfig {
  const fields = withPart(stated);
  if (!fields.flag('use_qk_norm', true) || (fields.text('qk_norm_type') ?? 'per_layer') !== 'per_layer')
    throw fields.unsupported(
      'use_qk_norm',
      'a MiniMax M2 whose q and k are not normed as rows',
      'Use one whose use_qk_norm is true and whose qk_norm_type is per_layer.',
    );
  const scoring = fields.text('scoring_func') ?? 'sigmoid';
  if (scoring !== 'sigmoid')
    throw fields.unsupported(
      'scoring_func',
      `the scoring ${JSON.stringify(scoring)}`,
      'Use one with sigmoid.',
    );
  const config = readDecoderConfig(fields, architecture, TRAITS);
  const names = {
    count: ['num_local_experts', 'num_experts'],
    chosen: 'num_experts_per_tok',
    size: 'intermediate_size',
  };
  return {
    ...config,
    experts: readExperts(fields, names, { count: 256, chosen: 8 }),
    route: { score: 'sigmoid', bias: true, groups: null, normalise: { least: 0, add: 0 }, scale: 1 },
    sharedSize: null,
    mixes: Array.from({ length: config.layers }, () => true),
  };
}

export const minimaxM2: Family<MixtureConfig> = {
  name: 'minimax_m2',
  architectures: ['MiniMaxM2ForCausalLM'],
  modelTypes: ['minimax_m2'],
  readConfig,
  layout: (config) => mixtureLayout(config, MIXTURE),
  record: (ops, config, weights, options) => recordMixture(ops, config, MIXTURE, weights, options),
};
