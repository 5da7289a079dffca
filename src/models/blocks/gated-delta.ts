/**
 * Gated DeltaNet, the recurrent mixer of Qwen3.5 and Qwen3-Next: `out(norm(delta(conv(qkv(x)), gates(x))) · silu(z(x)))`. What it has
 * seen is a matrix for each head, of a fixed size (graph.ts, `gated-delta`).
 */

import type { Tensor } from '../../device/graph.js';
import type { LayerLayout, LayerPart } from './layout-builder.js';
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

/** `linear_attn.*`. `byKeyHead`: the matrices before it have, for each key head, the rows of all that goes with it (Qwen3-Next). */
export function gatedDeltaWeights(
  at: LayerLayout,
  hiddenSize: number,
  shape: GatedDeltaShape,
  byKeyHead = false,
): void {
  const { keyHeads, heads, keyDim, valueDim, taps } = shape;
  const values = heads * valueDim;
  const channels = 2 * keyHeads * keyDim + values;
  const { qkv, z, gates } = byKeyHead ? groupedParts(shape) : plainParts(shape);
  // GGUF files have q, k, v and z apart all the same.
  const plain = plainParts(shape);
  const more = byKeyHead ? { others: [...plain.qkv, ...plain.z, ...gates] } : {};
  // One product: a step of few rows feels each launch.
  at.matrix('mixer', 'delta-in', hiddenSize, [...qkv, ...z, ...gates], more);
  convWeights(at, 'linear_attn.conv1d', channels, taps, false);
  const decay = ['linear_attn.A_log', 'linear_attn.dt_bias'].map((name) => ({ name, shape: [heads] }));
  at.vector('delta-decay', decay, (all) => all.map((value, i) => (i < heads ? -Math.exp(value) : value)));
  // Never 1 + w, whatever the other norms are.
  at.vector('delta-norm', [{ name: 'linear_attn.norm.weight', shape: [valueDim] }]);
  at.matrix('mixer', 'delta-out', values, [{ tensor: 'linear_attn.out_proj', rows: hiddenSize }]);
  const matrix = { heads, rows: keyDim, cols: valueDim };
  at.state({ conv: { channels, taps }, matrix });
}

interface DeltaParts {
  readonly qkv: readonly LayerPart[];
  readonly z: readonly LayerPart[];
  readonly gates: readonly LayerPart[];
}

function plainParts({ keyHeads, heads, keyDim, valueDim }: GatedDeltaShape): DeltaParts {
  const values = heads * valueDim;
  return {
    qkv: [{ tensor: 'linear_attn.in_proj_qkv', rows: 2 * keyHeads * keyDim + values }],
    z: [{ tensor: 'linear_attn.in_proj_z', rows: values }],
    gates: ['b', 'a'].map((name) => ({ tensor: `linear_attn.in_proj_${name}`, rows: heads })),
  };
}

/** `in_proj_qkvz`: q, k, v and z of the first key head, then of the second; `in_proj_ba` likewise. */
function groupedParts({ keyHeads, heads, keyDim, valueDim }: GatedDeltaShape): DeltaParts {
  const each = heads / keyHeads;
  const parts = (tensor: string, widths: readonly number[]): LayerPart[] => {
    const of = widths.reduce((sum, width) => sum + width, 0);
    let from = 0;
    return widths.map((take) => {
      const part = { tensor, rows: keyHeads * take, pick: { take, of, from } };
      from += take;
      return part;
    });
  };
  const widths = [keyDim, keyDim, each * valueDim, each * valueDim];
  const all = parts('linear_attn.in_proj_qkvz', widths);
  return {
    qkv: all.slice(0, 3),
    z: all.slice(3),
    gates: parts('linear_attn.in_proj_ba', [each, each]),
  };
}

/** Mixes normed hidden states. Returns `[tokens, heads · valueDim]`, before the output matrix. */
export function gatedDelta(at: Layer, normed: Tensor, shape: GatedDeltaShape): Tensor {
  const { keyHeads, heads, keyDim, valueDim, taps } = shape;
  const layer = at.cache('state');
  const weight = at.vector('conv');
  const values = heads * valueDim;
  const channels = 2 * keyHeads * keyDim + values;
  const all = at.linear(normed, 'delta-in');
  const qkv = at.ops.shortConv(all, { layer, from: 0, taps, weight, activation: 'silu' });
  const sizes = { keyHeads, heads, rows: keyDim, cols: valueDim, gatesFrom: channels + values };
  const mixed = at.ops.gatedDelta(qkv, all, { layer, ...sizes, decay: at.vector('delta-decay') });
  const norm = { weight: at.vector('delta-norm'), eps: at.eps };
  return at.ops.gate(mixed, all, 'silu', norm, 0, channels);
}
