/**
 * The sampler in float64, by sorting and by looking at every pair: each stage straight from the essay of
 * src/device/sampling.ts. A row's state is its tokens; nothing is carried on.
 *
 * Every answer comes with a margin: how far the numbers stand from a border at which rounding would decide otherwise.
 * Compare tokens where it is wide (say 1e-4), and everything else always.
 */

import { gumbelFromWord, randomWord, uniformFromWord } from '../../src/device/random.js';
import {
  FEATURE,
  LOGIT_LIMIT,
  MAX_TOP_LOGPROBS,
  type RowSpec,
  XTC_TOKEN,
} from '../../src/device/sampling.js';
import type { SamplingInputs } from '../../src/device/sampling-inputs.js';

/** What a row asks for. What is left out is off; the feature bits follow. */
export interface RowParams {
  readonly temperature?: number;
  readonly topK?: number;
  readonly topP?: number;
  readonly minP?: number;
  readonly typicalP?: number;
  readonly topNSigma?: number;
  readonly xtc?: { readonly probability: number; readonly threshold: number };
  readonly mirostat?: { readonly tau: number; readonly eta: number; readonly mu?: number };
  readonly repetition?: { readonly penalty: number; readonly window?: number };
  readonly frequency?: number;
  readonly presence?: number;
  readonly dry?: {
    readonly multiplier: number;
    readonly base?: number;
    readonly allowedLength?: number;
    readonly window?: number;
    readonly breakers?: readonly number[];
    readonly breakerSequences?: readonly (readonly number[])[];
  };
  readonly bias?: Readonly<Record<number, number>>;
  readonly banned?: readonly (readonly number[])[];
  readonly withheld?: readonly number[];
  /** Allowed ids; absent: no mask. */
  readonly mask?: readonly number[];
  readonly forced?: number;
  readonly seed?: readonly [number, number];
  readonly choice?: number;
  /** Log-probabilities with so many alternatives. */
  readonly logprobs?: number;
  readonly processed?: boolean;
}

/** A row's tokens: the first `promptLength` are the prompt. */
export interface RowTokens {
  readonly history: readonly number[];
  readonly promptLength: number;
}

export interface Outcome {
  /** −1: the row is invalid. */
  readonly token: number;
  readonly margin: number;
  /** Ids that the draw chose from. */
  readonly kept: { has(id: number): boolean };
  /** Processed logits. Empty for an invalid row. */
  readonly processed: Float64Array;
  /** μ after the draw; 0 without mirostat. */
  readonly mu: number;
  /** Null where none was asked for. */
  readonly logprobs: { chosen: number; rank: number; ids: number[]; values: number[] } | null;
}

export function featuresOfRow(row: RowParams): number {
  const on: [boolean, number][] = [
    [row.mask !== undefined, FEATURE.MASK],
    [row.bias !== undefined, FEATURE.BIAS],
    [row.banned !== undefined, FEATURE.BANNED],
    [row.withheld !== undefined, FEATURE.MIN_TOKENS],
    [row.repetition !== undefined, FEATURE.REPETITION],
    [(row.frequency ?? 0) !== 0 || (row.presence ?? 0) !== 0, FEATURE.COUNTS],
    [row.dry !== undefined, FEATURE.DRY],
    [row.mirostat !== undefined, FEATURE.MIROSTAT],
    [row.typicalP !== undefined, FEATURE.TYPICAL],
    [row.topNSigma !== undefined, FEATURE.SIGMA],
    [row.xtc !== undefined, FEATURE.XTC],
    [row.forced !== undefined, FEATURE.FORCED],
    [row.logprobs !== undefined, FEATURE.LOGPROBS],
    [row.processed === true, FEATURE.PROCESSED],
  ];
  return on.reduce((bits, [set, bit]) => (set ? bits | bit : bits), 0);
}

/** The same row as the device takes it: its state. */
export function specOfRow(row: RowParams): RowSpec {
  const entries = Object.entries(row.bias ?? {}).sort(([a], [b]) => Number(a) - Number(b));
  const ascending = (ids: readonly number[]): Uint32Array => Uint32Array.from(ids).sort();
  return {
    features: featuresOfRow(row),
    repetitionWindow: row.repetition?.window ?? 0,
    dryWindow: row.dry?.window ?? 0,
    biasIds: Uint32Array.from(entries, ([id]) => Number(id)),
    biasValues: Float32Array.from(entries, ([, value]) => value),
    withheld: ascending(row.withheld ?? []),
    banned: (row.banned ?? []).map((ids) => Uint32Array.from(ids)),
    breakers: {
      ids: ascending(row.dry?.breakers ?? []),
      sequences: (row.dry?.breakerSequences ?? []).map((ids) => Uint32Array.from(ids)),
    },
    mu: row.mirostat === undefined ? 0 : (row.mirostat.mu ?? 2 * row.mirostat.tau),
  };
}

/** The mask as words, null without one. */
export function maskOfRow(row: RowParams, vocab: number): Uint32Array | null {
  if (row.mask === undefined) return null;
  const words = new Uint32Array(Math.ceil(vocab / 32));
  for (const id of row.mask) words[id >> 5]! |= 1 << (id & 31);
  return words;
}

/** And its columns. */
export function fillRow(inputs: SamplingInputs, at: number, row: RowParams, position: number): void {
  inputs.clearRow(at);
  const set = (column: Float32Array | Uint32Array, value: number | undefined): void => {
    if (value !== undefined) column[at] = value;
  };
  set(inputs.temperature, row.temperature);
  set(inputs.topK, row.topK);
  set(inputs.topP, row.topP);
  set(inputs.minP, row.minP);
  set(inputs.seedLow, row.seed?.[0]);
  set(inputs.seedHigh, row.seed?.[1]);
  set(inputs.choice, row.choice);
  set(inputs.position, position);
  set(inputs.features, featuresOfRow(row));
  set(inputs.typicalP, row.typicalP);
  set(inputs.topNSigma, row.topNSigma);
  set(inputs.xtcProbability, row.xtc?.probability);
  set(inputs.xtcThreshold, row.xtc?.threshold);
  set(inputs.mirostatTau, row.mirostat?.tau);
  set(inputs.mirostatEta, row.mirostat?.eta);
  set(inputs.repetitionPenalty, row.repetition?.penalty);
  set(inputs.repetitionWindow, row.repetition?.window);
  set(inputs.frequencyPenalty, row.frequency);
  set(inputs.presencePenalty, row.presence);
  set(inputs.dryMultiplier, row.dry?.multiplier);
  if (row.dry !== undefined) {
    set(inputs.dryLogBase, Math.log(row.dry.base ?? 1.75));
    set(inputs.dryAllowedLength, row.dry.allowedLength ?? 2);
  }
  set(inputs.dryWindow, row.dry?.window);
  set(inputs.topLogprobs, row.logprobs);
  set(inputs.forced, row.forced);
}

/** Stage 1 for every id. */
export function penalise(logits: ArrayLike<number>, row: RowParams, tokens: RowTokens): Float64Array {
  const { history, promptLength } = tokens;
  const vocab = logits.length;
  const x = Float64Array.from(logits);
  const allowed = row.mask === undefined ? null : new Set(row.mask);
  const recent = row.repetition === undefined ? [] : lastOf(history, row.repetition.window ?? 0);
  const seen = new Set(recent);
  const generated = new Map<number, number>();
  for (const id of history.slice(promptLength)) generated.set(id, (generated.get(id) ?? 0) + 1);
  const banned = new Set(
    (row.banned ?? []).filter((s) => endsIn(history, s.slice(0, -1))).map((s) => s.at(-1)!),
  );
  const withheld = new Set(row.withheld ?? []);
  const matches = row.dry === undefined ? new Map<number, number>() : dryMatches(history, row.dry);
  for (let v = 0; v < vocab; v++) {
    if (allowed !== null && !allowed.has(v)) x[v] = Number.NEGATIVE_INFINITY;
    x[v] = x[v]! + (row.bias?.[v] ?? 0);
    if (banned.has(v) || withheld.has(v)) x[v] = Number.NEGATIVE_INFINITY;
    if (seen.has(v)) x[v] = x[v]! > 0 ? x[v]! / row.repetition!.penalty : x[v]! * row.repetition!.penalty;
    const count = generated.get(v) ?? 0;
    if (count > 0) x[v] = x[v]! - (count * (row.frequency ?? 0) + (row.presence ?? 0));
    const match = matches.get(v) ?? 0;
    const { multiplier = 0, base = 1.75, allowedLength = 2 } = row.dry ?? {};
    const breaks = row.dry?.breakers?.includes(v) ?? false;
    if (match > 0 && match >= allowedLength && !breaks)
      x[v] = x[v]! - Math.min(LOGIT_LIMIT, multiplier * base ** (match - allowedLength));
    if (x[v] !== Number.NEGATIVE_INFINITY) x[v] = Math.max(-LOGIT_LIMIT, Math.min(LOGIT_LIMIT, x[v]!));
  }
  return x;
}

/** The longest match of every id that would go on with one. */
export function dryMatches(
  history: readonly number[],
  dry: NonNullable<RowParams['dry']>,
): Map<number, number> {
  const recent = lastOf(history, dry.window ?? 0);
  const n = recent.length;
  const breaks = (end: number): boolean =>
    (dry.breakers ?? []).includes(recent[end - 1]!) ||
    (dry.breakerSequences ?? []).some((s) => endsIn(history.slice(0, history.length - n + end), s));
  let since = 0;
  while (since < n && !breaks(n - since)) since++;
  const matches = new Map<number, number>();
  for (let d = 1; d < n; d++) {
    let m = 0;
    while (d + m < n && recent[n - 1 - m] === recent[n - 1 - d - m]) m++;
    m = Math.min(m, since);
    const next = recent[n - d]!;
    if (m > (matches.get(next) ?? 0)) matches.set(next, m);
  }
  return matches;
}

function lastOf(history: readonly number[], window: number): readonly number[] {
  return window === 0 ? history : history.slice(-window);
}

function endsIn(history: readonly number[], tail: readonly number[]): boolean {
  return (
    tail.length <= history.length && tail.every((id, i) => history[history.length - tail.length + i] === id)
  );
}

/** A set of ids in order, and the smallest distance to a border so far. */
export interface Kept {
  readonly ids: readonly number[];
  readonly margin: number;
}

/** Ids with finite values, descending, equal ones by id. */
export function ordered(x: ArrayLike<number>): number[] {
  return Array.from({ length: x.length }, (_, i) => i)
    .filter((i) => x[i]! > Number.NEGATIVE_INFINITY)
    .sort((a, b) => x[b]! - x[a]! || a - b);
}

/** Sums of e^z over ids. */
function mass(ids: readonly number[], z: ArrayLike<number>): number {
  return ids.reduce((sum, i) => sum + Math.exp(z[i]!), 0);
}

export function keepTopP({ ids, margin }: Kept, z: ArrayLike<number>, topP: number): Kept {
  const total = mass(ids, z);
  let sum = 0;
  let count = 0;
  let near = margin;
  while (count < ids.length) {
    sum += Math.exp(z[ids[count]!]!);
    count++;
    near = Math.min(near, Math.abs(sum / total - topP));
    if (sum >= topP * total) break;
  }
  return { ids: ids.slice(0, Math.max(1, count)), margin: near };
}

export function keepMinP({ ids, margin }: Kept, z: ArrayLike<number>, minP: number): Kept {
  let near = margin;
  for (const i of ids) if (z[i] !== 0) near = Math.min(near, Math.abs(Math.exp(z[i]!) - minP));
  return { ids: ids.filter((i, at) => at === 0 || Math.exp(z[i]!) >= minP), margin: near };
}

export function keepTypical({ ids, margin }: Kept, z: ArrayLike<number>, typicalP: number): Kept {
  const total = mass(ids, z);
  const surprise = (i: number): number => Math.log(total) - z[i]!;
  const q = (i: number): number => Math.exp(z[i]!) / total;
  const entropy = ids.reduce((sum, i) => sum + (q(i) > 0 ? q(i) * surprise(i) : 0), 0);
  const deviation = (i: number): number => Math.abs(surprise(i) - entropy);
  const byDeviation = [...ids].sort((a, b) => deviation(a) - deviation(b) || a - b);
  let sum = 0;
  let count = 0;
  let near = margin;
  while (count < byDeviation.length) {
    sum += q(byDeviation[count]!);
    count++;
    near = Math.min(near, Math.abs(sum - typicalP));
    if (sum >= typicalP) break;
  }
  const last = byDeviation[count - 1]!;
  const next = byDeviation[count];
  if (next !== undefined && z[next] !== z[last]) near = Math.min(near, deviation(next) - deviation(last));
  const chosen = new Set(byDeviation.slice(0, Math.max(1, count)));
  return { ids: ids.filter((i) => chosen.has(i)), margin: near };
}

/** `x`: the whole row's processed logits. */
export function keepSigma({ ids, margin }: Kept, x: ArrayLike<number>, topNSigma: number): Kept {
  const finite = Array.from(x).filter((v) => v > Number.NEGATIVE_INFINITY);
  const mean = finite.reduce((sum, v) => sum + v / finite.length, 0);
  const sigma = Math.sqrt(finite.reduce((sum, v) => sum + (v - mean) ** 2 / finite.length, 0));
  const border = ids.reduce((most, i) => Math.max(most, x[i]!), Number.NEGATIVE_INFINITY) - topNSigma * sigma;
  let near = margin;
  for (const i of ids.slice(1)) if (x[i] !== x[ids[0]!]) near = Math.min(near, Math.abs(x[i]! - border));
  return { ids: ids.filter((i) => x[i]! >= border), margin: near };
}

export function keepXtc(
  { ids, margin }: Kept,
  z: ArrayLike<number>,
  xtc: NonNullable<RowParams['xtc']>,
  uniform: number,
): Kept {
  const near = Math.min(margin, Math.abs(uniform - xtc.probability));
  if (!(uniform < xtc.probability)) return { ids, margin: near };
  const total = mass(ids, z);
  const q = ids.map((i) => Math.exp(z[i]!) / total);
  const above = q.filter((p) => p >= xtc.threshold).length;
  const border = q.reduce((least, p) => Math.min(least, Math.abs(p - xtc.threshold)), near);
  return { ids: above > 1 ? ids.slice(above - 1) : ids, margin: border };
}

export function keepMirostat({ ids, margin }: Kept, z: ArrayLike<number>, mu: number): Kept {
  const total = mass(ids, z);
  const surprise = (i: number): number => (Math.log(total) - z[i]!) / Math.LN2;
  let near = margin;
  for (const i of ids.slice(1)) near = Math.min(near, Math.abs(surprise(i) - mu));
  return { ids: ids.filter((i, at) => at === 0 || surprise(i) <= mu), margin: near };
}

/** All stages. `mu` before the draw, for rows with mirostat. */
export function sampleRow(
  logits: ArrayLike<number>,
  row: RowParams,
  tokens: RowTokens,
  mu = row.mirostat === undefined ? 0 : (row.mirostat.mu ?? 2 * row.mirostat.tau),
): Outcome & { readonly kept: ReadonlySet<number> } {
  const invalid = { token: -1, margin: Infinity, kept: new Set<number>(), processed: new Float64Array(), mu };
  for (let i = 0; i < logits.length; i++) {
    if (Number.isNaN(logits[i]!) || logits[i] === Number.POSITIVE_INFINITY)
      return { ...invalid, logprobs: null };
  }
  const processed = penalise(logits, row, tokens);
  const order = ordered(processed);
  if (order.length === 0) return { ...invalid, logprobs: null };
  const drawn = draw(processed, order, row, tokens.history.length, mu);
  const token = row.forced ?? drawn.token;
  const logprobs =
    row.logprobs === undefined ? null : logprobsOf(row.processed ? processed : logits, token, row.logprobs);
  const nextMu = row.forced === undefined ? drawn.mu : mu;
  return { token, margin: drawn.margin, kept: drawn.kept, processed, mu: nextMu, logprobs };
}

function draw(
  x: Float64Array,
  order: readonly number[],
  row: RowParams,
  position: number,
  mu: number,
): { token: number; margin: number; kept: ReadonlySet<number>; mu: number } {
  const temperature = row.temperature ?? 0;
  const best = x[order[0]!]!;
  if (temperature === 0) {
    // Equal numbers are equal in f32 as well.
    const second = order.find((i) => x[i]! < best);
    const margin = second === undefined ? Infinity : best - x[second]!;
    return { token: order[0]!, margin, kept: new Set([order[0]!]), mu };
  }
  const z = Float64Array.from(x, (v) => (v - best) / temperature);
  const word = (token: number): number =>
    randomWord(row.seed?.[0] ?? 0, row.seed?.[1] ?? 0, row.choice ?? 0, position, token);
  let kept: Kept = { ids: order, margin: Infinity };
  if (row.mirostat !== undefined) kept = keepMirostat(kept, z, mu);
  else {
    if (row.topK) kept = { ...kept, ids: kept.ids.slice(0, row.topK) };
    if ((row.topP ?? 1) < 1) kept = keepTopP(kept, z, row.topP!);
    if (row.minP) kept = keepMinP(kept, z, row.minP);
    if (row.typicalP !== undefined) kept = keepTypical(kept, z, row.typicalP);
    if (row.topNSigma !== undefined) kept = keepSigma(kept, x, row.topNSigma);
    if (row.xtc !== undefined) kept = keepXtc(kept, z, row.xtc, uniformFromWord(word(XTC_TOKEN)));
  }
  const noisy = kept.ids.map((i) => z[i]! + gumbelFromWord(word(i)));
  let winner = 0;
  for (let j = 1; j < noisy.length; j++) if (noisy[j]! > noisy[winner]!) winner = j;
  let { margin } = kept;
  for (let j = 0; j < noisy.length; j++)
    if (j !== winner) margin = Math.min(margin, noisy[winner]! - noisy[j]!);
  const token = kept.ids[winner]!;
  let nextMu = mu;
  if (row.mirostat !== undefined) {
    const observed = (Math.log(mass(kept.ids, z)) - z[token]!) / Math.LN2;
    nextMu = mu - row.mirostat.eta * (observed - row.mirostat.tau);
  }
  return { token, margin, kept: new Set(kept.ids), mu: nextMu };
}

/** Stage 8 over a row of raw or processed logits. */
export function logprobsOf(
  x: ArrayLike<number>,
  token: number,
  top: number,
): { chosen: number; rank: number; ids: number[]; values: number[] } {
  const order = Array.from({ length: x.length }, (_, i) => i).sort((a, b) => compare(x[b]!, x[a]!) || a - b);
  const best = x[order[0]!]!;
  const total = best + Math.log(order.reduce((sum, i) => sum + Math.exp(x[i]! - best), 0));
  const ids = order.slice(0, Math.min(top, MAX_TOP_LOGPROBS));
  return {
    chosen: x[token]! - total,
    rank: order.indexOf(token) + 1,
    ids,
    values: ids.map((i) => x[i]! - total),
  };
}

/** As `a − b`, but −∞ equals itself. */
function compare(a: number, b: number): number {
  return a === b ? 0 : a < b ? -1 : 1;
}
