/** Float64 references of the ops, straight from their formulas; of recurrent layers: recurrent-reference.ts. */
import type { ExpertActivation } from '../../src/device/graph.js';
import { gumbelFromWord, randomWord } from '../../src/device/random.js';

export function linear(
  x: ArrayLike<number>,
  w: ArrayLike<number>,
  rows: number,
  cols: number,
  outs: number,
  bias?: ArrayLike<number>,
  residual?: ArrayLike<number>,
): Float64Array {
  const out = new Float64Array(rows * outs);
  for (let r = 0; r < rows; r++) {
    for (let o = 0; o < outs; o++) {
      let sum = bias?.[o] ?? 0;
      for (let c = 0; c < cols; c++) sum += x[r * cols + c]! * w[o * cols + c]!;
      out[r * outs + o] = sum + (residual?.[r * outs + o] ?? 0);
    }
  }
  return out;
}

export function rmsNorm(
  x: ArrayLike<number>,
  w: ArrayLike<number>,
  rows: number,
  cols: number,
  eps: number,
): Float64Array {
  const out = new Float64Array(rows * cols);
  for (let r = 0; r < rows; r++) {
    let sum = 0;
    for (let c = 0; c < cols; c++) sum += x[r * cols + c]! ** 2;
    const scale = 1 / Math.sqrt(sum / cols + eps);
    for (let c = 0; c < cols; c++) out[r * cols + c] = x[r * cols + c]! * scale * w[c]!;
  }
  return out;
}

export interface NormedPart {
  readonly from: number;
  readonly cols: number;
  readonly groups: number;
  readonly weight: ArrayLike<number> | null;
  readonly bias: ArrayLike<number> | null;
}

/** Parts of `width` columns, each normed by itself; the others stay. */
export function norm(
  x: ArrayLike<number>,
  rows: number,
  width: number,
  kind: 'rms' | 'layer',
  parts: readonly NormedPart[],
  eps: number,
): Float64Array {
  const out = Float64Array.from(x);
  for (let r = 0; r < rows; r++) {
    for (const { from, cols, groups, weight, bias } of parts) {
      for (let g = 0; g < groups; g++) {
        const at = r * width + from + g * cols;
        const values = Float64Array.from({ length: cols }, (_, c) => x[at + c]!);
        const mean = kind === 'layer' ? values.reduce((sum, v) => sum + v, 0) / cols : 0;
        const variance = values.reduce((sum, v) => sum + (v - mean) ** 2, 0) / cols;
        for (let c = 0; c < cols; c++) {
          const normed = (values[c]! - mean) / Math.sqrt(variance + eps);
          out[at + c] = normed * (weight?.[g * cols + c] ?? 1) + (bias?.[g * cols + c] ?? 0);
        }
      }
    }
  }
  return out;
}

/** `[alphaP, alphaN, beta, eps]` */
export function xielu(x: number, [alphaP, alphaN, beta, eps]: readonly number[]): number {
  if (x > 0) return alphaP! * x * x + beta! * x;
  return (Math.expm1(Math.min(x, eps!)) - x) * alphaN! + beta! * x;
}

export function activation(name: string, x: number): number {
  switch (name) {
    case 'silu':
      return x / (1 + Math.exp(-x));
    case 'quick-gelu':
      return x / (1 + Math.exp(-1.702 * x));
    case 'gelu':
      return 0.5 * x * (1 + erf(x / Math.SQRT2));
    case 'gelu-tanh':
      return 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
    case 'relu':
      return Math.max(0, x);
    case 'relu2':
      return Math.max(0, x) ** 2;
    default:
      throw new Error(name);
  }
}

/** What an expert makes of gate and up. */
export function gatedUnit(kind: ExpertActivation, gate: number, up: number): number {
  if (typeof kind === 'string') return activation(kind, gate) * up;
  const g = Math.min(gate, kind.limit);
  const u = Math.max(-kind.limit, Math.min(kind.limit, up));
  return ((u + 1) * g) / (1 + Math.exp(-kind.alpha * g));
}

export function glu(x: ArrayLike<number>, rows: number, half: number, name: string): Float64Array {
  const out = new Float64Array(rows * half);
  for (let r = 0; r < rows; r++) {
    for (let c = 0; c < half; c++) {
      out[r * half + c] = activation(name, x[r * 2 * half + c]!) * x[r * 2 * half + half + c]!;
    }
  }
  return out;
}

export function scale(x: ArrayLike<number>, factor: number, softcap: number | null): Float64Array {
  return Float64Array.from(x, (v) =>
    softcap === null ? factor * v : softcap * Math.tanh((factor * v) / softcap),
  );
}

/** Columns in runs of one width, each between its bounds `[low, high]`. */
export function clamp(x: ArrayLike<number>, cols: number, bounds: ArrayLike<number>): Float64Array {
  const width = cols / (bounds.length / 2);
  return Float64Array.from(x, (v, i) => {
    const run = Math.floor((i % cols) / width);
    return Math.min(Math.max(v, bounds[2 * run]!), bounds[2 * run + 1]!);
  });
}

/** erf by its Maclaurin series for small arguments and a continued fraction for large ones; to 1e-14. */
function erf(x: number): number {
  if (x < 0) return -erf(-x);
  if (x < 3) {
    let term = x;
    let sum = x;
    for (let n = 1; n < 200; n++) {
      term *= (-x * x) / n;
      sum += term / (2 * n + 1);
    }
    return (2 / Math.sqrt(Math.PI)) * sum;
  }
  let f = 0;
  for (let k = 80; k >= 1; k--) f = k / 2 / (x + f);
  return 1 - Math.exp(-x * x) / (Math.sqrt(Math.PI) * (x + f));
}

/** Rotates one head in place; `frequencies[i]` in radians a position. */
export function rotate(
  head: Float64Array,
  position: number,
  frequencies: ArrayLike<number>,
  style: 'half' | 'interleaved',
  factor = 1,
): void {
  const half = frequencies.length;
  for (let i = 0; i < half; i++) {
    const [a, b] = style === 'half' ? [i, i + half] : [2 * i, 2 * i + 1];
    const angle = position * frequencies[i]!;
    const [x, y] = [head[a]!, head[b]!];
    head[a] = (x * Math.cos(angle) - y * Math.sin(angle)) * factor;
    head[b] = (x * Math.sin(angle) + y * Math.cos(angle)) * factor;
  }
}

export interface AttentionOptions {
  readonly scale: number;
  readonly window?: number | null;
  readonly softcap?: number | null;
  /** One more score, without a value. */
  readonly sink?: number;
  /** Of the query; what is behind it is seen too. Default: the last. */
  readonly position?: number;
}

/** One query head over keys and values `[context][headDim]`. */
export function attendOne(
  q: ArrayLike<number>,
  keys: readonly ArrayLike<number>[],
  values: readonly ArrayLike<number>[],
  options: AttentionOptions,
): Float64Array {
  const dim = q.length;
  const width = values[0]?.length ?? dim;
  const out = new Float64Array(width);
  const position = options.position ?? keys.length - 1;
  const first = options.window == null ? 0 : Math.max(0, position - options.window + 1);
  if (keys.length === 0) return out;
  const scores = new Float64Array(keys.length);
  const { sink = Number.NEGATIVE_INFINITY } = options;
  let max = sink;
  for (let t = first; t < keys.length; t++) {
    let s = 0;
    for (let d = 0; d < dim; d++) s += q[d]! * keys[t]![d]!;
    s *= options.scale;
    if (options.softcap != null) s = options.softcap * Math.tanh(s / options.softcap);
    scores[t] = s;
    max = Math.max(max, s);
  }
  let sum = Math.exp(sink - max);
  for (let t = first; t < keys.length; t++) {
    const p = Math.exp(scores[t]! - max);
    sum += p;
    for (let d = 0; d < width; d++) out[d] = out[d]! + p * values[t]![d]!;
  }
  for (let d = 0; d < width; d++) out[d] = out[d]! / sum;
  return out;
}

export interface SamplingRow {
  readonly temperature: number;
  readonly topK?: number;
  readonly topP?: number;
  readonly minP?: number;
  readonly seed?: readonly [number, number];
  readonly choice?: number;
  readonly position?: number;
}

export interface Draw {
  /** −1: nothing to draw from. */
  readonly token: number;
  /** How far the winner stands before the runner-up, and the borders of the filters from their thresholds. */
  readonly margin: number;
  readonly kept: ReadonlySet<number>;
}

/** The sampler by sorting. Order: temperature, top-k, top-p, min-p, draw; ties by lowest id. */
export function sample(logits: ArrayLike<number>, row: SamplingRow): Draw {
  const n = logits.length;
  let best = -1;
  for (let i = 0; i < n; i++) {
    const x = logits[i]!;
    if (Number.isNaN(x)) return { token: -1, margin: 1, kept: new Set() };
    if (x !== Number.NEGATIVE_INFINITY && (best < 0 || x > logits[best]!)) best = i;
  }
  if (best < 0 || logits[best] === Number.POSITIVE_INFINITY) return { token: -1, margin: 1, kept: new Set() };
  if (row.temperature === 0) return { token: best, margin: 1, kept: new Set([best]) };

  const z = Float64Array.from({ length: n }, (_, i) => (logits[i]! - logits[best]!) / row.temperature);
  let order = Array.from({ length: n }, (_, i) => i)
    .filter((i) => z[i]! > Number.NEGATIVE_INFINITY)
    .sort((a, b) => z[b]! - z[a]! || a - b);
  let margin = Number.POSITIVE_INFINITY;
  const topK = row.topK ?? 0;
  if (topK > 0) order = order.slice(0, topK);
  const topP = row.topP ?? 1;
  if (topP < 1) {
    const total = order.reduce((sum, i) => sum + Math.exp(z[i]!), 0);
    let sum = 0;
    let count = 0;
    while (count < order.length) {
      sum += Math.exp(z[order[count]!]!);
      count++;
      margin = Math.min(margin, Math.abs(sum / total - topP));
      if (sum >= topP * total) break;
    }
    order = order.slice(0, Math.max(1, count));
  }
  const minP = row.minP ?? 0;
  if (minP > 0) {
    for (const i of order) margin = Math.min(margin, Math.abs(Math.exp(z[i]!) - minP));
    order = order.filter((i) => Math.exp(z[i]!) >= minP);
  }
  const [low, high] = row.seed ?? [0, 0];
  const keys = order.map(
    (i) => z[i]! + gumbelFromWord(randomWord(low, high, row.choice ?? 0, row.position ?? 0, i)),
  );
  let winner = 0;
  for (let j = 1; j < order.length; j++) if (keys[j]! > keys[winner]!) winner = j;
  for (let j = 0; j < order.length; j++) {
    if (j !== winner) margin = Math.min(margin, keys[winner]! - keys[j]!);
  }
  return { token: order[winner]!, margin, kept: new Set(order) };
}

export interface Routing {
  readonly k: number;
  readonly score: 'softmax' | 'sigmoid';
  readonly bias: ArrayLike<number> | null;
  readonly groups: { readonly count: number; readonly kept: number; readonly by: 'best' | 'two-best' } | null;
  readonly normalise: { readonly least: number; readonly add: number } | null;
  readonly scale: number;
  readonly expertScales?: ArrayLike<number> | null;
}

/** One row: the ids, rising, and then their weights. */
export function route(logits: readonly number[], spec: Routing): number[] {
  const { k, bias, groups, normalise, scale: by } = spec;
  const top = Math.max(...logits);
  const exps = logits.map((x) => Math.exp(x - top));
  const total = exps.reduce((sum, e) => sum + e, 0);
  const scores =
    spec.score === 'softmax' ? exps.map((e) => e / total) : logits.map((x) => 1 / (1 + Math.exp(-x)));
  const keys = scores.map((s, i) => s + (bias?.[i] ?? 0));
  const ranked = (values: readonly number[]): number[] =>
    values.map((_, i) => i).sort((a, b) => values[b]! - values[a]! || a - b);
  let allowed = keys.map(() => true);
  if (groups !== null) {
    const each = keys.length / groups.count;
    const values = Array.from({ length: groups.count }, (_, g) => {
      const [first, second = 0] = keys.slice(g * each, (g + 1) * each).sort((a, b) => b - a);
      return groups.by === 'best' ? first! : first! + second;
    });
    const kept = ranked(values).slice(0, groups.kept);
    allowed = keys.map((_, i) => kept.includes(Math.floor(i / each)));
  }
  const ids = ranked(keys)
    .filter((i) => allowed[i])
    .slice(0, k)
    .sort((a, b) => a - b);
  const sum = ids.reduce((all, i) => all + scores[i]!, 0);
  const divisor = normalise === null ? 1 : Math.max(sum, normalise.least) + normalise.add;
  return [...ids, ...ids.map((i) => (scores[i]! / divisor) * by * (spec.expertScales?.[i] ?? 1))];
}

export interface ExpertStacks {
  readonly count: number;
  /** Of each expert its gate rows and then its up rows: `[count · 2 · inner, cols]`. */
  readonly gateUp: ArrayLike<number>;
  /** `[count · outs, inner]` */
  readonly down: ArrayLike<number>;
  readonly cols: number;
  readonly inner: number;
  readonly outs: number;
  readonly activation: ExpertActivation;
  readonly gateUpBias?: ArrayLike<number>;
  readonly downBias?: ArrayLike<number>;
}

/** One row x, given to experts `ids` with `weights`. */
export function experts(
  x: ArrayLike<number>,
  ids: readonly number[],
  weights: readonly number[],
  stacks: ExpertStacks,
): Float64Array {
  const { cols, inner, outs, activation: name } = stacks;
  const out = new Float64Array(outs);
  const dot = (a: ArrayLike<number>, from: number, b: ArrayLike<number>, length: number): number => {
    let sum = 0;
    for (let i = 0; i < length; i++) sum += a[from + i]! * b[i]!;
    return sum;
  };
  ids.forEach((id, j) => {
    const hidden = Float64Array.from({ length: inner }, (_, i) => {
      const [gate, up] = [id * 2 * inner + i, (id * 2 + 1) * inner + i].map(
        (row) => dot(stacks.gateUp, row * cols, x, cols) + (stacks.gateUpBias?.[row] ?? 0),
      );
      return gatedUnit(name, gate!, up!);
    });
    for (let o = 0; o < outs; o++) {
      const row = id * outs + o;
      out[o]! += weights[j]! * (dot(stacks.down, row * inner, hidden, inner) + (stacks.downBias?.[row] ?? 0));
    }
  });
  return out;
}
