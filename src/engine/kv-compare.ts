/**
 * How far the next-token distributions of one cache are from those of another, in float64 over the whole vocabulary.
 *
 * Of each scored position: KL(p ‖ q) = Σ p · (ln p − ln q), p by the baseline and q by the cache that is judged; whether
 * both put the same token first; −ln q of the token that follows in the text.
 */

/** What a set of positions comes to. */
export interface DistanceSummary {
  readonly tokens: number;
  /** e to the mean −ln q of the tokens that follow. */
  readonly perplexity: number;
  /** Against the baseline's: 0.01 is one per cent worse. */
  readonly perplexityChange: number;
  /** Nats. */
  readonly klMean: number;
  /** 99 of 100 positions are below it. */
  readonly klP99: number;
  readonly klMax: number;
  /** Share of positions whose most likely token is the baseline's. */
  readonly top1: number;
}

/** A row of the baseline's logits, made ready once and compared with those of all caches. */
export class BaselineRow {
  /** `[vocab]` p. */
  readonly p: Float64Array;
  /** Σ p · ln p. */
  negativeEntropy = 0;
  best = 0;
  /** −ln p of the token that follows. */
  nll = 0;

  constructor(vocab: number) {
    this.p = new Float64Array(vocab);
  }

  /** @param logits `[rows, vocab]` */
  take(logits: Float32Array, row: number, next: number): void {
    const { p } = this;
    const at = row * p.length;
    this.best = argmax(logits, at, p.length);
    const max = logits[at + this.best]!;
    let sum = 0;
    for (let i = 0; i < p.length; i++) {
      p[i] = Math.exp(logits[at + i]! - max);
      sum += p[i]!;
    }
    const logSum = Math.log(sum) + max;
    let negativeEntropy = 0;
    for (let i = 0; i < p.length; i++) {
      p[i]! /= sum;
      if (p[i]! > 0) negativeEntropy += p[i]! * (logits[at + i]! - logSum);
    }
    this.negativeEntropy = negativeEntropy;
    this.nll = logSum - logits[at + next]!;
  }
}

/** What is gathered of one cache. */
export class Distances {
  readonly #kl: number[] = [];
  readonly #nll: number[] = [];
  readonly #baselineNll: number[] = [];
  readonly #same: boolean[] = [];
  readonly #groups: string[] = [];

  /** Compares a row of logits `[rows, vocab]` with the baseline's. */
  add(baseline: BaselineRow, logits: Float32Array, row: number, next: number, group: string): void {
    const { p } = baseline;
    const at = row * p.length;
    const best = argmax(logits, at, p.length);
    const max = logits[at + best]!;
    let sum = 0;
    let cross = 0;
    for (let i = 0; i < p.length; i++) {
      const x = logits[at + i]! - max;
      sum += Math.exp(x);
      // What p never takes does not count, however unlikely q holds it: 0 · ∞ is 0 here.
      if (p[i]! > 0) cross += p[i]! * x;
    }
    const logSum = Math.log(sum);
    // A NaN among the logits must not look like a good result.
    const kl = baseline.negativeEntropy - cross + logSum;
    this.#kl.push(Number.isNaN(kl) ? Number.POSITIVE_INFINITY : Math.max(0, kl));
    this.#nll.push(logSum + max - logits[at + next]!);
    this.#baselineNll.push(baseline.nll);
    this.#same.push(best === baseline.best);
    this.#groups.push(group);
  }

  summary(): DistanceSummary {
    return this.#summarise(() => true);
  }

  groups(): Record<string, DistanceSummary> {
    return Object.fromEntries(
      [...new Set(this.#groups)].map((group) => [group, this.#summarise((i) => this.#groups[i] === group)]),
    );
  }

  #summarise(wanted: (index: number) => boolean): DistanceSummary {
    const indices = this.#kl.map((_, i) => i).filter(wanted);
    const kl = indices.map((i) => this.#kl[i]!).sort((a, b) => a - b);
    const tokens = kl.length;
    const mean = (of: (i: number) => number): number => indices.reduce((sum, i) => sum + of(i), 0) / tokens;
    const nll = mean((i) => this.#nll[i]!);
    return {
      tokens,
      perplexity: Math.exp(nll),
      perplexityChange: Math.expm1(nll - mean((i) => this.#baselineNll[i]!)),
      klMean: mean((i) => this.#kl[i]!),
      klP99: kl[Math.min(tokens - 1, Math.ceil(0.99 * tokens) - 1)] ?? Number.NaN,
      klMax: kl.at(-1) ?? Number.NaN,
      top1: mean((i) => (this.#same[i] ? 1 : 0)),
    };
  }
}

function argmax(values: Float32Array, at: number, length: number): number {
  let best = 0;
  for (let i = 1; i < length; i++) if (values[at + i]! > values[at + best]!) best = i;
  return best;
}
