/**
 * SmolLM3: a Llama in which every fourth layer has no rotation (NoPE).
 *
 * Source: the model code of transformers (models/smollm3).
 */

import type { Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import { preNorm } from '../blocks/residual.js';
import { recordStack } from '../blocks/stack.js';
import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family, RecordOptions } from '../family.js';
import type { Weights } from '../layout.js';
import { attentionAndMlpBias } from '../stated-biases.js';
import { preNormLayout, ROPE } from './pre-norm.js';

export interface SmolLm3Config extends DecoderConfig {
  /** `[layers]` whether the layer rotates q and k. */
  readonly rotates: readonly boolean[];
}

/** One layer in so many has no rotation, where config.json does not list them. */
const INTERVAL = 4;

const TRAITS: DecoderTraits = {
  bias: attentionAndMlpBias,
  qkNorm: false,
  window: (fields) => {
    // A list of layers decides by itself.
    const slides = fields.flag('use_sliding_window', false) || fields.has('layer_types');
    return slides && fields.has('sliding_window') ? fields.count('sliding_window') : null;
  },
  slides: (fields, layer) => !readRotates(fields, layer + 1)[layer],
  defaults: { maxPositions: 32_768, ropeTheta: 2e6, kvHeads: 4 },
};

/** `no_rope_layers` says 1 for a layer that does rotate. */
function readRotates(fields: ConfigFields, layers: number): boolean[] {
  const listed = fields.value('no_rope_layers');
  const interval = fields.count('no_rope_layer_interval', INTERVAL);
  if (listed === null) {
    return Array.from({ length: layers }, (_, layer) => (layer + 1) % interval !== 0);
  }
  const isList = Array.isArray(listed) && listed.every((one) => one === 0 || one === 1);
  if (!isList || listed.length < layers)
    throw fields.odd('no_rope_layers', listed, `a list of 0 or 1 for each of the ${layers} layers`);
  return listed.map((one) => one === 1);
}

function readConfig(stated: ConfigFields, architecture: string): SmolLm3Config {
  const fields = stated.states('tie_word_embeddings')
    ? stated
    : stated.replacing('tie_word_embeddings', true);
  const config = readDecoderConfig(fields, architecture, TRAITS);
  return { ...config, rotates: readRotates(fields, config.layers) };
}

/** Returns logits `[outputs, vocab]`. */
function record(ops: Ops, config: SmolLm3Config, weights: Weights, options: RecordOptions): Tensor {
  const { heads, kvHeads, headDim, qkNorm, windows, rotates, activation } = config;
  return recordStack(ops, config, weights, options, {
    layer: (x, at) => {
      const window = windows[at.index] ?? null;
      const rope = rotates[at.index] ? ROPE : null;
      return preNorm(x, at, { heads, kvHeads, headDim, qkNorm, window, rope }, activation);
    },
  });
}

export const smolLm3: Family<SmolLm3Config> = {
  name: 'smollm3',
  architectures: ['SmolLM3ForCausalLM'],
  modelTypes: ['smollm3'],
  readConfig,
  layout: preNormLayout,
  record,
};
