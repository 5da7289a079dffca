/**
 * LFM2 and LFM2.5. Most layers are gated short convolutions, some attend:
 *
 *     each layer:  x += out(mix(norm(x))),  mix a convolution or attention with q and k normed by head
 *                  x += w2(silu(w1(norm(x))) · w3(norm(x))), or a mixture of experts behind the first layers (LFM2-MoE)
 *
 * Source: the model code of transformers (models/lfm2, models/lfm2_moe).
 */

import type { Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import { attend, attentionWeights } from '../blocks/attention.js';
import { gated } from '../blocks/gated-mlp.js';
import { decoderLayout, type LayerPart } from '../blocks/layout-builder.js';
import { shortConvolved, shortConvWeights } from '../blocks/short-conv.js';
import { recordStack } from '../blocks/stack.js';
import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family, RecordOptions } from '../family.js';
import type { WeightLayout, Weights } from '../layout.js';
import { type Mixture, type MixtureTraits, mixtureWeights, readExperts, recordExperts } from './mixture.js';
import { ROPE } from './pre-norm.js';

export interface Lfm2Config extends DecoderConfig {
  /** `[layers]`: it attends, where it does not convolve. */
  readonly attends: readonly boolean[];
  readonly conv: { readonly taps: number; readonly bias: boolean };
  /** Null where all layers have MLPs; else those from `from` on have experts. */
  readonly mixture: (Mixture & { readonly from: number }) | null;
}

const TRAITS: DecoderTraits = {
  bias: () => ({ qkv: false, output: false, mlp: false }),
  qkNorm: true,
  window: () => null,
  slides: () => false,
  normEps: { name: 'norm_eps', fallback: 1e-5 },
  defaults: { maxPositions: 128_000, ropeTheta: 1_000_000, kvHeads: 8 },
};

function readConfig(fields: ConfigFields, architecture: string): Omit<Lfm2Config, 'mixture'> {
  const attends = readAttends(fields);
  // What is read of a decoder whose layers all attend.
  const decoder = readDecoderConfig(fields.replacing('layer_types', null), architecture, TRAITS);
  return {
    ...decoder,
    tied: fields.flag('tie_embedding', fields.flag('tie_word_embeddings', true)),
    attends,
    conv: { taps: fields.count('conv_L_cache', 3, 2), bias: fields.flag('conv_bias', false) },
  };
}

/** Sigmoid scores; a bias where experts are chosen. */
function readMixture(fields: ConfigFields): NonNullable<Lfm2Config['mixture']> {
  const names = { count: 'num_experts', chosen: 'num_experts_per_tok', size: 'moe_intermediate_size' };
  return {
    experts: readExperts(fields, names, { count: 32, chosen: 4, size: 1792 }),
    route: {
      score: 'sigmoid',
      bias: fields.flag('use_expert_bias', true),
      groups: null,
      normalise: fields.flag('norm_topk_prob', true) ? { least: 0, add: 1e-6 } : null,
      scale: fields.positive('routed_scaling_factor', 1),
    },
    sharedSize: null,
    from: fields.count('num_dense_layers', 2, 0),
  };
}

/** The width that is stated may be that of an MLP without a gate: two thirds of it are rounded up then. */
function mlpWidth(fields: ConfigFields): number {
  const stated = fields.count(['block_ff_dim', 'intermediate_size'], 12_288);
  if (!fields.flag('block_auto_adjust_ff_dim', true)) return stated;
  const multiple = fields.count('block_multiple_of', 256);
  const width = Math.floor(fields.positive('block_ffn_dim_multiplier', 1) * Math.floor((2 * stated) / 3));
  return multiple * Math.ceil(width / multiple);
}

function readAttends(fields: ConfigFields): boolean[] {
  const layers = fields.count('num_hidden_layers');
  const types = fields.texts('layer_types');
  if (types === null) {
    const indices = fields.has('full_attn_idxs') ? fields.ids('full_attn_idxs') : null;
    return Array.from({ length: layers }, (_, layer) => indices?.includes(layer) ?? true);
  }
  if (types.length !== layers)
    throw fields.odd('layer_types', types, `one entry for each of the ${layers} layers`);
  return types.map((type) => {
    if (type === 'full_attention') return true;
    if (type === 'conv') return false;
    throw fields.unsupported(
      'layer_types',
      `a layer of type ${JSON.stringify(type)}`,
      'Use a model whose layers are conv or full_attention.',
    );
  });
}

const MIXTURE: MixtureTraits = {
  names: { block: 'feed_forward', matrices: ['w1', 'w3', 'w2'] },
  routerBias: { tensor: 'feed_forward.expert_bias', shape: (experts) => [experts] },
};

function layout(config: Lfm2Config): WeightLayout {
  const { hiddenSize, intermediateSize, attends, conv, mixture } = config;
  return decoderLayout(config, {
    ropes: [{ key: ROPE, parameters: config.rope, dims: config.rotaryDims }],
    lastNorm: 'embedding_norm',
    layer: (at) => {
      at.norm('input-norm', 'operator_norm', hiddenSize);
      at.norm('mlp-norm', 'ffn_norm', hiddenSize);
      const names = { output: 'out_proj', qNorm: 'q_layernorm', kNorm: 'k_layernorm' };
      if (attends[at.index]) attentionWeights(at, { ...config, window: null, names });
      else shortConvWeights(at, { hiddenSize, ...conv });
      if (mixture !== null && at.index >= mixture.from) {
        mixtureWeights(at, hiddenSize, mixture, MIXTURE);
        return;
      }
      const parts = (rows: number, ...tensors: string[]): LayerPart[] =>
        tensors.map((name) => ({ tensor: `feed_forward.${name}`, rows }));
      at.matrix('mlp', 'gate-up', hiddenSize, parts(intermediateSize, 'w1', 'w3'), {
        others: parts(intermediateSize, 'gate_proj', 'up_proj'),
      });
      at.matrix('mlp', 'down', intermediateSize, parts(hiddenSize, 'w2'), {
        others: parts(hiddenSize, 'down_proj'),
      });
    },
  });
}

function record(ops: Ops, config: Lfm2Config, weights: Weights, options: RecordOptions): Tensor {
  const { heads, kvHeads, headDim, qkNorm, attends, conv, mixture } = config;
  return recordStack(ops, config, weights, options, {
    layer: (x, at) => {
      const normed = at.norm(x, 'input-norm');
      const attention = { heads, kvHeads, headDim, qkNorm, window: null, rope: ROPE };
      const sum = attends[at.index]
        ? at.linear(at.wanted(attend(at, normed, attention)), 'output', at.wanted(x))
        : at.linear(at.wanted(shortConvolved(at, normed, conv)), 'conv-out', at.wanted(x));
      const again = at.norm(sum, 'mlp-norm');
      if (mixture !== null && at.index >= mixture.from)
        return recordExperts(at, again, sum, { ...mixture, activation: 'silu' }, MIXTURE);
      return at.linear(gated(at, again, 'silu'), 'down', sum);
    },
  });
}

export const lfm2: Family<Lfm2Config> = {
  name: 'lfm2',
  architectures: ['Lfm2ForCausalLM'],
  modelTypes: ['lfm2'],
  readConfig: (fields, architecture) => ({
    ...readConfig(fields.replacing('intermediate_size', mlpWidth(fields)), architecture),
    mixture: null,
  }),
  layout,
  record,
};

export const lfm2Moe: Family<Lfm2Config> = {
  name: 'lfm2_moe',
  architectures: ['Lfm2MoeForCausalLM'],
  modelTypes: ['lfm2_moe'],
  readConfig: (fields, architecture) => ({
    ...readConfig(fields.withDefaults({ intermediate_size: 7168 }), architecture),
    mixture: readMixture(fields),
  }),
  layout,
  record,
};
