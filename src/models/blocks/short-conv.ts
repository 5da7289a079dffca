/** The gated short convolution of LFM2: `out(c · conv(b · v))` with b, c and v of one matrix. It looks back on a few tokens only. */

import type { Tensor } from '../../device/graph.js';
import type { LayerLayout } from './layout-builder.js';
import type { Layer } from './stack.js';

export interface ShortConvWeights {
  readonly hiddenSize: number;
  /** Tokens that it sees, itself included. */
  readonly taps: number;
  /** All three have one, or none has. */
  readonly bias: boolean;
}

/** `conv.{in_proj,conv,out_proj}`. */
export function shortConvWeights(at: LayerLayout, { hiddenSize, taps, bias }: ShortConvWeights): void {
  at.matrix('mixer', 'conv-in', hiddenSize, [{ tensor: 'conv.in_proj', rows: 3 * hiddenSize, bias }]);
  convWeights(at, 'conv.conv', hiddenSize, taps, bias);
  at.matrix('mixer', 'conv-out', hiddenSize, [{ tensor: 'conv.out_proj', rows: hiddenSize, bias }]);
  at.state({ conv: { channels: hiddenSize, taps }, matrix: null });
}

/** A convolution by channel: published as `[channels, 1, taps]`, MLX has `[channels, taps, 1]`. `by`: multiplies what stands before it. */
export function convWeights(
  at: LayerLayout,
  tensor: string,
  channels: number,
  taps: number,
  bias: boolean,
  by?: (channel: number) => number,
): void {
  at.vector('conv', [{ name: `${tensor}.weight`, shape: [channels, 1, taps] }], (values) => {
    const weights = byTap(values, taps);
    return by === undefined ? weights : weights.map((value, i) => value * by(i % channels));
  });
  if (bias) at.vector('conv-bias', [{ name: `${tensor}.bias`, shape: [channels] }]);
}

/** `[channels, taps]` as `[taps, channels]`. */
function byTap(values: Float32Array, taps: number): Float32Array {
  const channels = values.length / taps;
  return Float32Array.from(values, (_, i) => values[(i % channels) * taps + Math.floor(i / channels)]!);
}

/** Convolves normed hidden states. Returns `[tokens, hidden]`, before the output matrix. */
export function shortConvolved(
  at: Layer,
  normed: Tensor,
  { taps, bias }: Pick<ShortConvWeights, 'taps' | 'bias'>,
): Tensor {
  return at.ops.shortConv(at.linear(normed, 'conv-in'), {
    layer: at.cache('state'),
    taps,
    weight: at.vector('conv'),
    bias: bias ? at.vector('conv-bias') : null,
    gated: true,
  });
}
