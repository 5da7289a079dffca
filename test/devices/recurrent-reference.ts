/** Float64 references of recurrent layers and of the gate behind them, straight from their formulas. */
import type { GateActivation } from '../../src/device/graph.js';
import { activation } from './reference.js';

export interface Convolution {
  readonly taps: number;
  /** `[taps · channels]` */
  readonly weight: ArrayLike<number>;
  readonly bias: ArrayLike<number> | null;
  readonly gated: boolean;
  readonly activation: 'silu' | null;
}

/** All rows of a sequence, from its first token on. */
export function shortConv(
  rows: readonly ArrayLike<number>[],
  { taps, weight, bias, gated, activation: act }: Convolution,
): Float64Array[] {
  const channels = weight.length / taps;
  const input = (t: number, c: number): number =>
    gated ? rows[t]![c]! * rows[t]![2 * channels + c]! : rows[t]![c]!;
  return rows.map((row, t) =>
    Float64Array.from({ length: channels }, (_, c) => {
      let sum = bias?.[c] ?? 0;
      for (let back = 0; back < Math.min(taps, t + 1); back++)
        sum += weight[(taps - 1 - back) * channels + c]! * input(t - back, c);
      const y = act === null ? sum : activation(act, sum);
      return gated ? y * row[channels + c]! : y;
    }),
  );
}

export interface DeltaRule {
  readonly keyHeads: number;
  readonly heads: number;
  readonly rows: number;
  readonly cols: number;
  /** `[2 · heads]`: decay, then shift. */
  readonly decay: ArrayLike<number>;
}

/** All rows of a sequence, from its first token on: of q, k and v, and of the gates. */
export function gatedDelta(
  qkv: readonly ArrayLike<number>[],
  gates: readonly ArrayLike<number>[],
  { keyHeads, heads, rows, cols, decay }: DeltaRule,
): Float64Array[] {
  const states = Array.from({ length: heads }, () => new Float64Array(rows * cols));
  const unit = (x: ArrayLike<number>, from: number): Float64Array => {
    const head = Float64Array.from({ length: rows }, (_, i) => x[from + i]!);
    const length = Math.sqrt(head.reduce((sum, v) => sum + v * v, 1e-6));
    return head.map((v) => v / length);
  };
  return qkv.map((x, t) => {
    const out = new Float64Array(heads * cols);
    states.forEach((state, h) => {
      const keyHead = Math.floor((h * keyHeads) / heads);
      const q = unit(x, keyHead * rows);
      const k = unit(x, (keyHeads + keyHead) * rows);
      const beta = 1 / (1 + Math.exp(-gates[t]![h]!));
      const alpha = Math.exp(decay[h]! * Math.log1p(Math.exp(gates[t]![heads + h]! + decay[heads + h]!)));
      for (let c = 0; c < cols; c++) {
        let held = 0;
        for (let i = 0; i < rows; i++) held += alpha * state[i * cols + c]! * k[i]!;
        const change = beta * (x[2 * keyHeads * rows + h * cols + c]! - held);
        for (let i = 0; i < rows; i++) {
          state[i * cols + c] = alpha * state[i * cols + c]! + k[i]! * change;
          out[h * cols + c]! += (state[i * cols + c]! * q[i]!) / Math.sqrt(rows);
        }
      }
    });
    return out;
  });
}

export interface StateSpace {
  readonly groups: number;
  readonly heads: number;
  readonly rows: number;
  readonly cols: number;
  readonly limits: readonly [number, number];
  /** `[3 · heads]`: decay, shift, skip. */
  readonly decay: ArrayLike<number>;
}

/** All rows of a sequence, from its first token on: of x, B and C, and of the time steps. */
export function selectiveScan(
  x: readonly ArrayLike<number>[],
  steps: readonly ArrayLike<number>[],
  { groups, heads, rows, cols, limits, decay }: StateSpace,
): Float64Array[] {
  const states = Array.from({ length: heads }, () => new Float64Array(rows * cols));
  return x.map((row, t) => {
    const out = new Float64Array(heads * cols);
    states.forEach((state, h) => {
      const inputs = heads * cols + Math.floor((h * groups) / heads) * rows;
      const raw = Math.log1p(Math.exp(steps[t]![h]! + decay[heads + h]!));
      const delta = Math.min(Math.max(raw, limits[0]), limits[1]);
      const alpha = Math.exp(delta * decay[h]!);
      for (let c = 0; c < cols; c++) {
        const value = row[h * cols + c]!;
        let sum = decay[2 * heads + h]! * value;
        for (let i = 0; i < rows; i++) {
          state[i * cols + c] = alpha * state[i * cols + c]! + delta * row[inputs + i]! * value;
          sum += state[i * cols + c]! * row[inputs + groups * rows + i]!;
        }
        out[h * cols + c] = sum;
      }
    });
    return out;
  });
}

/** One run of columns. */
export function gate(
  x: ArrayLike<number>,
  by: ArrayLike<number>,
  name: GateActivation,
  norm: { readonly weight: ArrayLike<number>; readonly eps: number } | null,
): Float64Array {
  const n = x.length;
  let squares = 0;
  for (let i = 0; i < n; i++) squares += x[i]! * x[i]!;
  return Float64Array.from({ length: n }, (_, i) => {
    const normed = norm === null ? x[i]! : (x[i]! / Math.sqrt(squares / n + norm.eps)) * norm.weight[i]!;
    if (name === 'gelu-tanh') return normed * activation(name, by[i]!);
    const open = 1 / (1 + Math.exp(-by[i]!));
    return normed * (name === 'silu' ? by[i]! * open : open);
  });
}
