/**
 * Hunyuan with experts (A13B): the dense one, with a softmax over the experts chosen and an expert that sees every token in the place of
 * the MLP.
 *
 * Source: the model code of transformers (models/hunyuan_v1_moe).
 */

import { readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family } from '../family.js';
import { HUNYUAN_TRAITS, hunyuanFields, hunyuanNorms } from './hunyuan.js';
import {
  type MixtureConfig,
  type MixtureTraits,
  mixtureLayout,
  readExperts,
  recordMixture,
} from './mixture.js';

const MIXTURE: MixtureTraits = {
  names: { block: 'mlp', router: 'mlp.gate.wg' },
  shared: { block: 'mlp.shared_mlp', gate: null },
  attention: (at, { headDim }) => hunyuanNorms(at, headDim),
  attend: () => ({ normOrder: 'after' }),
};

/** Published configs have lists with a number for each layer. */
const BY_LAYER = ['num_experts', 'moe_topk', 'moe_intermediate_size', 'num_shared_expert'] as const;

function alikeInLayers(fields: ConfigFields): ConfigFields {
  let out = fields;
  for (const name of BY_LAYER) {
    if (!Array.isArray(fields.value(name))) continue;
    const [first, ...more] = fields.numbers(name)!;
    if (first === undefined || more.some((number) => number !== first))
      throw fields.unsupported(
        name,
        `another "${name}" in each layer`,
        'Use a model whose layers are alike.',
      );
    out = out.replacing(name, first);
  }
  return out;
}

function readConfig(stated: ConfigFields, architecture: string): MixtureConfig {
  const fields = alikeInLayers(hunyuanFields(stated));
  const config = readDecoderConfig(fields, architecture, HUNYUAN_TRAITS);
  const experts = readExperts(
    fields,
    { count: 'num_experts', chosen: ['moe_topk', 'num_experts_per_tok'], size: 'intermediate_size' },
    { count: 1, chosen: 1 },
  );
  const size = fields.count('moe_intermediate_size', experts.intermediateSize);
  if (size !== experts.intermediateSize)
    throw fields.unsupported(
      'moe_intermediate_size',
      `experts of ${size} beside an intermediate_size of ${experts.intermediateSize}`,
      'Use a model in which they are equal.',
    );
  const shared = fields.count('num_shared_expert', 1, 0);
  if (shared !== 1)
    throw fields.unsupported('num_shared_expert', `${shared} shared experts`, 'Use a model with one.');
  return {
    ...config,
    experts,
    route: { score: 'softmax', bias: false, groups: null, normalise: { least: 0, add: 0 }, scale: 1 },
    sharedSize: experts.intermediateSize,
    mixes: Array.from({ length: config.layers }, () => true),
  };
}

export const hunyuanMoe: Family<MixtureConfig> = {
  name: 'hunyuan_moe',
  architectures: ['HunYuanMoEV1ForCausalLM'],
  modelTypes: ['hunyuan_v1_moe'],
  readConfig,
  layout: (config) => mixtureLayout(config, MIXTURE),
  record: (ops, config, weights, options) => recordMixture(ops, config, MIXTURE, weights, options),
};
