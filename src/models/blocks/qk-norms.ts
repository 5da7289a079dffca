/** Norms of q and k other than those that a rotation takes along, which norm each head by itself with weights all heads share. */

import type { AttentionShape, NormKind, NormPart, Tensor } from '../../device/graph.js';
import type { LayerLayout } from './layout-builder.js';
import type { Layer } from './stack.js';

/** `row`: all heads together. `head`: each by itself, with weights of its own. */
export type QkNormScope = 'row' | 'head';

/** `self_attn.{q,k}_norm`. */
export function qkNormWeights(
  at: LayerLayout,
  { heads, kvHeads, headDim }: AttentionShape,
  scope: QkNormScope,
): void {
  const shape = (count: number): readonly number[] =>
    scope === 'row' ? [count * headDim] : [count, headDim];
  at.norm('q-norm', 'self_attn.q_norm', shape(heads));
  at.norm('k-norm', 'self_attn.k_norm', shape(kvHeads));
}

/** `qkv` with q and k normed. */
export function normedQk(
  at: Layer,
  qkv: Tensor,
  { heads, kvHeads, headDim }: AttentionShape,
  scope: QkNormScope,
  kind: NormKind,
): Tensor {
  const part = (first: number, count: number, name: string): NormPart => ({
    from: first * headDim,
    ...(scope === 'row' ? { cols: count * headDim, groups: 1 } : { cols: headDim, groups: count }),
    weight: at.vector(name),
    bias: null,
  });
  return at.ops.norm(qkv, kind, [part(0, heads, 'q-norm'), part(heads, kvHeads, 'k-norm')], at.eps);
}
