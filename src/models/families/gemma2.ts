/**
 * Gemma 2. Beside a Llama:
 *
 * - four norms a layer, before and after attention and the MLP, all of which multiply by 1 + w;
 * - every other layer slides, the first one does;
 * - the embedding is scaled by √hidden, the scores by `query_pre_attn_scalar^−½`;
 * - scores and logits are bent below a cap: `cap · tanh(x / cap)`.
 *
 * Source: the model code of transformers (models/gemma2).
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
import { attentionBias } from '../stated-biases.js';

export interface Gemma2Config extends DecoderConfig {
  /** Multiplies the scores. */
  readonly attentionScale: number;
  /** Of the scores; null: they stay. */
  readonly attentionCap: number | null;
  /** Of the logits; null: they stay. */
  readonly logitCap: number | null;
}

/** What published configs leave out. A cap counts where the field is absent, and not where it is `null`. */
const DEFAULTS = {
  tie_word_embeddings: true,
  sliding_window: 4096,
  hidden_activation: 'gelu_pytorch_tanh',
};
const ATTENTION_CAP = 50;
const LOGIT_CAP = 30;

const ROPE = 'rope';

const TRAITS: DecoderTraits = {
  bias: attentionBias,
  qkNorm: false,
  window: (fields) => fields.count('sliding_window'),
  slides: (_, layer) => layer % 2 === 0,
  defaults: { maxPositions: 8192, ropeTheta: 10_000, headDim: 256, kvHeads: 4 },
};

function readConfig(stated: ConfigFields, architecture: string): Gemma2Config {
  // `hidden_act` may be there too, and does not count.
  const fields = stated.withDefaults(DEFAULTS).replacing('hidden_act', null);
  if (fields.flag('use_bidirectional_attention', false))
    throw fields.unsupported(
      'use_bidirectional_attention',
      'attention that looks ahead',
      'Use a Gemma 2 that writes text; this one makes embeddings.',
    );
  return {
    ...readDecoderConfig(fields, architecture, TRAITS),
    attentionScale: fields.positive('query_pre_attn_scalar', 256) ** -0.5,
    attentionCap: readCap(stated, 'attn_logit_softcapping', ATTENTION_CAP),
    logitCap: readCap(stated, 'final_logit_softcapping', LOGIT_CAP),
  };
}

function readCap(fields: ConfigFields, name: string, absent: number): number | null {
  return fields.states(name) ? fields.positiveOrNull(name) : absent;
}

function layout(config: Gemma2Config): WeightLayout {
  const { hiddenSize, bias } = config;
  return decoderLayout(config, {
    ropes: [{ key: ROPE, parameters: config.rope, dims: config.headDim }],
    addToNorms: 1,
    layer: (at) => {
      sandwichNormWeights(at, hiddenSize);
      attentionWeights(at, { ...config, window: config.windows[at.index] ?? null });
      gatedMlpWeights(at, { ...config, bias: bias.mlp });
    },
  });
}

/** Returns logits `[outputs, vocab]`. */
function record(ops: Ops, config: Gemma2Config, weights: Weights, options: RecordOptions): Tensor {
  const { heads, kvHeads, headDim, qkNorm, attentionScale: scale, attentionCap: softcap } = config;
  return recordStack(ops, config, weights, options, {
    embeddingScale: Math.sqrt(config.hiddenSize),
    logits: { factor: 1, softcap: config.logitCap },
    layer: (x, at) => {
      const window = config.windows[at.index] ?? null;
      const attention = { heads, kvHeads, headDim, qkNorm, window, rope: ROPE, scale, softcap };
      return sandwichNorm(x, at, attention, config.activation);
    },
  });
}

export const gemma2: Family<Gemma2Config> = {
  name: 'gemma2',
  architectures: ['Gemma2ForCausalLM'],
  modelTypes: ['gemma2'],
  readConfig,
  layout,
  record,
};
