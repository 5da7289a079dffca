/**
 * What a step costs on this device, learnt from the steps there were: a line over the number of decoding rows for steps of
 * those alone, and a line over the prompt tokens for what the others take beyond that. Old steps fade, because a context that
 * grows makes the same step dearer.
 */

import type { StepCosts } from './step-plan.js';

/** What is left of a step's weight when the next one has come: the last thirty or so count. */
const FADE = 0.97;
/** A step that took so many times as long as foretold (the machine was busy elsewhere) counts as so long. */
const OUTLIER = 4;
/** Steps before an outlier can be told. */
const SETTLED = 8;

/** Part of what prompts take that is the tokens' at least: the rest comes with any chunk. */
const LEAST_FOR_TOKENS = 0.25;

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
  readonly #least: number;

  /**
   * `least`: part of the mean that is the slope's at least. Points that all have one x are taken for a proportion if it is
   * above 0, for a constant if it is 0.
   */
  constructor(least: number) {
    this.#least = least;
  }

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
    const proportion = meanX > 0 ? meanY / meanX : 0;
    const untold = this.#least > 0 ? proportion : 0;
    const slope = told ? (this.#xy / this.#weight - meanX * meanY) / variance : untold;
    // Between a constant and a proportion: a line that falls, or starts below nothing, comes of noise, or of old points.
    this.slope = Math.min(Math.max(slope, this.#least * proportion), proportion);
    this.intercept = Math.max(0, meanY - this.slope * meanX);
  }
}

export class StepCostModel implements StepCosts {
  readonly #decode = new FadingLine(0);
  readonly #prefill = new FadingLine(LEAST_FOR_TOKENS);
  fixed = 0;
  row = 0;
  chunk = 0;
  token = 0;

  /** A step of so many decoding rows and prompt tokens took so many milliseconds. */
  add(rows: number, tokens: number, ms: number): void {
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
    const { count } = this.#prefill;
    this.#prefill.add(
      tokens,
      count < SETTLED ? beyond : Math.min(beyond, OUTLIER * this.#prefill.at(tokens)),
    );
    this.chunk = this.#prefill.intercept;
    this.token = this.#prefill.slope;
  }
}
