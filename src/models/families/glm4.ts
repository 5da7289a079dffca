/**
 * GLM-4 and GLM-4-0414: a Llama in which
 *
 * - half of each head rotates, neighbours with each other;
 * - gate and up are one tensor;
 * - q, k and v may have biases;
 * - those of 0414 (`glm4`) have norms behind attention and the MLP as well.
 *
 * The decoders of GLM-4.1V and GLM-OCR are of the second kind, and turn by three axes of positions.
 *
 * Source: the model code of transformers (models/glm, models/glm4, models/glm4v, models/glm_ocr).
 */

import type { Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import { attentionWeights } from '../blocks/attention.js';
import { decoderLayout, type LayerLayout } from '../blocks/layout-builder.js';
import { preNormWeights, sandwichNorm } from '../blocks/residual.js';
import { recordStack } from '../blocks/stack.js';
import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family, RecordOptions } from '../family.js';
import type { WeightLayout, Weights } from '../layout.js';
import { ROPE, recordPreNorm, sectionsOf } from './pre-norm.js';

const TRAITS: DecoderTraits = {
  bias: (fields) => ({ qkv: fields.flag('attention_bias', true), output: false, mlp: false }),
  qkNorm: false,
  rotation: { partial: 0.5 },
  window: () => null,
  slides: () => false,
  defaults: { maxPositions: 131_072, ropeTheta: 10_000, headDim: 128 },
};

function readConfig(stated: ConfigFields, architecture: string): DecoderConfig {
  const defaults = { rms_norm_eps: 1.5625e-7, num_key_value_heads: 2 };
  return readDecoderConfig(stated.withDefaults(defaults), architecture, TRAITS);
}

function layoutWith(
  config: DecoderConfig,
  norms: (at: LayerLayout, hiddenSize: number) => void,
): WeightLayout {
  const { hiddenSize, intermediateSize } = config;
  return decoderLayout(config, {
    ropes: [
      {
        key: ROPE,
        parameters: config.rope,
        dims: config.rotaryDims,
        style: 'interleaved',
        ...sectionsOf(config),
      },
    ],
    layer: (at) => {
      norms(at, hiddenSize);
      attentionWeights(at, { ...config, window: null });
      at.matrix('mlp', 'gate-up', hiddenSize, [{ tensor: 'mlp.gate_up_proj', rows: 2 * intermediateSize }]);
      at.matrix('mlp', 'down', intermediateSize, [{ tensor: 'mlp.down_proj', rows: hiddenSize }]);
    },
  });
}

/** The norm before the MLP is called as if it stood behind attention. */
function fourNorms(at: LayerLayout, hiddenSize: number): void {
  preNormWeights(at, hiddenSize);
  at.norm('attention-norm', 'post_self_attn_layernorm', hiddenSize);
  at.norm('output-norm', 'post_mlp_layernorm', hiddenSize);
}

/** Returns logits `[outputs, vocab]`. */
function record(ops: Ops, config: DecoderConfig, weights: Weights, options: RecordOptions): Tensor {
  const { heads, kvHeads, headDim, qkNorm, activation } = config;
  return recordStack(ops, config, weights, options, {
    layer: (x, at) =>
      sandwichNorm(x, at, { heads, kvHeads, headDim, qkNorm, window: null, rope: ROPE }, activation),
  });
}

export const glm4: Family<DecoderConfig> = {
  name: 'glm4',
  architectures: ['Glm4ForCausalLM'],
  modelTypes: ['glm4'],
  readConfig,
  layout: (config) => layoutWith(config, fourNorms),
  record,
};

/** A decoder within a wrapper: heads are as wide as the hidden states allow, and rotate whole where its config does not say. */
function withinWrapper(modelType: string, qkv: boolean, kvHeads: number): Family<DecoderConfig> {
  const traits: DecoderTraits = {
    ...TRAITS,
    bias: () => ({ qkv, output: false, mlp: false }),
    rotation: { partial: 1 },
    normEps: { name: 'rms_norm_eps', fallback: 1e-5 },
    defaults: { maxPositions: 131_072, ropeTheta: 10_000, kvHeads },
  };
  return {
    name: modelType,
    architectures: [],
    modelTypes: [modelType],
    readConfig: (fields, architecture) => readDecoderConfig(fields, architecture, traits),
    layout: (config) => layoutWith(config, fourNorms),
    record,
  };
}

export const glm4vText = withinWrapper('glm4v_text', true, 2);
export const glmOcrText = withinWrapper('glm_ocr_text', false, 8);

export const glm: Family<DecoderConfig> = {
  name: 'glm',
  architectures: ['GlmForCausalLM'],
  modelTypes: ['glm'],
  readConfig,
  layout: (config) => layoutWith(config, preNormWeights),
  record: recordPreNorm,
};
