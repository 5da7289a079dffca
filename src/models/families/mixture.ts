/**
 * The decoder of pre-norm mixtures of experts, which differ in how experts are chosen, in names, and in what stands beside them:
 *
 *     x = embed(tokens)
 *     each layer:  x += o(attend(rope(qkv(norm(x)))))
 *                  x += shared(norm(x)) + Σ weight · expert(norm(x)), or an MLP
 *     logits = head(norm(x of the wanted tokens))
 */

import type { ExpertActivation, Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import type { RopeStyle } from '../../device/rope.js';
import { type AttentionOptions, attentionWeights } from '../blocks/attention.js';
import {
  type ExpertNames,
  type ExpertSizes,
  expertWeights,
  gatedShared,
  mixed,
  type RouteOptions,
  routerBias,
  shared,
  sharedExpertWeights,
} from '../blocks/experts.js';
import { gated, gatedMlpWeights } from '../blocks/gated-mlp.js';
import { decoderLayout, type LayerLayout } from '../blocks/layout-builder.js';
import { preNormOf, preNormWeights } from '../blocks/residual.js';
import { type Layer, recordStack } from '../blocks/stack.js';
import type { DecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { RecordOptions } from '../family.js';
import type { WeightLayout, Weights } from '../layout.js';
import { ROPE, sectionsOf } from './pre-norm.js';

/** What stands in the place of an MLP. */
export interface Mixture {
  readonly experts: ExpertSizes;
  readonly route: RouteOptions;
  /** Width of the expert that sees every token, null for none. */
  readonly sharedSize: number | null;
  /** Default: that of the MLPs. */
  readonly expertActivation?: ExpertActivation;
}

export interface MixtureConfig extends DecoderConfig, Mixture {
  /** `[layers]` whether a layer has experts, or an MLP of its own. */
  readonly mixes: readonly boolean[];
}

/** What a family's weights are called, and what its attention has that Llama's has not. */
export interface MixtureTraits {
  readonly names: ExpertNames;
  /** Name in full of what is added to scores, and what it is stored as, by the number of experts. */
  readonly routerBias?: { readonly tensor: string; readonly shape: (experts: number) => readonly number[] };
  readonly shared?: { readonly block: string; readonly gate: string | null };
  readonly style?: RopeStyle;
  /** Weights of attention beside the matrices. */
  readonly attention?: (at: LayerLayout, config: MixtureConfig) => void;
  readonly attend?: (at: Layer, config: MixtureConfig) => Partial<AttentionOptions>;
}

/** `[layers]` which `mlp_layer_types` says to have experts; null where the config does not say it. */
export function readMixes(fields: ConfigFields, layers: number): boolean[] | null {
  const types = fields.texts('mlp_layer_types');
  if (types === null) return null;
  if (types.length !== layers || types.some((type) => type !== 'dense' && type !== 'sparse'))
    throw fields.odd('mlp_layer_types', types, `"dense" or "sparse" for each of the ${layers} layers`);
  return types.map((type) => type === 'sparse');
}

export function mixtureLayout(config: MixtureConfig, traits: MixtureTraits): WeightLayout {
  const { hiddenSize, bias } = config;
  return decoderLayout(config, {
    ropes: [
      {
        key: ROPE,
        parameters: config.rope,
        dims: config.rotaryDims,
        style: traits.style ?? 'half',
        ...sectionsOf(config),
      },
    ],
    layer: (at) => {
      preNormWeights(at, hiddenSize);
      const ownNorms = traits.attention !== undefined;
      const window = config.windows[at.index] ?? null;
      attentionWeights(at, { ...config, qkNorm: config.qkNorm && !ownNorms, window });
      traits.attention?.(at, config);
      if (config.mixes[at.index] === true) mixtureWeights(at, hiddenSize, config, traits);
      else gatedMlpWeights(at, { ...config, bias: bias.mlp });
    },
  });
}

/** What a layer has in the place of an MLP. */
export function mixtureWeights(
  at: LayerLayout,
  hiddenSize: number,
  { experts, sharedSize, route }: Mixture,
  traits: Pick<MixtureTraits, 'names' | 'routerBias' | 'shared'>,
): void {
  expertWeights(at, hiddenSize, experts, traits.names);
  if (route.bias && traits.routerBias !== undefined)
    routerBias(at, traits.routerBias.tensor, traits.routerBias.shape(experts.experts));
  if (sharedSize !== null && traits.shared !== undefined)
    sharedExpertWeights(at, hiddenSize, sharedSize, traits.shared.block, traits.shared.gate);
}

/** `sum + mixture(normed)`, an expert that sees every token first. */
export function recordExperts(
  at: Layer,
  normed: Tensor,
  sum: Tensor,
  {
    experts,
    route,
    sharedSize,
    activation,
    expertActivation = activation,
  }: Mixture & Pick<DecoderConfig, 'activation'>,
  { shared: beside }: Pick<MixtureTraits, 'shared'>,
): Tensor {
  const one = beside?.gate ? gatedShared : shared;
  const base = sharedSize === null ? sum : one(at, normed, sum, activation);
  return mixed(at, normed, experts, route, expertActivation, { sum: base });
}

/** Returns logits `[outputs, vocab]`. */
export function recordMixture(
  ops: Ops,
  config: MixtureConfig,
  traits: MixtureTraits,
  weights: Weights,
  options: RecordOptions,
): Tensor {
  const { heads, kvHeads, headDim, qkNorm, windows, activation } = config;
  return recordStack(ops, config, weights, options, {
    layer: (x, at) => {
      const window = windows[at.index] ?? null;
      const attention = {
        heads,
        kvHeads,
        headDim,
        qkNorm,
        window,
        rope: ROPE,
        ...traits.attend?.(at, config),
      };
      return preNormOf(x, at, attention, (normed, sum) => {
        if (config.mixes[at.index] === true) return recordExperts(at, normed, sum, config, traits);
        return at.linear(gated(at, normed, activation), 'down', sum);
      });
    },
  });
}

/** A stack of weights is listed expert by expert: a count that no model has would fill the memory. */
const MAX_EXPERTS = 1024;

/** Experts of a layer, experts that a token is given to, and their width. */
export function readExperts(
  fields: ConfigFields,
  names: {
    readonly count: string | readonly string[];
    readonly chosen: string | readonly string[];
    readonly size: string;
  },
  defaults: { readonly count?: number; readonly chosen?: number; readonly size?: number } = {},
): ExpertSizes {
  const experts = fields.count(names.count, defaults.count);
  if (experts > MAX_EXPERTS) throw fields.odd([names.count].flat()[0]!, experts, `at most ${MAX_EXPERTS}`);
  const chosen = fields.count(names.chosen, defaults.chosen);
  if (chosen > experts)
    throw fields.odd([names.chosen].flat()[0]!, chosen, `at most the number of experts (${experts})`);
  return { experts, chosen, intermediateSize: fields.count(names.size, defaults.size) };
}
