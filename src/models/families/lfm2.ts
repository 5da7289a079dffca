/**
 * LFM2 and LFM2.5, dense. Most layers are gated short convolutions, some attend:
 *
 *     each layer:  x += out(mix(norm(x))),  mix a convolution or attention with q and k normed by head
 *                  x += w2(silu(w1(norm(x))) · w3(norm(x)))
 *
 * Source: the model code of transformers (models/lfm2).
 */

import type { Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import { attend, attentionWeights } from '../blocks/attention.js';
import { gated } from '../blocks/gated-mlp.js';
import { decoderLayout } from '../blocks/layout-builder.js';
import { shortConvolved, shortConvWeights } from '../blocks/short-conv.js';
import { recordStack } from '../blocks/stack.js';
import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family, RecordOptions } from '../family.js';
import type { WeightLayout, Weights } from '../layout.js';
import { ROPE } from './pre-norm.js';

export interface Lfm2Config extends DecoderConfig {
  /** `[layers]`: it attends, where it does not convolve. */
  readonly attends: readonly boolean[];
  readonly conv: { readonly taps: number; readonly bias: boolean };
}

const TRAITS: DecoderTraits = {
  bias: () => ({ qkv: false, output: false, mlp: false }),
  qkNorm: true,
  window: () => null,
  slides: () => false,
  normEps: { name: 'norm_eps', fallback: 1e-5 },
  defaults: { maxPositions: 128_000, ropeTheta: 1_000_000 },
};

function readConfig(fields: ConfigFields, architecture: string): Lfm2Config {
  const attends = readAttends(fields);
  // What is read of a decoder whose layers all attend.
  const decoder = readDecoderConfig(
    fields.replacing('layer_types', null).replacing('intermediate_size', mlpWidth(fields)),
    architecture,
    TRAITS,
  );
  return {
    ...decoder,
    tied: fields.flag('tie_embedding', fields.flag('tie_word_embeddings', true)),
    attends,
    conv: { taps: fields.count('conv_L_cache', 3, 2), bias: fields.flag('conv_bias', false) },
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

function layout(config: Lfm2Config): WeightLayout {
  const { hiddenSize, intermediateSize, attends, conv } = config;
  return decoderLayout(config, {
    ropes: [{ key: ROPE, parameters: config.rope, dims: config.rotaryDims }],
    lastNorm: 'embedding_norm',
    layer: (at) => {
      at.norm('input-norm', 'operator_norm', hiddenSize);
      at.norm('mlp-norm', 'ffn_norm', hiddenSize);
      const names = { output: 'out_proj', qNorm: 'q_layernorm', kNorm: 'k_layernorm' };
      if (attends[at.index]) attentionWeights(at, { ...config, window: null, names });
      else shortConvWeights(at, { hiddenSize, ...conv });
      at.matrix('mlp', 'gate-up', hiddenSize, [
        { tensor: 'feed_forward.w1', rows: intermediateSize },
        { tensor: 'feed_forward.w3', rows: intermediateSize },
      ]);
      at.matrix('mlp', 'down', intermediateSize, [{ tensor: 'feed_forward.w2', rows: hiddenSize }]);
    },
  });
}

function record(ops: Ops, config: Lfm2Config, weights: Weights, options: RecordOptions): Tensor {
  const { heads, kvHeads, headDim, qkNorm, attends, conv } = config;
  return recordStack(ops, config, weights, options, {
    layer: (x, at) => {
      const normed = at.norm(x, 'input-norm');
      const attention = { heads, kvHeads, headDim, qkNorm, window: null, rope: ROPE };
      const mixed = attends[at.index]
        ? at.linear(at.wanted(attend(at, normed, attention)), 'output', at.wanted(x))
        : at.linear(at.wanted(shortConvolved(at, normed, conv)), 'conv-out', at.wanted(x));
      return at.linear(gated(at, at.norm(mixed, 'mlp-norm'), 'silu'), 'down', mixed);
    },
  });
}

export const lfm2: Family<Lfm2Config> = {
  name: 'lfm2',
  architectures: ['Lfm2ForCausalLM'],
  modelTypes: ['lfm2'],
  readConfig,
  layout,
  record,
};
