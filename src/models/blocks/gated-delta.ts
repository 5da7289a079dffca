/**
 * Gated DeltaNet, the recurrent mixer of Qwen3.5 and Qwen3-Next: `out(norm(delta(conv(qkv(x)), gates(x))) · silu(z(x)))`. What it has
 * seen is a matrix for each head, of a fixed size (graph.ts, `gated-delta`).
 */

import type { Tensor } from '../../device/graph.js';
import type { LayerLayout } from './layout-builder.js';
import { convWeights } from './short-conv.js';
import type { Layer } from './stack.js';

export interface GatedDeltaShape {
  readonly keyHeads: number;
  readonly heads: number;
  /** Width of a head of q and k, and of one of v. */
  readonly keyDim: number;
  readonly valueDim: number;
  /** Tokens that the convolution before it sees. */
  readonly taps: number;
}

/** `linear_attn.*`. */
export function gatedDeltaWeights(at: LayerLayout, hiddenSize: number, shape: GatedDeltaShape): void {
  const { keyHeads, heads, keyDim, valueDim, taps } = shape;
  const values = heads * valueDim;
  const channels = 2 * keyHeads * keyDim + values;
  at.matrix('mixer', 'delta-qkv', hiddenSize, [{ tensor: 'linear_attn.in_proj_qkv', rows: channels }]);
  at.matrix('mixer', 'delta-z', hiddenSize, [{ tensor: 'linear_attn.in_proj_z', rows: values }]);
  at.matrix('mixer', 'delta-gates', hiddenSize, [
    { tensor: 'linear_attn.in_proj_b', rows: heads },
    { tensor: 'linear_attn.in_proj_a', rows: heads },
  ]);
  convWeights(at, 'linear_attn.conv1d', channels, taps, false);
  const decay = ['linear_attn.A_log', 'linear_attn.dt_bias'].map((name) => ({ name, shape: [heads] }));
  at.vector('delta-decay', decay, (all) => all.map((value, i) => (i < heads ? -Math.exp(value) : value)));
  // Never 1 + w, whatever the other norms are.
  at.vector('delta-norm', [{ name: 'linear_attn.norm.weight', shape: [valueDim] }]);
  at.matrix('mixer', 'delta-out', values, [{ tensor: 'linear_attn.out_proj', rows: hiddenSize }]);
  const matrix = { heads, rows: keyDim, cols: valueDim };
  at.state({ conv: { channels, taps }, matrix });
}

/** Mixes normed hidden states. Returns `[tokens, heads · valueDim]`, before the output matrix. */
export function gatedDelta(at: Layer, normed: Tensor, shape: GatedDeltaShape): Tensor {
  const { keyHeads, heads, keyDim, valueDim, taps } = shape;
  const layer = at.index;
  const weight = at.vector('conv');
  const qkv = at.ops.shortConv(at.linear(normed, 'delta-qkv'), { layer, taps, weight, activation: 'silu' });
  const sizes = { keyHeads, heads, rows: keyDim, cols: valueDim };
  const gates = at.linear(normed, 'delta-gates');
  const mixed = at.ops.gatedDelta(qkv, gates, { layer, ...sizes, decay: at.vector('delta-decay') });
  const norm = { weight: at.vector('delta-norm'), eps: at.eps };
  return at.ops.gate(mixed, at.linear(normed, 'delta-z'), 'silu', norm);
}
