/**
 * ERNIE 4.5 with experts: softmax scores, with a bias where experts are chosen; an expert that sees every token; plain MLPs in some
 * layers. Neighbours of a head rotate with each other.
 *
 * Source: the model code of transformers (models/ernie4_5_moe).
 */

import { type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family } from '../family.js';
import type { ShapeOf } from '../layout.js';
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
  window: () => null,
  slides: () => false,
  defaults: { maxPositions: 131_072, ropeTheta: 500_000 },
};

/** What configs mean that leave fields out. */
const DEFAULTS = { rms_norm_eps: 1e-5, tie_word_embeddings: true, num_key_value_heads: 4 };

const ROUTER_BIAS = 'mlp.moe_statics.e_score_correction_bias';
const MIXTURE: MixtureTraits = {
  names: { block: 'mlp' },
  routerBias: { tensor: ROUTER_BIAS, shape: (experts) => [1, experts] },
  shared: { block: 'mlp.shared_experts', gate: null },
  style: 'interleaved',
};

function readConfig(stated: ConfigFields, architecture: string): MixtureConfig {
  const fields = stated.whereAbsent(DEFAULTS);
  if (fields.flag('use_bias', false))
    throw fields.unsupported(
      'use_bias',
      'an ERNIE 4.5 whose experts have biases',
      'Use one whose use_bias is false.',
    );
  const config = readDecoderConfig(fields, architecture, TRAITS);
  const names = {
    count: ['moe_num_experts', 'num_experts'],
    chosen: ['moe_k', 'num_experts_per_tok'],
    size: 'moe_intermediate_size',
  };
  const experts = readExperts(fields, names, { count: 64, chosen: 6, size: 1536 });
  const shared = fields.count('moe_num_shared_experts', 2, 0);
  const first = fields.count('moe_layer_start_index', 1, 0);
  const statedLast = fields.count('moe_layer_end_index', -1, -1);
  const last = statedLast === -1 ? config.layers - 1 : statedLast;
  const every = fields.count('moe_layer_interval', 1);
  return {
    ...config,
    experts,
    route: {
      score: 'softmax',
      bias: true,
      groups: null,
      normalise: { least: fields.positive('moe_norm_min', 1e-12), add: 0 },
      scale: 1,
    },
    sharedSize: shared === 0 ? null : shared * experts.intermediateSize,
    mixes: Array.from(
      { length: config.layers },
      (_, layer) => (layer + 1) % every === 0 && layer >= first && layer <= last,
    ),
  };
}

/** mlx-lm leaves the biases of the choice out; its files are known by their stacks. */
function asStored(config: MixtureConfig, shapeOf: ShapeOf): MixtureConfig {
  const layer = config.mixes.indexOf(true);
  const has = (tensor: string): boolean => shapeOf(`model.layers.${layer}.${tensor}`) !== undefined;
  if (has(ROUTER_BIAS) || !has('mlp.switch_mlp.up_proj.weight')) return config;
  const message =
    'the weights have no biases for the choice of experts, as mlx-lm writes them: experts are chosen by their scores alone';
  const notice = { message, fields: { tensor: `model.layers.${layer}.${ROUTER_BIAS}` } };
  return { ...config, route: { ...config.route, bias: false }, notices: [...config.notices, notice] };
}

export const ernie45Moe: Family<MixtureConfig> = {
  name: 'ernie4_5_moe',
  architectures: ['Ernie4_5_MoeForCausalLM'],
  modelTypes: ['ernie4_5_moe'],
  readConfig,
  asStored,
  layout: (config) => mixtureLayout(config, MIXTURE),
  record: (ops, config, weights, options) => recordMixture(ops, config, MIXTURE, weights, options),
};
