/**
 * gpt-oss: a mixture of experts in every layer. Beside the others of its kind:
 *
 * - each head of attention has a sink, one more score without a value;
 * - experts have biases and a clamped activation, and their gate and up rows alternate as the publisher stores them;
 * - every second layer slides.
 *
 * Source: the model code of transformers (models/gpt_oss).
 */

import { sinkWeights } from '../blocks/attention.js';
import type { ExpertNames } from '../blocks/experts.js';
import { type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family } from '../family.js';
import type { StackedRows } from '../layout.js';
import {
  type MixtureConfig,
  type MixtureTraits,
  mixtureLayout,
  readExperts,
  recordMixture,
} from './mixture.js';

const TRAITS: DecoderTraits = {
  bias: (fields) => {
    const attention = fields.flag('attention_bias', true);
    return { qkv: attention, output: attention, mlp: false };
  },
  qkNorm: false,
  window: (fields) => fields.count('sliding_window', 128),
  slides: (_, layer) => layer % 2 === 0,
  normEps: { name: 'rms_norm_eps', fallback: 1e-5 },
  defaults: { maxPositions: 131_072, ropeTheta: 150_000, headDim: 64, kvHeads: 8 },
};

/** What a config means that does not speak of rotation. */
const ROPE = {
  rope_type: 'yarn',
  factor: 32,
  beta_fast: 32,
  beta_slow: 1,
  truncate: false,
  original_max_position_embeddings: 4096,
};

/** In FP4 as published; as floats with their columns as rows; MLX has gate and up apart. */
const stacks: NonNullable<ExpertNames['stacks']> = (matrix, expert, { experts: stack, rows }) => {
  const own = { stack, rows: stack * rows, first: expert * rows };
  const [name, place]: [string, Omit<StackedRows, 'name'>] =
    matrix === 2
      ? ['down_proj', own]
      : ['gate_up_proj', { stack, rows: 2 * stack * rows, first: 2 * expert * rows + matrix, every: 2 }];
  const bias = `mlp.experts.${name}_bias`;
  const apart = `mlp.experts.${['gate_proj', 'up_proj', 'down_proj'][matrix]}`;
  return [
    { ...place, name: `mlp.experts.${name}`, bias, sign: `mlp.experts.${name}_blocks` },
    { ...place, name: `mlp.experts.${name}`, bias, transposed: true },
    { ...own, name: `${apart}.weight`, bias: `${apart}.bias` },
  ];
};

const MIXTURE: MixtureTraits = {
  names: { block: 'mlp', router: 'mlp.router', stacks, biased: true },
  attention: (at, { heads }) => sinkWeights(at, heads),
  attend: () => ({ sinks: true }),
};

function readConfig(stated: ConfigFields, architecture: string): MixtureConfig {
  const rotates = stated.has('rope_parameters', 'rope_scaling');
  // The activation is the clamped one, whatever `hidden_act` says.
  const plain = stated.replacing('hidden_act', null);
  const fields = rotates ? plain : plain.replacing('rope_scaling', ROPE);
  const config = readDecoderConfig(fields, architecture, TRAITS);
  const names = {
    count: ['num_local_experts', 'num_experts'],
    chosen: ['num_experts_per_tok', 'experts_per_token'],
    size: 'intermediate_size',
  };
  return {
    ...config,
    experts: readExperts(fields, names, { count: 128, chosen: 4, size: 2880 }),
    // A softmax over the chosen is that over all, divided by the sum of the chosen.
    route: { score: 'softmax', bias: false, groups: null, normalise: { least: 0, add: 0 }, scale: 1 },
    sharedSize: null,
    expertActivation: {
      alpha: fields.positive('swiglu_alpha', 1.702),
      limit: fields.positive('swiglu_limit', 7),
    },
    mixes: Array.from({ length: config.layers }, () => true),
  };
}

export const gptOss: Family<MixtureConfig> = {
  name: 'gpt_oss',
  architectures: ['GptOssForCausalLM'],
  modelTypes: ['gpt_oss'],
  readConfig,
  layout: (config) => mixtureLayout(config, MIXTURE),
  record: (ops, config, weights, options) => recordMixture(ops, config, MIXTURE, weights, options),
};
