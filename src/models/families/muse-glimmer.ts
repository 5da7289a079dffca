/**
 * Muse Glimmer, the text model. Beside a Llama:
 *
 * - four norms a layer that multiply by 1 + w, those behind attention and the MLP with an ε of their own; the last one multiplies by w;
 * - rows of the embedding, and heads of q and k, are normed without weights; q is then multiplied by `qk_scale_factor`;
 * - what attends is multiplied by σ(gate(x)), element by element;
 * - most layers slide; every fourth, counted from the last, sees all and has no rotation;
 * - logits are multiplied, and bent below a cap.
 *
 * Source: the model code of transformers (models/muse_glimmer).
 */

import type { Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import { attend, attentionWeights, outputGate } from '../blocks/attention.js';
import { gated, gatedMlpWeights } from '../blocks/gated-mlp.js';
import { decoderLayout, type LayerLayout } from '../blocks/layout-builder.js';
import { type Layer, recordStack } from '../blocks/stack.js';
import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family, RecordOptions } from '../family.js';
import type { WeightLayout, Weights } from '../layout.js';
import { attentionBias } from '../stated-biases.js';
import { ROPE } from './pre-norm.js';

export interface MuseGlimmerConfig extends DecoderConfig {
  /** ε of the norms behind attention and the MLP. */
  readonly postNormEps: number;
  /** Multiplies q behind its norm. */
  readonly queryScale: number;
  readonly logits: { readonly factor: number; readonly softcap: number };
  /** `[layers]` whether q and k rotate. */
  readonly rotates: readonly boolean[];
}

/** One layer in so many sees all, the last one first. */
const PATTERN = 4;

/** What published configs may leave out (MuseGlimmerTextConfig). */
const DEFAULTS = {
  vocab_size: 202_048,
  hidden_size: 6656,
  intermediate_size: 19_968,
  num_hidden_layers: 52,
  num_attention_heads: 32,
  num_key_value_heads: 2,
  hidden_activation: 'silu',
  sliding_window: 2048,
};

const TRAITS: DecoderTraits = {
  bias: attentionBias,
  qkNorm: false,
  window: (fields) => fields.count('sliding_window'),
  slides: (fields, layer) => !isLastOfFour(fields.count('num_hidden_layers'), layer),
  normEps: { name: 'rms_norm_eps', fallback: 1e-5 },
  defaults: { maxPositions: 131_072, ropeTheta: 10_000, headDim: 128 },
};

const isLastOfFour = (layers: number, layer: number): boolean => (layers - 1 - layer) % PATTERN === 0;

function readConfig(stated: ConfigFields, architecture: string): MuseGlimmerConfig {
  // `hidden_act` may be there too, and does not count.
  const fields = stated.withDefaults(DEFAULTS).replacing('hidden_act', null);
  const config = readDecoderConfig(fields, architecture, TRAITS);
  return {
    ...config,
    postNormEps: fields.positive('post_norm_eps', 1e-8),
    queryScale: fields.positive('qk_scale_factor', 3.87),
    logits: {
      factor: fields.positive('output_multiplier', 0.196_116_135_138_184_04),
      softcap: fields.positive('final_logit_softcapping', 20),
    },
    rotates: readRotates(fields, config.layers),
  };
}

/** `layer_rope_theta` says 0 for a layer that does not rotate; of the others transformers reads the one base of all. */
function readRotates(fields: ConfigFields, layers: number): boolean[] {
  const bases = fields.numbers('layer_rope_theta');
  if (bases === null) return Array.from({ length: layers }, (_, layer) => !isLastOfFour(layers, layer));
  if (bases.length !== layers)
    throw fields.odd('layer_rope_theta', bases, `a number for each of the ${layers} layers`);
  return bases.map((base) => base !== 0);
}

/** A norm that multiplies by 1 + w. */
function centredNorm(at: LayerLayout, name: string, tensor: string, size: number): void {
  const part = { name: `${tensor}.weight`, shape: [size] };
  at.vector(name, [part], (values) => values.map((value) => value + 1));
}

function layout(config: MuseGlimmerConfig): WeightLayout {
  const { hiddenSize, heads, headDim, bias } = config;
  return decoderLayout(config, {
    ropes: [{ key: ROPE, parameters: config.rope, dims: config.rotaryDims }],
    layer: (at) => {
      centredNorm(at, 'input-norm', 'input_layernorm', hiddenSize);
      centredNorm(at, 'attention-norm', 'post_attention_layernorm', hiddenSize);
      centredNorm(at, 'mlp-norm', 'pre_feedforward_layernorm', hiddenSize);
      centredNorm(at, 'output-norm', 'post_feedforward_layernorm', hiddenSize);
      attentionWeights(at, { ...config, window: config.windows[at.index] ?? null });
      at.matrix('attention', 'gate', hiddenSize, [{ tensor: 'self_attn.gate_proj', rows: heads * headDim }]);
      gatedMlpWeights(at, { ...config, bias: bias.mlp });
    },
  });
}

/** Without weights: `count` parts of `cols` elements. */
const plainNorm = (ops: Ops, x: Tensor, cols: number, groups: number, eps: number): Tensor =>
  ops.norm(x, 'rms', [{ from: 0, cols, groups, weight: null, bias: null }], eps);

function recordLayer(x: Tensor, at: Layer, config: MuseGlimmerConfig): Tensor {
  const { heads, kvHeads, headDim, windows, rotates, queryScale, activation } = config;
  const { ops } = at;
  const normed = at.norm(x, 'input-norm');
  const attended = attend(at, normed, {
    heads,
    kvHeads,
    headDim,
    qkNorm: false,
    window: windows[at.index] ?? null,
    rope: rotates[at.index] ? ROPE : null,
    scale: queryScale / Math.sqrt(headDim),
    prepare: (qkv) => plainNorm(ops, qkv, headDim, heads + kvHeads, at.eps),
  });
  const open = at.wanted(outputGate(at, attended, normed));
  const behind = (y: Tensor, name: string): Tensor => ops.rmsNorm(y, at.vector(name), config.postNormEps);
  const sum = ops.add(at.wanted(x), behind(at.linear(open, 'output'), 'attention-norm'));
  const down = at.linear(gated(at, at.norm(sum, 'mlp-norm'), activation), 'down');
  return ops.add(sum, behind(down, 'output-norm'));
}

/** Returns logits `[outputs, vocab]`. */
function record(ops: Ops, config: MuseGlimmerConfig, weights: Weights, options: RecordOptions): Tensor {
  return recordStack(ops, config, weights, options, {
    embedded: (x) => plainNorm(ops, x, config.hiddenSize, 1, config.normEps),
    logits: config.logits,
    layer: (x, at) => recordLayer(x, at, config),
  });
}

export const museGlimmer: Family<MuseGlimmerConfig> = {
  name: 'muse_glimmer',
  architectures: [],
  modelTypes: ['muse_glimmer_text'],
  readConfig,
  layout,
  record,
};
