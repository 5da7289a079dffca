/**
 * Latent attention and a mixture of experts: what DeepSeek V2 and V3 and those built like them have in common. Plain MLPs in the first
 * layers, an expert that sees every token.
 *
 *     each layer:  x += o(attend(norm(x)))
 *                  x += shared(norm(x)) + Σ weight · expert(norm(x)), or an MLP
 */

import type { QueryGrowth, Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import type { RopeStyle } from '../../device/rope.js';
import type { JsonObject } from '../../weights/folder-files.js';
import type { RouteOptions } from '../blocks/experts.js';
import { gated, gatedMlpWeights } from '../blocks/gated-mlp.js';
import { attendLatent, type LatentShape, latentDim, latentWeights } from '../blocks/latent-attention.js';
import { decoderLayout } from '../blocks/layout-builder.js';
import { preNormWeights } from '../blocks/residual.js';
import { recordStack } from '../blocks/stack.js';
import { type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family, RecordOptions } from '../family.js';
import type { WeightLayout, Weights } from '../layout.js';
import { ropeSection, yarnScale } from '../rope-config.js';
import type { RopeParameters } from '../rope-frequencies.js';
import {
  type MixtureConfig,
  type MixtureTraits,
  mixtureWeights,
  readExperts,
  recordExperts,
} from './mixture.js';
import { ROPE } from './pre-norm.js';

export interface LatentMixtureConfig extends MixtureConfig {
  readonly latent: LatentShape;
  /** Multiplies the scores. */
  readonly scale: number;
  readonly style: RopeStyle;
  /** Null: queries stay. */
  readonly queryGrowth: QueryGrowth | null;
}

const TRAITS: DecoderTraits = {
  bias: () => ({ qkv: false, output: false, mlp: false }),
  qkNorm: false,
  window: () => null,
  slides: () => false,
  defaults: { maxPositions: 4096, ropeTheta: 10_000 },
};

const MIXTURE: MixtureTraits = {
  names: { block: 'mlp' },
  routerBias: { tensor: 'mlp.gate.e_score_correction_bias', shape: (experts) => [experts] },
  shared: { block: 'mlp.shared_experts', gate: null },
};

/** How a family chooses experts, and what its configs mean that leave fields out. */
export interface LatentMixtureRules {
  readonly defaults: JsonObject;
  readonly route: (fields: ConfigFields, experts: number, chosen: number) => RouteOptions;
  /** Which layers have experts; those behind the first `first_k_dense_replace` where this says nothing. */
  readonly mixes?: (fields: ConfigFields, layers: number) => boolean[] | null;
  /** Reads away what only this family's configs say. */
  readonly read?: (fields: ConfigFields) => ConfigFields;
  /** How queries grow by position. Default: they do not, and a config that says so is refused. */
  readonly growth?: (section: ConfigFields | null, rope: RopeParameters) => QueryGrowth | null;
}

function readConfig(
  stated: ConfigFields,
  architecture: string,
  rules: LatentMixtureRules,
): LatentMixtureConfig {
  const fields = stated.whereAbsent(rules.defaults);
  const heads = fields.count('num_attention_heads');
  const latent = {
    heads,
    rotaryDim: fields.count('qk_rope_head_dim', 64),
    plainDim: fields.count('qk_nope_head_dim', 128),
    valueDim: fields.count('v_head_dim', 128),
    kvRank: fields.count('kv_lora_rank', 512),
    qRank: fields.has('q_lora_rank') ? fields.count('q_lora_rank') : null,
  };
  for (const [name, value, unit] of [
    ['qk_rope_head_dim', latent.rotaryDim, 4],
    ['qk_nope_head_dim', latent.plainDim, 4],
    ['v_head_dim', latent.valueDim, 8],
    ['kv_lora_rank', latent.kvRank, 16],
  ] as const)
    if (value % unit !== 0)
      throw fields.unsupported(
        name,
        `"${name}" of ${value}`,
        `Use a model where it is a multiple of ${unit}.`,
      );
  if (fields.count('num_key_value_heads', heads) !== heads)
    throw fields.odd(
      'num_key_value_heads',
      fields.value('num_key_value_heads'),
      `num_attention_heads (${heads})`,
    );
  if (fields.flag('attention_bias', false))
    throw fields.unsupported(
      'attention_bias',
      'latent attention with biases',
      'Use a checkpoint without them.',
    );
  if (fields.count('moe_layer_freq', 1) !== 1)
    throw fields.unsupported(
      'moe_layer_freq',
      'a mixture of experts in some of the layers behind the first',
      'Use a model where it is 1.',
    );
  // The part of a head that rotates rotates whole.
  const config = readDecoderConfig(fields.replacing('head_dim', latent.rotaryDim), architecture, {
    ...TRAITS,
    rotation: { queryGrowth: rules.growth !== undefined },
  });
  const names = {
    count: ['n_routed_experts', 'num_local_experts', 'num_experts'],
    chosen: 'num_experts_per_tok',
    size: 'moe_intermediate_size',
  };
  const experts = readExperts(fields, names);
  const shared = fields.count('n_shared_experts', 0, 0);
  const dense = fields.count('first_k_dense_replace', 0, 0);
  const behind = Array.from({ length: config.layers }, (_, layer) => layer >= dense);
  const { rope } = config;
  const section = ropeSection(fields);
  const all = section?.atLeastZero('mscale_all_dim', 0) ?? 0;
  const stretch = all !== 0 && 'factor' in rope ? yarnScale(rope.factor, all) : 1;
  return {
    ...config,
    // As they are cached.
    kvHeads: 1,
    headDim: latentDim(latent),
    latent,
    scale: stretch ** 2 / Math.sqrt(latent.rotaryDim + latent.plainDim),
    style: fields.flag('rope_interleave', true) ? 'interleaved' : 'half',
    queryGrowth: rules.growth?.(section, rope) ?? null,
    experts,
    route: rules.route(fields, experts.experts, experts.chosen),
    sharedSize: shared === 0 ? null : shared * experts.intermediateSize,
    mixes: rules.mixes?.(fields, config.layers) ?? behind,
  };
}

function layout(config: LatentMixtureConfig): WeightLayout {
  const { hiddenSize, latent, mixes, style } = config;
  return decoderLayout(config, {
    ropes: [{ key: ROPE, parameters: config.rope, dims: latent.rotaryDim, style }],
    layer: (at) => {
      preNormWeights(at, hiddenSize);
      latentWeights(at, hiddenSize, latent);
      if (mixes[at.index] === true) mixtureWeights(at, hiddenSize, config, MIXTURE);
      else gatedMlpWeights(at, { ...config, bias: false });
    },
  });
}

function record(ops: Ops, config: LatentMixtureConfig, weights: Weights, options: RecordOptions): Tensor {
  const { latent, scale, queryGrowth, mixes, activation } = config;
  const how = { rope: ROPE, scale, queryGrowth };
  return recordStack(ops, config, weights, options, {
    layer: (x, at) => {
      const attended = attendLatent(at, at.norm(x, 'input-norm'), latent, how);
      const sum = at.linear(attended, 'output', at.wanted(x));
      const normed = at.norm(sum, 'mlp-norm');
      if (mixes[at.index] === true) return recordExperts(at, normed, sum, config, MIXTURE);
      return at.linear(gated(at, normed, activation), 'down', sum);
    },
  });
}

export const latentMixture = (
  name: string,
  architecture: string,
  modelTypes: readonly string[],
  rules: LatentMixtureRules,
): Family<LatentMixtureConfig> => ({
  name,
  architectures: [architecture],
  modelTypes,
  readConfig: (fields, stated) => readConfig(rules.read?.(fields) ?? fields, stated, rules),
  layout,
  record,
});
