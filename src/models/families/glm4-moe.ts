/**
 * GLM-4.5, 4.6 and 4.7: sigmoid scores with a bias where experts are chosen, from the best groups of them; an expert that sees every token;
 * plain MLPs in the first layers. Half of each head rotates.
 *
 * Source: the model code of transformers (models/glm4_moe).
 */

import type { RouteOptions } from '../blocks/experts.js';
import { type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family } from '../family.js';
import {
  type MixtureConfig,
  type MixtureTraits,
  mixtureLayout,
  readExperts,
  recordMixture,
} from './mixture.js';

const TRAITS: DecoderTraits = {
  bias: (fields) => ({ qkv: fields.flag('attention_bias', false), output: false, mlp: false }),
  qkNorm: false,
  rotation: { partial: 0.5 },
  window: () => null,
  slides: () => false,
  normEps: { name: 'rms_norm_eps', fallback: 1e-5 },
  defaults: { maxPositions: 131_072, ropeTheta: 10_000, kvHeads: 8 },
};

const MIXTURE: MixtureTraits = {
  names: { block: 'mlp' },
  routerBias: { tensor: 'mlp.gate.e_score_correction_bias', shape: (experts) => [experts] },
  shared: { block: 'mlp.shared_experts', gate: null },
};

/** How DeepSeek V3 chooses, and those that do as it does. */
export function readGroupedRoute(fields: ConfigFields, experts: number, chosen: number): RouteOptions {
  const count = fields.count('n_group', 1);
  const kept = fields.count('topk_group', 1);
  const each = experts / count;
  if (count > 1 && !(Number.isInteger(each) && each >= 2))
    throw fields.odd(
      'n_group',
      count,
      `a divisor of the ${experts} experts, with two of them at least in each group,`,
    );
  if (kept > count || kept * each < chosen)
    throw fields.odd('topk_group', kept, `at most ${count}, and enough for ${chosen} experts,`);
  return {
    score: 'sigmoid',
    bias: true,
    groups: count === 1 ? null : { count, kept, by: 'two-best' },
    normalise: fields.flag('norm_topk_prob', true) ? { least: 0, add: 1e-20 } : null,
    scale: fields.positive('routed_scaling_factor', 1),
  };
}

function readConfig(fields: ConfigFields, architecture: string): MixtureConfig {
  const config = readDecoderConfig(fields, architecture, {
    ...TRAITS,
    qkNorm: fields.flag('use_qk_norm', false),
  });
  const names = {
    count: ['n_routed_experts', 'num_local_experts'],
    chosen: 'num_experts_per_tok',
    size: 'moe_intermediate_size',
  };
  const experts = readExperts(fields, names, { count: 128, chosen: 8, size: 1408 });
  const shared = fields.count('n_shared_experts', 1, 0);
  const dense = fields.count('first_k_dense_replace', 1, 0);
  return {
    ...config,
    experts,
    route: readGroupedRoute(fields, experts.experts, experts.chosen),
    sharedSize: shared === 0 ? null : shared * experts.intermediateSize,
    mixes: Array.from({ length: config.layers }, (_, layer) => layer >= dense),
  };
}

export const glm4Moe: Family<MixtureConfig> = {
  name: 'glm4_moe',
  architectures: ['Glm4MoeForCausalLM'],
  modelTypes: ['glm4_moe'],
  readConfig,
  layout: (config) => mixtureLayout(config, MIXTURE),
  record: (ops, config, weights, options) => recordMixture(ops, config, MIXTURE, weights, options),
};
