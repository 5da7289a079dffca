/**
 * Hunyuan, dense: a Llama whose q and k are normed, each head by itself, after they are rotated. Long contexts come from a base
 * that is grown once, by `alpha` of a scaling that is called dynamic.
 *
 * Source: the model code of transformers (models/hunyuan_v1_dense).
 */

import type { Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import { attentionWeights } from '../blocks/attention.js';
import { gatedMlpWeights } from '../blocks/gated-mlp.js';
import { decoderLayout, type LayerLayout } from '../blocks/layout-builder.js';
import { preNorm, preNormWeights } from '../blocks/residual.js';
import { recordStack } from '../blocks/stack.js';
import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family, RecordOptions } from '../family.js';
import type { WeightLayout, Weights } from '../layout.js';
import { attentionBias } from '../stated-biases.js';
import { ROPE } from './pre-norm.js';

export const HUNYUAN_TRAITS: DecoderTraits = {
  bias: attentionBias,
  qkNorm: true,
  rotation: { alpha: true },
  window: () => null,
  slides: () => false,
  defaults: { maxPositions: 2048, ropeTheta: 10_000 },
};

/** @throws KvantError `model-config-unsupported` where q and k are not normed */
export function hunyuanFields(fields: ConfigFields): ConfigFields {
  if (!fields.flag('use_qk_norm', true))
    throw fields.unsupported(
      'use_qk_norm',
      'a Hunyuan without norms of q and k',
      'Use one that has them: use_qk_norm is true, or left out.',
    );
  return fields.withDefaults({ rms_norm_eps: 1e-5 });
}

/** Norms of q and k, each head by itself. */
export function hunyuanNorms(at: LayerLayout, headDim: number): void {
  at.norm('q-norm', 'self_attn.query_layernorm', headDim);
  at.norm('k-norm', 'self_attn.key_layernorm', headDim);
}

function layout(config: DecoderConfig): WeightLayout {
  const { hiddenSize, headDim } = config;
  return decoderLayout(config, {
    ropes: [{ key: ROPE, parameters: config.rope, dims: config.rotaryDims }],
    layer: (at) => {
      preNormWeights(at, hiddenSize);
      attentionWeights(at, { ...config, qkNorm: false, window: null });
      hunyuanNorms(at, headDim);
      gatedMlpWeights(at, { ...config, bias: false });
    },
  });
}

/** Returns logits `[outputs, vocab]`. */
function record(ops: Ops, config: DecoderConfig, weights: Weights, options: RecordOptions): Tensor {
  const { heads, kvHeads, headDim, qkNorm, activation } = config;
  const attention = {
    heads,
    kvHeads,
    headDim,
    qkNorm,
    window: null,
    rope: ROPE,
    normOrder: 'after',
  } as const;
  return recordStack(ops, config, weights, options, {
    layer: (x, at) => preNorm(x, at, attention, activation),
  });
}

export const hunyuan: Family<DecoderConfig> = {
  name: 'hunyuan',
  architectures: ['HunYuanDenseV1ForCausalLM'],
  modelTypes: ['hunyuan_v1_dense'],
  readConfig: (fields, architecture) =>
    readDecoderConfig(hunyuanFields(fields), architecture, HUNYUAN_TRAITS),
  layout,
  record,
};
