/**
 * EXAONE 4. Beside a Llama:
 *
 * - norms stand behind attention and the MLP, none before: `x += norm(o(attend(x)))`, `x += norm(down(mlp(x)))`;
 * - q and k are normed, each head by itself;
 * - where some layers slide, three of four do, and those that see everything have no rotation. Without a window all rotate.
 *
 * Source: the model code of transformers (models/exaone4).
 */

import type { Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import { attentionWeights } from '../blocks/attention.js';
import { gatedMlpWeights } from '../blocks/gated-mlp.js';
import { decoderLayout } from '../blocks/layout-builder.js';
import { postNorm, postNormWeights } from '../blocks/residual.js';
import { recordStack } from '../blocks/stack.js';
import { type DecoderConfig, type DecoderTraits, readDecoderConfig } from '../config.js';
import type { ConfigFields } from '../config-fields.js';
import type { Family, RecordOptions } from '../family.js';
import type { WeightLayout, Weights } from '../layout.js';
import { ROPE } from './pre-norm.js';

export interface Exaone4Config extends DecoderConfig {
  /** Layers that see everything are not rotated. */
  readonly hybrid: boolean;
}

/** One layer in so many sees everything. */
const PATTERN = 4;

const TRAITS: DecoderTraits = {
  bias: () => ({ qkv: false, output: false, mlp: false }),
  qkNorm: true,
  window: (fields) => (readWindow(fields) ? fields.count('sliding_window', 4096) : null),
  slides: (fields, layer) => slides(fields, layer),
  defaults: { maxPositions: 2048, ropeTheta: 10_000 },
};

/** `null` says that there is none; a field that is absent means 4096. */
function readWindow(fields: ConfigFields): boolean {
  return fields.has('sliding_window') || !fields.states('sliding_window');
}

/** The pattern is a number, one layer in so many sees everything, or a text: `LLLG`, of which G does. */
function slides(fields: ConfigFields, layer: number): boolean {
  const pattern = fields.value('sliding_window_pattern') ?? PATTERN;
  if (typeof pattern !== 'string') return (layer + 1) % fields.count('sliding_window_pattern', PATTERN) !== 0;
  if (!/^[LG]+$/.test(pattern))
    throw fields.odd('sliding_window_pattern', pattern, 'a number, or a text of L and G');
  const last = layer === fields.count('num_hidden_layers') - 1;
  return !last && pattern[layer % pattern.length] === 'L';
}

function readConfig(stated: ConfigFields, architecture: string): Exaone4Config {
  const fields = stated.has('rms_norm_eps') ? stated : stated.replacing('rms_norm_eps', 1e-5);
  const config = readDecoderConfig(fields, architecture, TRAITS);
  return { ...config, hybrid: readWindow(fields) };
}

function layout(config: Exaone4Config): WeightLayout {
  const { hiddenSize } = config;
  return decoderLayout(config, {
    ropes: [{ key: ROPE, parameters: config.rope, dims: config.rotaryDims }],
    layer: (at) => {
      postNormWeights(at, hiddenSize);
      attentionWeights(at, { ...config, window: config.windows[at.index] ?? null });
      gatedMlpWeights(at, { ...config, bias: false });
    },
  });
}

/** Returns logits `[outputs, vocab]`. */
function record(ops: Ops, config: Exaone4Config, weights: Weights, options: RecordOptions): Tensor {
  const { heads, kvHeads, headDim, qkNorm, windows, hybrid, activation } = config;
  return recordStack(ops, config, weights, options, {
    layer: (x, at) => {
      const window = windows[at.index] ?? null;
      const rope = hybrid && window === null ? null : ROPE;
      return postNorm(x, at, { heads, kvHeads, headDim, qkNorm, window, rope }, activation);
    },
  });
}

export const exaone4: Family<Exaone4Config> = {
  name: 'exaone4',
  architectures: ['Exaone4ForCausalLM'],
  modelTypes: ['exaone4'],
  readConfig,
  layout,
  record,
};
