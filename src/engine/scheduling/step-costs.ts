/**
 * What a step costs on this device, learnt from the steps there were: a line over the number of decoding rows for steps of
 * those alone, and for what the others take beyond that a sum over a chunk, its tokens, and the tokens before them. Old steps
 * fade, because decoding rows that grow make the same step dearer.
 */

import type { StepCosts } from './step-plan.js';

/** What is left of a step's weight when the next one has come: the last thirty or so count. */
const FADE = 0.97;
/** A step that took so many times as long as foretold (the machine was busy elsewhere) counts as so long. */
const OUTLIER = 4;
/** Steps before an outlier can be told. */
const SETTLED = 8;
/** Part of what prompts take that is their tokens' at least: nothing is free. */
const LEAST_FOR_TOKENS = 0.01;
/** Scale of the features: tokens, and tokens times thousands before them, of a usual chunk. */
const TOKENS = 256;
const DEPTH = 1024;
/** Variance of the weights, against that of a step's time: at first, and never more; and what each step adds to it. */
const DOUBT = 100;
const DRIFT = 0.004;

/** Least squares over points that fade; slope and intercept are never below zero. */
export class FadingLine {
  #weight = 0;
  #x = 0;
  #y = 0;
  #xx = 0;
  #xy = 0;
  count = 0;
  slope = 0;
  intercept = 0;

  at(x: number): number {
    return this.intercept + this.slope * x;
  }

  add(x: number, y: number): void {
    this.count++;
    this.#weight = this.#weight * FADE + 1;
    this.#x = this.#x * FADE + x;
    this.#y = this.#y * FADE + y;
    this.#xx = this.#xx * FADE + x * x;
    this.#xy = this.#xy * FADE + x * y;
    const meanX = this.#x / this.#weight;
    const meanY = this.#y / this.#weight;
    const variance = this.#xx / this.#weight - meanX * meanX;
    const told = variance > 1e-3 * meanX * meanX;
    const slope = told ? (this.#xy / this.#weight - meanX * meanY) / variance : 0;
    // Between a constant and a proportion: a line that falls, or starts below nothing, comes of noise.
    this.slope = Math.min(Math.max(slope, 0), meanX > 0 ? meanY / meanX : 0);
    this.intercept = Math.max(0, meanY - this.slope * meanX);
  }
}

/** Least squares over three features, step by step, of weights that drift (a Kalman filter); none is ever below zero. */
class FadingSum {
  count = 0;
  readonly weights = new Float64Array(3);
  readonly #x = new Float64Array(3);
  readonly #gain = new Float64Array(3);
  /** `[3, 3]`, symmetric: what is not known of the weights. */
  readonly #doubt = Float64Array.of(DOUBT, 0, 0, 0, DOUBT, 0, 0, 0, DOUBT);

  at(a: number, b: number, c: number): number {
    return this.weights[0]! * a + this.weights[1]! * b + this.weights[2]! * c;
  }

  add(a: number, b: number, c: number, y: number): void {
    const x = this.#x;
    const gain = this.#gain;
    const doubt = this.#doubt;
    this.count++;
    x[0] = a;
    x[1] = b;
    x[2] = c;
    let spread = 1;
    for (let i = 0; i < 3; i++) {
      gain[i] = doubt[3 * i]! * a + doubt[3 * i + 1]! * b + doubt[3 * i + 2]! * c;
      spread += x[i]! * gain[i]!;
    }
    const error = y - this.at(a, b, c);
    for (let i = 0; i < 3; i++) this.weights[i] = Math.max(0, this.weights[i]! + (gain[i]! / spread) * error);
    for (let i = 0; i < 3; i++)
      for (let j = 0; j < 3; j++) doubt[3 * i + j] = doubt[3 * i + j]! - (gain[i]! * gain[j]!) / spread;
    for (let i = 0; i < 9; i += 4) if (doubt[i]! < DOUBT) doubt[i] = doubt[i]! + DRIFT;
  }
}

export class StepCostModel implements StepCosts {
  readonly #decode = new FadingLine();
  readonly #prefill = new FadingSum();
  fixed = 0;
  row = 0;
  chunk = 0;
  token = 0;
  depth = 0;

  /**
   * A step of so many decoding rows and prompt tokens took so many milliseconds. `depth`: the sum over those tokens of how many are
   * before each, in thousands.
   */
  add(rows: number, tokens: number, depth: number, ms: number): void {
    if (!(ms >= 0)) return;
    if (tokens === 0) {
      const { count } = this.#decode;
      this.#decode.add(rows, count < SETTLED ? ms : Math.min(ms, OUTLIER * this.#decode.at(rows)));
      this.fixed = this.#decode.intercept;
      this.row = this.#decode.slope;
      return;
    }
    // Nothing is known of decoding before the first row decodes: until then its share is in what a chunk costs.
    const beyond = Math.max(0, ms - this.#decode.at(rows));
    const sum = this.#prefill;
    const [b, c] = [tokens / TOKENS, depth / DEPTH];
    const foretold = sum.at(1, b, c);
    const believed = sum.count < SETTLED ? beyond : Math.min(beyond, OUTLIER * foretold);
    sum.add(1, b, c, believed);
    this.chunk = sum.weights[0]!;
    this.token = Math.max(sum.weights[1]! / TOKENS, (LEAST_FOR_TOKENS * believed) / tokens);
    this.depth = sum.weights[2]! / DEPTH;
  }
}
