/**
 * Qwen3.5, 3.6 and 3.8, dense: three layers of Gated DeltaNet to one of attention. Beside a Qwen3:
 *
 * - norms multiply by 1 + w, but for the one within DeltaNet;
 * - a quarter of each head rotates;
 * - what attention leaves is gated: `q_proj` has, head by head, rows of q and rows of the gate.
 *
 * Source: the model code of transformers (models/qwen3_5).
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
import type { Family, RecordOptions } from '../family.js';
import type { ShapeOf, WeightLayout, Weights } from '../layout.js';
import { ROPE } from './pre-norm.js';

export interface Qwen35Config extends DecoderConfig {
  /** `[layers]`: it attends, where it is no DeltaNet. */
  readonly attends: readonly boolean[];
  readonly delta: GatedDeltaShape;
}

const TRAITS: DecoderTraits = {
  bias: () => ({ qkv: false, output: false, mlp: false }),
  qkNorm: true,
  rotation: { partial: 0.25 },
  window: () => null,
  slides: () => false,
  defaults: { maxPositions: 32_768, ropeTheta: 10_000, headDim: 256 },
};

function readConfig(fields: ConfigFields, architecture: string): Qwen35Config {
  const attends = readAttends(fields);
  for (const [name, wanted] of [
    ['attention_bias', false],
    ['attn_output_gate', true],
  ] as const) {
    if (fields.flag(name, wanted) === wanted) continue;
    throw fields.unsupported(
      name,
      `"${name}": ${!wanted} in a Qwen3.5`,
      'Use a checkpoint as they are published.',
    );
  }
  const decoder = readDecoderConfig(fields.replacing('layer_types', null), architecture, TRAITS);
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
  return { ...decoder, attends, delta };
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

function layout(config: Qwen35Config): WeightLayout {
  const { hiddenSize, attends, delta } = config;
  // Files of MLX have the 1 added already. They have kernels of convolutions as [channels, taps, 1], others [channels, 1, taps].
  const recurrent = attends.indexOf(false);
  const conv = `model.layers.${recurrent}.linear_attn.conv1d.weight`;
  const addToNorms = (shapeOf: ShapeOf): number => (recurrent >= 0 && shapeOf(conv)?.at(-1) === 1 ? 0 : 1);
  return decoderLayout(config, {
    ropes: [{ key: ROPE, parameters: config.rope, dims: config.rotaryDims }],
    addToNorms,
    layer: (at) => {
      preNormWeights(at, hiddenSize);
      if (attends[at.index]) attentionWeights(at, { ...config, window: null, gated: true });
      else gatedDeltaWeights(at, hiddenSize, delta);
      gatedMlpWeights(at, { ...config, bias: false });
    },
  });
}

function record(ops: Ops, config: Qwen35Config, weights: Weights, options: RecordOptions): Tensor {
  const { heads, kvHeads, headDim, qkNorm, attends, delta, activation } = config;
  const attention = { heads, kvHeads, headDim, qkNorm, window: null, rope: ROPE };
  return recordStack(ops, config, weights, options, {
    layer: (x, at) => {
      const normed = at.norm(x, 'input-norm');
      const mixed = attends[at.index]
        ? at.linear(at.wanted(outputGate(at, attend(at, normed, attention), normed)), 'output', at.wanted(x))
        : at.linear(at.wanted(gatedDelta(at, normed, delta)), 'delta-out', at.wanted(x));
      return at.linear(gated(at, at.norm(mixed, 'mlp-norm'), activation), 'down', mixed);
    },
  });
}

export const qwen35: Family<Qwen35Config> = {
  name: 'qwen3.5',
  architectures: ['Qwen3_5ForCausalLM'],
  modelTypes: ['qwen3_5_text'],
  readConfig,
  layout,
  record,
};
