/**
 * Qwen2-MoE and Qwen3-MoE: Qwen2 and Qwen3 with a softmax over experts in the place of the MLP. Qwen2's has an expert beside them that sees
 * every token, weighed by a sigmoid of its own.
 *
 * Source: the model code of transformers (models/qwen2_moe, models/qwen3_moe).
 */

import { type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family } from '../family.js';
import { attentionBias } from '../stated-biases.js';
import {
  type MixtureConfig,
  type MixtureTraits,
  mixtureLayout,
  readExperts,
  recordMixture,
} from './mixture.js';
import { qwenWindow } from './qwen2.js';

const DEFAULTS = { maxPositions: 32_768, ropeTheta: 10_000 };

const QWEN2: DecoderTraits = {
  bias: (fields) => ({ qkv: fields.flag('qkv_bias', true), output: false, mlp: false }),
  qkNorm: false,
  window: qwenWindow,
  slides: (fields, layer) => layer % 2 === 0 && layer < fields.count('max_window_layers', 28, 0),
  defaults: DEFAULTS,
};

const QWEN3: DecoderTraits = {
  bias: attentionBias,
  qkNorm: true,
  window: qwenWindow,
  slides: () => true,
  defaults: { ...DEFAULTS, kvHeads: 4 },
};

const SHARED_SIZE = 5632;

function readConfig(
  fields: ConfigFields,
  architecture: string,
  traits: DecoderTraits,
  defaults: { readonly count: number; readonly chosen: number; readonly size: number },
  shared: boolean,
): MixtureConfig {
  const config = readDecoderConfig(fields, architecture, traits);
  const names = {
    count: ['num_experts', 'num_local_experts'],
    chosen: 'num_experts_per_tok',
    size: 'moe_intermediate_size',
  };
  const normed = fields.flag('norm_topk_prob', false);
  const every = fields.count('decoder_sparse_step', 1);
  const plain = fields.numbers('mlp_only_layers') ?? [];
  return {
    ...config,
    experts: readExperts(fields, names, defaults),
    route: {
      score: 'softmax',
      bias: false,
      groups: null,
      normalise: normed ? { least: 0, add: 0 } : null,
      scale: 1,
    },
    sharedSize: shared ? fields.count('shared_expert_intermediate_size', SHARED_SIZE) : null,
    mixes: Array.from(
      { length: config.layers },
      (_, layer) => !plain.includes(layer) && (layer + 1) % every === 0,
    ),
  };
}

const QWEN3_MIXTURE: MixtureTraits = { names: { block: 'mlp' } };
const QWEN2_MIXTURE: MixtureTraits = {
  ...QWEN3_MIXTURE,
  shared: { block: 'mlp.shared_expert', gate: 'mlp.shared_expert_gate' },
};

export const qwen3Moe: Family<MixtureConfig> = {
  name: 'qwen3_moe',
  architectures: ['Qwen3MoeForCausalLM'],
  modelTypes: ['qwen3_moe'],
  readConfig: (fields, architecture) =>
    readConfig(fields, architecture, QWEN3, { count: 128, chosen: 8, size: 768 }, false),
  layout: (config) => mixtureLayout(config, QWEN3_MIXTURE),
  record: (ops, config, weights, options) => recordMixture(ops, config, QWEN3_MIXTURE, weights, options),
};

export const qwen2Moe: Family<MixtureConfig> = {
  name: 'qwen2_moe',
  architectures: ['Qwen2MoeForCausalLM'],
  modelTypes: ['qwen2_moe'],
  readConfig: (fields, architecture) =>
    readConfig(fields, architecture, QWEN2, { count: 60, chosen: 4, size: 1408 }, true),
  layout: (config) => mixtureLayout(config, QWEN2_MIXTURE),
  record: (ops, config, weights, options) => recordMixture(ops, config, QWEN2_MIXTURE, weights, options),
};
