/** From a pooled hidden state to an embedding or a score: dense layers, norms, a cut, a length of 1. Sums are float64, in the order of columns. */

import { KvantError } from '../../errors.js';
import type { Pooling } from '../pooling.js';

export const DENSE_ACTIVATIONS = ['identity', 'tanh', 'relu', 'gelu', 'sigmoid'] as const;
export type DenseActivation = (typeof DENSE_ACTIVATIONS)[number];

/** `act(W x + b)`. */
export interface DenseLayer {
  readonly rows: number;
  readonly cols: number;
  /** `[rows, cols]`. */
  readonly weight: Float32Array;
  /** `[rows]`, or none. */
  readonly bias: Float32Array | null;
  readonly activation: DenseActivation;
}

const ACTS: Readonly<Record<DenseActivation, (x: number) => number>> = {
  identity: (x) => x,
  tanh: Math.tanh,
  relu: (x) => Math.max(0, x),
  gelu: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
  sigmoid: (x) => 1 / (1 + Math.exp(-x)),
};

/** `[rows]` of an `x` of `[cols]`. Errors: `embedding-config`, where x has another size. */
export function dense(x: Float32Array, { rows, cols, weight, bias, activation }: DenseLayer): Float32Array {
  if (x.length !== cols)
    throw new KvantError('embedding-config', `A dense layer takes ${cols} numbers and gets ${x.length}.`, {
      kind: 'model',
      fix: 'Fetch the model again: its modules are of different models.',
    });
  const act = ACTS[activation];
  return Float32Array.from({ length: rows }, (_, row) => {
    let sum = bias?.[row] ?? 0;
    for (let col = 0; col < cols; col++) sum += weight[row * cols + col]! * x[col]!;
    return act(sum);
  });
}

/** `(x − mean) / √(variance + eps) · weight + bias`. */
export interface NormLayer {
  /** `[n]`. */
  readonly weight: Float32Array;
  readonly bias: Float32Array | null;
  readonly eps: number;
}

/** Behind the pooled hidden state of an encoder that ranks. */
export interface RankingHead {
  readonly pooling: Pooling;
  readonly first: DenseLayer;
  readonly norm: NormLayer | null;
  readonly last: DenseLayer;
}

export function layerNorm(x: Float32Array, { weight, bias, eps }: NormLayer): Float32Array {
  let sum = 0;
  for (const value of x) sum += value;
  const mean = sum / x.length;
  let squares = 0;
  for (const value of x) squares += (value - mean) ** 2;
  const by = 1 / Math.sqrt(squares / x.length + eps);
  return x.map((value, i) => (value - mean) * by * weight[i]! + (bias?.[i] ?? 0));
}

/** x with the length 1; zeros stay zeros. */
export function unit(x: Float32Array): Float32Array {
  let squares = 0;
  for (const value of x) squares += value * value;
  const length = Math.sqrt(squares);
  return length === 0 ? x : x.map((value) => value / length);
}

/** The error function, by its series or its continued fraction: to the last bits of a float64. */
function erf(x: number): number {
  const a = Math.abs(x);
  if (a < 2.5) {
    let term = a;
    let sum = a;
    for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) {
      term *= (-a * a) / n;
      sum += term / (2 * n + 1);
    }
    return Math.sign(x) * (2 / Math.sqrt(Math.PI)) * sum;
  }
  let fraction = 0;
  for (let n = 60; n > 0; n--) fraction = n / 2 / (a + fraction);
  return Math.sign(x) * (1 - Math.exp(-a * a) / Math.sqrt(Math.PI) / (a + fraction));
}
