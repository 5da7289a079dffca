/**
 * The decoder of Llama, Mistral, Qwen2 and Qwen3, which differ in what their configs mean:
 *
 *     x = embed(tokens)
 *     each layer:  x += o(attend(rope(qkv(norm(x)))))
 *                  x += down(act(gate(norm(x))) · up(norm(x)))
 *     logits = head(norm(x of the wanted tokens))
 */

import type { Tensor } from '../../device/graph.js';
import type { Ops } from '../../device/ops.js';
import type { RopeStyle } from '../../device/rope.js';
import { attentionWeights } from '../blocks/attention.js';
import { gatedMlpWeights } from '../blocks/gated-mlp.js';
import { decoderLayout } from '../blocks/layout-builder.js';
import { preNorm, preNormWeights } from '../blocks/residual.js';
import { recordStack } from '../blocks/stack.js';
import type { DecoderConfig } from '../config.js';
import type { RecordOptions } from '../family.js';
import type { RopeSpec, WeightLayout, Weights } from '../layout.js';

/** Key of the rotation that all layers share. */
export const ROPE = 'rope';

/** The sections of a rotation by axes, where the config has them. */
export function sectionsOf({ ropeSections }: DecoderConfig): Pick<RopeSpec, 'sections'> {
  return ropeSections === null ? {} : { sections: ropeSections };
}

/** @param style which elements of a head rotate with each other */
export function preNormLayout(config: DecoderConfig, style: RopeStyle = 'half'): WeightLayout {
  const { hiddenSize, bias } = config;
  return decoderLayout(config, {
    ropes: [{ key: ROPE, parameters: config.rope, dims: config.rotaryDims, style, ...sectionsOf(config) }],
    layer: (at) => {
      preNormWeights(at, hiddenSize);
      attentionWeights(at, { ...config, window: config.windows[at.index] ?? null });
      gatedMlpWeights(at, { ...config, bias: bias.mlp });
    },
  });
}

/** Returns logits `[outputs, vocab]`. */
export function recordPreNorm(
  ops: Ops,
  config: DecoderConfig,
  weights: Weights,
  options: RecordOptions,
): Tensor {
  const { heads, kvHeads, headDim, qkNorm, windows, activation } = config;
  return recordStack(ops, config, weights, options, {
    layer: (x, at) => {
      const window = windows[at.index] ?? null;
      return preNorm(x, at, { heads, kvHeads, headDim, qkNorm, window, rope: ROPE }, activation);
    },
  });
}
