/**
 * Gemma 3, the text model, and EmbeddingGemma. Beside a Llama:
 *
 * - four norms a layer, before and after attention and the MLP, all of which multiply by 1 + w;
 * - q and k normed per head;
 * - most layers slide, every sixth one sees all, and each kind has a rotation of its own;
 * - the embedding is scaled by √hidden, the scores by `query_pre_attn_scalar^−½`.
 *
 * EmbeddingGemma is an encoder: all tokens of a text see each other, in layers that slide those within half of `sliding_window` on each side.
 *
 * Source: the model code of transformers (models/gemma3).
 */

import type { Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import { attentionWeights } from '../blocks/attention.js';
import { gatedMlpWeights } from '../blocks/gated-mlp.js';
import { decoderLayout } from '../blocks/layout-builder.js';
import { sandwichNorm, sandwichNormWeights } from '../blocks/residual.js';
import { recordStack } from '../blocks/stack.js';
import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family, RecordOptions } from '../family.js';
import type { WeightLayout, Weights } from '../layout.js';
import { parseRope, readRotaryDims } from '../rope-config.js';
import type { RopeParameters } from '../rope-frequencies.js';
import { attentionBias } from '../stated-biases.js';

export interface Gemma3Config extends DecoderConfig {
  /** Rotation of the layers that slide; `rope` is that of the others. */
  readonly slidingRope: RopeParameters;
  /** Multiplies the scores. */
  readonly attentionScale: number;
  /** Logits become `cap · tanh(logit / cap)`; null: they stay. */
  readonly logitCap: number | null;
}

/** Layers from one that sees all to the next, where a config does not list them. */
const PATTERN = 6;

/** What published configs leave out. */
const DEFAULTS = {
  vocab_size: 262_208,
  hidden_size: 2304,
  intermediate_size: 9216,
  num_hidden_layers: 26,
  num_attention_heads: 8,
  num_key_value_heads: 4,
  tie_word_embeddings: true,
  hidden_activation: 'gelu_pytorch_tanh',
  sliding_window: 4096,
};

const TRAITS: DecoderTraits = {
  bias: attentionBias,
  qkNorm: true,
  window: (fields) => {
    const window = fields.count('sliding_window');
    // Of an encoder it counts both sides, and not the token itself.
    return looksAhead(fields) ? Math.floor(window / 2) + 1 : window;
  },
  slides: (fields, layer) => {
    const pattern = fields.count(['sliding_window_pattern', '_sliding_window_pattern'], PATTERN);
    return (layer + 1) % pattern !== 0;
  },
  defaults: { maxPositions: 131_072, ropeTheta: 1e6, headDim: 256 },
};

/** What EmbeddingGemma is called. */
const ENCODER = 'Gemma3TextModel';

const looksAhead = (fields: ConfigFields): boolean => fields.flag('use_bidirectional_attention', false);

/** Base of the rotation of layers that slide. */
const LOCAL_THETA = 10_000;

const FULL_ROPE = 'full';
const SLIDING_ROPE = 'sliding';

function readConfig(stated: ConfigFields, architecture: string): Gemma3Config {
  // `hidden_act` may be there too, and does not count.
  const fields = stated.withDefaults(DEFAULTS).replacing('hidden_act', null);
  refuseUnknown(fields, architecture);
  const positions = fields.count('max_position_embeddings', TRAITS.defaults.maxPositions);
  const { full, sliding } = readRopes(fields);
  const config = readDecoderConfig(full, architecture, TRAITS);
  return {
    ...config,
    // Of one that makes embeddings there is no head.
    ...(looksAhead(fields) ? { encoder: true, tied: true } : {}),
    // The stretched length is what is published.
    maxPositions: positions,
    slidingRope: parseRope(sliding, positions, LOCAL_THETA, readRotaryDims(sliding, config.headDim, {})),
    attentionScale: fields.positive('query_pre_attn_scalar', 256) ** -0.5,
    logitCap: fields.positiveOrNull('final_logit_softcapping'),
  };
}

function refuseUnknown(fields: ConfigFields, architecture: string): void {
  // Some readers cap the scores by it and transformers does not.
  const cap = fields.positiveOrNull('attn_logit_softcapping');
  if (cap !== null)
    throw fields.unsupported(
      'attn_logit_softcapping',
      `a cap of ${cap} on the scores`,
      'Use a Gemma 3 as published: it has none.',
    );
  if (looksAhead(fields) && architecture !== ENCODER)
    throw fields.unsupported(
      'use_bidirectional_attention',
      `attention that looks ahead in ${architecture}`,
      `Use a Gemma 3 that writes text, or one that makes embeddings: its architecture is ${ENCODER}.`,
    );
}

/** The fields with the rotation of full layers as that of all, and with that of those that slide. */
function readRopes(fields: ConfigFields): { full: ConfigFields; sliding: ConfigFields } {
  const parameters = fields.object('rope_parameters');
  const of = (name: string): ConfigFields =>
    fields.replacing('rope_parameters', parameters?.object(name)?.json ?? null);
  if (parameters?.has('full_attention', 'sliding_attention')) {
    // A scaling beside them is added to the rotation of full layers.
    const scaling = fields.object('rope_scaling')?.json ?? {};
    const full = { ...parameters.object('full_attention')?.json, ...scaling };
    return {
      full: fields.replacing('rope_parameters', full).replacing('rope_scaling', null),
      sliding: of('sliding_attention').replacing('rope_scaling', null),
    };
  }
  const rope_theta = fields.positive('rope_local_base_freq', LOCAL_THETA);
  return { full: fields, sliding: fields.replacing('rope_scaling', { rope_type: 'default', rope_theta }) };
}

function layout(config: Gemma3Config): WeightLayout {
  const { hiddenSize, headDim, bias } = config;
  return decoderLayout(config, {
    ropes: [
      { key: FULL_ROPE, parameters: config.rope, dims: headDim },
      { key: SLIDING_ROPE, parameters: config.slidingRope, dims: headDim },
    ],
    addToNorms: 1,
    layer: (at) => {
      sandwichNormWeights(at, hiddenSize);
      attentionWeights(at, { ...config, window: config.windows[at.index] ?? null });
      gatedMlpWeights(at, { ...config, bias: bias.mlp });
    },
  });
}

/** Returns logits `[outputs, vocab]`. */
function record(ops: Ops, config: Gemma3Config, weights: Weights, options: RecordOptions): Tensor {
  const { heads, kvHeads, headDim, qkNorm, attentionScale: scale, encoder } = config;
  return recordStack(ops, config, weights, encoder ? { ...options, ahead: 'both' } : options, {
    embeddingScale: Math.sqrt(config.hiddenSize),
    logits: { factor: 1, softcap: config.logitCap },
    layer: (x, at) => {
      const window = config.windows[at.index] ?? null;
      const rope = window === null ? FULL_ROPE : SLIDING_ROPE;
      const attention = { heads, kvHeads, headDim, qkNorm, window, rope, scale };
      return sandwichNorm(x, at, attention, config.activation);
    },
  });
}

export const gemma3: Family<Gemma3Config> = {
  name: 'gemma3',
  architectures: ['Gemma3ForCausalLM', ENCODER],
  modelTypes: ['gemma3_text'],
  readConfig,
  layout,
  record,
};
