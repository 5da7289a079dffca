/** Attention and MLP side by side: both read one norm. */

import type { Activation, Tensor } from '../../device/graph.js';
import { type AttentionOptions, attend } from './attention.js';
import { gated } from './gated-mlp.js';
import type { Layer } from './stack.js';

/** `x += o(attend(norm(x))) + down(mlp(norm(x)))`. */
export function parallel(x: Tensor, at: Layer, attention: AttentionOptions, activation: Activation): Tensor {
  const normed = at.norm(x, 'input-norm');
  const attended = at.wanted(attend(at, normed, attention));
  const sum = at.linear(attended, 'output', at.wanted(x));
  return at.linear(gated(at, at.wanted(normed), activation), 'down', sum);
}
