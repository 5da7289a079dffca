/** How attention and the MLP of a layer are normed and added to the hidden states. */

import type { Activation, Tensor, UngatedActivation } from '../../device/graph.js';
import { type AttentionOptions, attend } from './attention.js';
import { gated } from './gated-mlp.js';
import type { LayerLayout } from './layout-builder.js';
import { activated } from './plain-mlp.js';
import type { Layer } from './stack.js';

/** The norms of {@link preNorm}, as Llama's checkpoints call them. */
export function preNormWeights(at: LayerLayout, hiddenSize: number): void {
  at.norm('input-norm', 'input_layernorm', hiddenSize);
  at.norm('mlp-norm', 'post_attention_layernorm', hiddenSize);
}

/** `x += o(attend(norm(x)))`, then `x += down(mlp(norm(x)))`. */
export function preNorm(x: Tensor, at: Layer, attention: AttentionOptions, activation: Activation): Tensor {
  return preNormOf(x, at, attention, (normed, sum) => at.linear(gated(at, normed, activation), 'down', sum));
}

/** The same with an MLP without a gate. */
export function plainPreNorm(
  x: Tensor,
  at: Layer,
  attention: AttentionOptions,
  activation: UngatedActivation,
): Tensor {
  return preNormOf(x, at, attention, (normed, sum) =>
    at.linear(activated(at, normed, activation), 'down', sum),
  );
}

/** The same with anything in the place of the MLP: what it makes of the normed states is added to `sum`. */
export function preNormOf(
  x: Tensor,
  at: Layer,
  attention: AttentionOptions,
  mlp: (normed: Tensor, sum: Tensor) => Tensor,
): Tensor {
  const attended = at.wanted(attend(at, at.norm(x, 'input-norm'), attention));
  const sum = at.linear(attended, 'output', at.wanted(x));
  return mlp(at.norm(sum, 'mlp-norm'), sum);
}

/** The norms of {@link postNorm}, as OLMo's checkpoints call them. */
export function postNormWeights(at: LayerLayout, hiddenSize: number): void {
  at.norm('attention-norm', 'post_attention_layernorm', hiddenSize);
  at.norm('output-norm', 'post_feedforward_layernorm', hiddenSize);
}

/** Norms behind, none before: `x += norm(o(attend(x)))`, then `x += norm(down(mlp(x)))`. */
export function postNorm(x: Tensor, at: Layer, attention: AttentionOptions, activation: Activation): Tensor {
  const attended = at.wanted(attend(at, x, attention));
  const sum = at.ops.add(at.wanted(x), at.norm(at.linear(attended, 'output'), 'attention-norm'));
  const down = at.linear(gated(at, sum, activation), 'down');
  return at.ops.add(sum, at.norm(down, 'output-norm'));
}

/** The norms of {@link sandwichNorm}, as Gemma's checkpoints call them. */
export function sandwichNormWeights(at: LayerLayout, hiddenSize: number): void {
  at.norm('input-norm', 'input_layernorm', hiddenSize);
  at.norm('attention-norm', 'post_attention_layernorm', hiddenSize);
  at.norm('mlp-norm', 'pre_feedforward_layernorm', hiddenSize);
  at.norm('output-norm', 'post_feedforward_layernorm', hiddenSize);
}

/** Norms on both sides: `x += norm(o(attend(norm(x))))`, then `x += norm(down(mlp(norm(x))))`. */
export function sandwichNorm(
  x: Tensor,
  at: Layer,
  attention: AttentionOptions,
  activation: Activation,
): Tensor {
  const attended = at.wanted(attend(at, at.norm(x, 'input-norm'), attention));
  const rest = at.wanted(x);
  const sum = at.ops.add(rest, at.norm(at.linear(attended, 'output'), 'attention-norm'));
  const down = at.linear(gated(at, at.norm(sum, 'mlp-norm'), activation), 'down');
  return at.ops.add(sum, at.norm(down, 'output-norm'));
}
