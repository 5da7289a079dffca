/**
 * How a tower's step is cut, so that rows that decode wait for one slice between two of their steps, and no longer than a part of what
 * they may wait for a token, or than a step takes. Each slice waits for a step of theirs. What a picture takes is learnt from the pictures before it.
 */

import type { Program } from '../../device/device.js';
import type { StepInputs } from '../../device/step.js';
import { epochNow } from '../yield.js';
import type { Pace } from './pace.js';
import { PartCosts } from './part-costs.js';
import { tell } from './pieces.js';

/** Parts that a step can be cut into: most towers have some hundred launches, of many rows each may be a slice. */
const PARTS = 64;
/** More than most towers have launches, so that none of many rows has to be in a slice with another. */
const FINE_PARTS = 1024;
/** Rows from which on a launch takes about as long as a step, and not all as long as others: what each part takes is learnt. */
const MANY_ROWS = 16_384;
/** Of a slice's time that one of many rows may take: what is known of its parts is no more than a mean. */
const OF_MANY = 0.85;
/** Of what rows may wait for a token. Slices as short as a step would have a large picture take twice its time beside rows. */
const OF_TARGET = 0.25;
/** Parts of a slice of many rows of which nothing is known: one alone is known best, but beside rows each waits for a step. */
const UNKNOWN_IDLE = 1;
const UNKNOWN_BESIDE = 2;
/** Milliseconds of a slice while nobody decodes: whoever comes meanwhile waits as long. */
const IDLE_MS = 50;
/** Rows of a slice of which nothing is known yet, while nobody decodes. */
const IDLE_ROWS = 4096;
/** Weight of the newest slice in the running mean. */
const NEWEST = 0.3;
/** Steps that may be under way before a slice. */
const AHEAD = 2;

export class TowerSlices {
  /** Milliseconds of a row, of all parts together; 0 before the first slice. */
  #rowMs = 0;
  readonly #costs = new PartCosts(FINE_PARTS);
  readonly #now: () => number;

  /** `now`: a clock of milliseconds. */
  constructor(now: () => number = epochNow) {
    this.#now = now;
  }

  /** Runs a step of a program that no other step is under way of. */
  async run(program: Program, step: StepInputs, pace: Pace): Promise<void> {
    const rows = step.tokenCount;
    const of = rows >= MANY_ROWS ? FINE_PARTS : PARTS;
    for (let from = 0; from < of; ) {
      if (pace.stepMs !== null && (from > 0 || rows >= MANY_ROWS)) await pace.turn();
      const { stepMs } = pace;
      const sliceMs = stepMs === null ? null : Math.max(stepMs, pace.targetMs * OF_TARGET);
      const many = of === FINE_PARTS;
      const to = many
        ? this.#endOfMany(rows, from, sliceMs)
        : from + this.#parts(rows, of, sliceMs, of - from);
      const began = this.#now();
      await program.submit(step, { from, to, of });
      const ms = this.#now() - began;
      tell(`tower ${from} to ${to} of ${of}`, began);
      if (many) this.#costs.learn(rows, from, to, Math.max(0, ms - AHEAD * (stepMs ?? 0)), ms);
      else this.#learn(ms, stepMs, (rows * (to - from)) / of);
      from = to;
    }
  }

  /** `sliceMs`: null while nobody decodes. */
  #endOfMany(rows: number, from: number, sliceMs: number | null): number {
    const unknown = sliceMs === null ? UNKNOWN_IDLE : UNKNOWN_BESIDE;
    return this.#costs.end(rows, from, sliceMs === null ? IDLE_MS : sliceMs * OF_MANY, unknown);
  }

  #parts(rows: number, of: number, sliceMs: number | null, most: number): number {
    const wanted =
      this.#rowMs === 0
        ? sliceMs === null
          ? (of * IDLE_ROWS) / rows
          : 1
        : ((sliceMs ?? IDLE_MS) * of) / (rows * this.#rowMs);
    return Math.max(1, Math.floor(Math.min(wanted, most)));
  }

  /** `stepMs`: of the steps that it may have waited for. */
  #learn(ms: number, stepMs: number | null, rows: number): void {
    const own = Math.max(ms - AHEAD * (stepMs ?? 0), ms / (1 + AHEAD)) / rows;
    this.#rowMs = this.#rowMs === 0 ? own : this.#rowMs * (1 - NEWEST) + own * NEWEST;
  }
}
