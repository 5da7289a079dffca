/**
 * Qwen's hybrids: three layers of Gated DeltaNet to one of attention, with MLPs or mixtures of experts. Beside a Qwen3:
 *
 * - norms multiply by 1 + w, but for the one within DeltaNet;
 * - a quarter of each head rotates;
 * - what attention leaves is gated: `q_proj` has, head by head, rows of q and rows of the gate.
 *
 * Source: the model code of transformers (models/qwen3_5, models/qwen3_5_moe, models/qwen3_next).
 */

import type { Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import { attend, attentionWeights, outputGate } from '../blocks/attention.js';
import { type GatedDeltaShape, gatedDelta, gatedDeltaWeights } from '../blocks/gated-delta.js';
import { gated, gatedMlpWeights } from '../blocks/gated-mlp.js';
import { decoderLayout } from '../blocks/layout-builder.js';
import { preNormWeights } from '../blocks/residual.js';
import { recordStack } from '../blocks/stack.js';
import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { RecordOptions } from '../family.js';
import type { ShapeOf, WeightLayout, Weights } from '../layout.js';
import { type Mixture, type MixtureTraits, mixtureWeights, readExperts, recordExperts } from './mixture.js';
import { ROPE, sectionsOf } from './pre-norm.js';

export interface QwenHybridConfig extends DecoderConfig {
  /** `[layers]`: it attends, where it is no DeltaNet. */
  readonly attends: readonly boolean[];
  readonly delta: GatedDeltaShape;
  /** Null where all layers have MLPs. */
  readonly mixture:
    | (Mixture & { /** `[layers]`: experts, or an MLP. */ readonly mixes: readonly boolean[] })
    | null;
}

/** What a family reads beside what all have. */
export interface QwenHybridTraits {
  readonly mixture?: (fields: ConfigFields, layers: number) => QwenHybridConfig['mixture'];
  /** Width of MLPs where config.json does not say. Default: it has to. */
  readonly intermediateSize?: (fields: ConfigFields) => number;
  /** See gatedDeltaWeights. Default false. */
  readonly byKeyHead?: boolean;
}

const TRAITS: DecoderTraits = {
  bias: () => ({ qkv: false, output: false, mlp: false }),
  qkNorm: true,
  rotation: { partial: 0.25 },
  window: () => null,
  slides: () => false,
  defaults: { maxPositions: 32_768, ropeTheta: 10_000, headDim: 256 },
};

export function readQwenHybrid(
  stated: ConfigFields,
  architecture: string,
  traits: QwenHybridTraits = {},
): QwenHybridConfig {
  const width = traits.intermediateSize?.(stated);
  const fields = width === undefined ? stated : stated.withDefaults({ intermediate_size: width });
  const attends = readAttends(fields);
  for (const [name, wanted] of [
    ['attention_bias', false],
    ['attn_output_gate', true],
  ] as const) {
    if (fields.flag(name, wanted) === wanted) continue;
    throw fields.unsupported(
      name,
      `"${name}": ${!wanted} in a Qwen hybrid`,
      'Use a checkpoint as they are published.',
    );
  }
  const kvHeads = traits.mixture === undefined ? 4 : 2;
  const decoder = readDecoderConfig(fields.replacing('layer_types', null), architecture, {
    ...TRAITS,
    defaults: { ...TRAITS.defaults, kvHeads },
  });
  // It is that of the convolutions as well.
  if (decoder.activation !== 'silu')
    throw fields.unsupported(
      'hidden_act',
      'a Qwen hybrid without SiLU',
      'Use one that has "hidden_act": "silu".',
    );
  const delta = {
    keyHeads: fields.count('linear_num_key_heads', 16),
    heads: fields.count('linear_num_value_heads', 32),
    keyDim: fields.count('linear_key_head_dim', 128),
    valueDim: fields.count('linear_value_head_dim', 128),
    taps: fields.count('linear_conv_kernel_dim', 4, 2),
  };
  if (delta.heads % delta.keyHeads !== 0)
    throw fields.odd(
      'linear_num_value_heads',
      delta.heads,
      `a multiple of linear_num_key_heads (${delta.keyHeads})`,
    );
  return { ...decoder, attends, delta, mixture: traits.mixture?.(fields, decoder.layers) ?? null };
}

function readAttends(fields: ConfigFields): boolean[] {
  const layers = fields.count('num_hidden_layers');
  const types = fields.texts('layer_types');
  if (types === null) {
    const every = fields.count('full_attention_interval', 4);
    return Array.from({ length: layers }, (_, layer) => (layer + 1) % every === 0);
  }
  if (types.length !== layers)
    throw fields.odd('layer_types', types, `one entry for each of the ${layers} layers`);
  return types.map((type) => {
    if (type === 'full_attention') return true;
    if (type === 'linear_attention') return false;
    throw fields.unsupported(
      'layer_types',
      `a layer of type ${JSON.stringify(type)}`,
      'Use a model whose layers are linear_attention or full_attention.',
    );
  });
}

/** The softmax over experts of these families, and the expert beside them that sees every token. */
export function readQwenMixture(
  fields: ConfigFields,
  defaults: { readonly count: number; readonly chosen: number },
  normed: boolean,
): Mixture {
  const names = { count: 'num_experts', chosen: 'num_experts_per_tok', size: 'moe_intermediate_size' };
  return {
    experts: readExperts(fields, names, { ...defaults, size: 512 }),
    route: {
      score: 'softmax',
      bias: false,
      groups: null,
      normalise: normed ? { least: 0, add: 0 } : null,
      scale: 1,
    },
    sharedSize: fields.count('shared_expert_intermediate_size', 512),
  };
}

const MIXTURE: MixtureTraits = {
  names: { block: 'mlp' },
  shared: { block: 'mlp.shared_expert', gate: 'mlp.shared_expert_gate' },
};

export function qwenHybridLayout(
  config: QwenHybridConfig,
  { byKeyHead = false }: QwenHybridTraits = {},
): WeightLayout {
  const { hiddenSize, attends, delta, mixture } = config;
  // Files of MLX have the 1 added already. They have kernels of convolutions as [channels, taps, 1], others [channels, 1, taps].
  const recurrent = attends.indexOf(false);
  const conv = `model.layers.${recurrent}.linear_attn.conv1d.weight`;
  const addToNorms = (shapeOf: ShapeOf): number => (recurrent >= 0 && shapeOf(conv)?.at(-1) === 1 ? 0 : 1);
  return decoderLayout(config, {
    ropes: [{ key: ROPE, parameters: config.rope, dims: config.rotaryDims, ...sectionsOf(config) }],
    addToNorms,
    layer: (at) => {
      preNormWeights(at, hiddenSize);
      if (attends[at.index]) attentionWeights(at, { ...config, window: null, gated: true });
      else gatedDeltaWeights(at, hiddenSize, delta, byKeyHead);
      if (mixture?.mixes[at.index] === true) mixtureWeights(at, hiddenSize, mixture, MIXTURE);
      else gatedMlpWeights(at, { ...config, bias: false });
    },
  });
}

/** Returns logits `[outputs, vocab]`. */
export function recordQwenHybrid(
  ops: Ops,
  config: QwenHybridConfig,
  weights: Weights,
  options: RecordOptions,
): Tensor {
  const { heads, kvHeads, headDim, qkNorm, attends, delta, activation, mixture } = config;
  const attention = { heads, kvHeads, headDim, qkNorm, window: null, rope: ROPE };
  return recordStack(ops, config, weights, options, {
    layer: (x, at) => {
      const normed = at.norm(x, 'input-norm');
      const sum = attends[at.index]
        ? at.linear(at.wanted(outputGate(at, attend(at, normed, attention), normed)), 'output', at.wanted(x))
        : at.linear(at.wanted(gatedDelta(at, normed, delta)), 'delta-out', at.wanted(x));
      const again = at.norm(sum, 'mlp-norm');
      if (mixture?.mixes[at.index] === true)
        return recordExperts(at, again, sum, { ...mixture, activation }, MIXTURE);
      return at.linear(gated(at, again, activation), 'down', sum);
    },
  });
}
