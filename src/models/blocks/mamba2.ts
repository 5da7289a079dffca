/**
 * Mamba 2, a recurrent mixer: `out(norm(scan(conv(xbc(u)), dt(u)) · silu(z(u))))`. What it has seen is a matrix for each head, of a
 * fixed size (graph.ts, `selective-scan`). One tensor has the rows of z, of x, B and C, and of dt. They are one product; three where
 * z and dt are scaled.
 */

import type { Tensor } from '../../device/graph.js';
import type { ConfigFields } from '../config-fields.js';
import type { LayerLayout, LayerPart } from './layout-builder.js';
import { convWeights } from './short-conv.js';
import type { Layer } from './stack.js';

export interface Mamba2Shape {
  readonly heads: number;
  readonly headDim: number;
  /** Heads that share B and C are a group, and what leaves them is normed together. */
  readonly groups: number;
  readonly stateSize: number;
  /** Tokens that the convolution before it sees. */
  readonly taps: number;
  readonly convBias: boolean;
  /** Least and largest time step. */
  readonly limits: readonly [number, number];
}

/** What config.json calls the sizes. */
export interface Mamba2Names {
  readonly heads: string;
  readonly headDim: string;
  readonly groups: string;
  readonly stateSize: string;
  readonly taps: string;
  readonly convBias: string;
  /** Of the matrices before and behind: none is supported. */
  readonly biases: readonly string[];
}

/** `heads · headDim`: columns of z and of what the scan gives. */
function mamba2Width({ heads, headDim }: Mamba2Shape): number {
  return heads * headDim;
}

/** `defaults`: of the fields that may be left out; `width`: what all heads have together, where headDim is not stated. */
export function readMamba2(
  fields: ConfigFields,
  names: Mamba2Names,
  defaults: Omit<Mamba2Shape, 'limits' | 'headDim'> & { readonly headDim?: number },
  width: number | null = null,
): Mamba2Shape {
  for (const name of names.biases)
    if (fields.flag(name, false))
      throw fields.unsupported(
        name,
        'a Mamba 2 whose matrices have biases',
        'Use a checkpoint without them.',
      );
  const heads = fields.count(names.heads, defaults.heads);
  const groups = fields.count(names.groups, defaults.groups);
  if (heads % groups !== 0) throw fields.odd(names.groups, groups, `a divisor of ${names.heads} (${heads})`);
  const stated = fields.value(names.headDim);
  const derived = width === null ? defaults.headDim : width / heads;
  const headDim =
    stated === null || stated === 'auto'
      ? fields.replacing(names.headDim, null).count(names.headDim, derived)
      : fields.count(names.headDim);
  if (width !== null && (heads * headDim !== width || !Number.isInteger(headDim)))
    throw fields.odd(names.heads, heads, `heads that have ${width} columns together`);
  const shape = {
    heads,
    headDim,
    groups,
    stateSize: fields.count(names.stateSize, defaults.stateSize),
    taps: fields.count(names.taps, defaults.taps, 2),
    convBias: fields.flag(names.convBias, defaults.convBias),
    limits: readLimits(fields),
  };
  for (const [name, value] of [
    [names.headDim, headDim],
    [names.stateSize, shape.stateSize],
  ] as const)
    if (!Number.isInteger(value / 4))
      throw fields.unsupported(
        name,
        `a Mamba 2 with "${name}" of ${value}`,
        'Use one that has a multiple of 4.',
      );
  return shape;
}

/** `time_step_limit`. transformers writes what is no number as an object. */
function readLimits(fields: ConfigFields): readonly [number, number] {
  const name = 'time_step_limit';
  const stated = fields.value(name) ?? [0, Number.POSITIVE_INFINITY];
  const wrong = fields.odd(name, stated, 'a least and a largest time step');
  if (!Array.isArray(stated) || stated.length !== 2) throw wrong;
  const [least, most] = stated.map((value) => {
    const written = (value as { readonly __float__?: unknown } | null)?.__float__;
    return typeof value === 'number' ? value : written === undefined ? Number.NaN : Number(written);
  }) as [number, number];
  if (!(least >= 0 && least <= most)) throw wrong;
  return [least, most];
}

export interface Mamba2Weights {
  /** The norm is there. Default true. */
  readonly norm?: boolean;
  /** z and dt are scaled by themselves (Mamba2Options). Default false. */
  readonly apart?: boolean;
  /** Multiply x, B and C, before the convolution. Default 1. */
  readonly scales?: { readonly x: number; readonly b: number; readonly c: number };
}

/** `<block>.{in_proj,conv1d,out_proj,norm}` and `<block>.{A_log,dt_bias,D}`. */
export function mamba2Weights(
  at: LayerLayout,
  hiddenSize: number,
  shape: Mamba2Shape,
  block: string,
  { norm = true, apart = false, scales }: Mamba2Weights = {},
): void {
  const { heads, headDim, groups, stateSize, taps, convBias } = shape;
  const width = mamba2Width(shape);
  const channels = width + 2 * groups * stateSize;
  const of = width + channels + heads;
  const part = (take: number, from: number): readonly LayerPart[] => [
    { tensor: `${block}.in_proj`, rows: take, pick: { take, of, from } },
  ];
  if (apart) {
    at.matrix('mixer', 'mamba-z', hiddenSize, part(width, 0));
    at.matrix('mixer', 'mamba-xbc', hiddenSize, part(channels, width));
    at.matrix('mixer', 'mamba-dt', hiddenSize, part(heads, width + channels));
  } else at.matrix('mixer', 'mamba-in', hiddenSize, [{ tensor: `${block}.in_proj`, rows: of }]);
  const conv = `${block}.conv1d`;
  const by = (channel: number): number =>
    channel < width ? scales!.x : channel < width + groups * stateSize ? scales!.b : scales!.c;
  convWeights(at, conv, channels, taps, convBias, scales && by);
  const decay = ['A_log', 'dt_bias', 'D'].map((name) => ({ name: `${block}.${name}`, shape: [heads] }));
  at.vector('mamba-decay', decay, (all) => all.map((value, i) => (i < heads ? -Math.exp(value) : value)));
  if (norm) at.norm('mamba-norm', `${block}.norm`, width);
  at.matrix('mixer', 'mamba-out', width, [{ tensor: `${block}.out_proj`, rows: hiddenSize }]);
  at.state({ conv: { channels, taps }, matrix: { heads, rows: stateSize, cols: headDim } });
}

export interface Mamba2Options {
  /** How the scan is gated and normed. Default: gated, then normed by group. */
  readonly norm?: 'behind' | 'before' | 'none';
  /** Multiply z and dt, of matrices that are `apart`. Default: they are not scaled. */
  readonly scales?: { readonly z: number; readonly dt: number };
}

/** Mixes normed hidden states. Returns `[tokens, heads · headDim]`, before the output matrix. */
export function mamba2(at: Layer, normed: Tensor, shape: Mamba2Shape, options: Mamba2Options = {}): Tensor {
  const { heads, headDim: cols, groups, stateSize: rows, taps, convBias, limits } = shape;
  const { ops } = at;
  const { norm = 'behind', scales } = options;
  const scaled = (x: Tensor, by: number): Tensor => (by === 1 ? x : ops.scale(x, by));
  const width = mamba2Width(shape);
  const layer = at.cache('state');
  const all = scales === undefined ? at.linear(normed, 'mamba-in') : null;
  const xbc = ops.shortConv(all ?? at.linear(normed, 'mamba-xbc'), {
    layer,
    from: all === null ? 0 : width,
    taps,
    weight: at.vector('conv'),
    bias: convBias ? at.vector('conv-bias') : null,
    activation: 'silu',
  });
  const steps = all ?? scaled(at.linear(normed, 'mamba-dt'), scales!.dt);
  const stepsFrom = all === null ? 0 : width + xbc.cols;
  const sizes = { groups, heads, rows, cols, limits, stepsFrom };
  const mixed = ops.selectiveScan(xbc, steps, { layer, ...sizes, decay: at.vector('mamba-decay') });
  const z = all ?? scaled(at.linear(normed, 'mamba-z'), scales!.z);
  const byGroup = (x: Tensor): Tensor => {
    const part = { from: 0, cols: x.cols / groups, groups, weight: at.vector('mamba-norm'), bias: null };
    return ops.norm(x, 'rms', [part], at.eps);
  };
  const gated = ops.gate(norm === 'before' ? byGroup(mixed) : mixed, z, 'silu', null, 0, 0);
  return norm === 'behind' ? byGroup(gated) : gated;
}
