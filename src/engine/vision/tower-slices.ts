/**
 * How a tower's step is cut, so that rows that decode wait for one slice between two of their steps, and no longer than a step
 * takes. Each slice waits for a step of theirs. What a picture takes is learnt from the pictures before it.
 */

import type { Program } from '../../device/device.js';
import type { StepInputs } from '../../device/step.js';
import type { Pace } from './pace.js';

/** Parts that a step can be cut into: most towers have some hundred launches, of many rows each may be a slice. */
const PARTS = 64;
const FINE_PARTS = 256;
/** Rows from which on launches take so long, and not all as long as others, that a slice is this part of what it might be. */
const MANY_ROWS = 16_384;
const OF_MANY = 0.4;
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

  /** Runs a step of a program that no other step is under way of. */
  async run(program: Program, step: StepInputs, pace: Pace): Promise<void> {
    const rows = step.tokenCount;
    const of = rows >= MANY_ROWS ? FINE_PARTS : PARTS;
    for (let from = 0; from < of; ) {
      if (pace.stepMs !== null && from > 0) await pace.turn();
      const { stepMs } = pace;
      const to = Math.min(of, from + this.#parts(rows, of, stepMs));
      const began = performance.now();
      await program.submit(step, { from, to, of });
      this.#learn(performance.now() - began, stepMs, (rows * (to - from)) / of);
      from = to;
    }
  }

  #parts(rows: number, of: number, stepMs: number | null): number {
    const share = rows >= MANY_ROWS && stepMs !== null ? OF_MANY : 1;
    const wanted =
      this.#rowMs === 0
        ? stepMs === null
          ? (of * IDLE_ROWS) / rows
          : 1
        : ((stepMs ?? IDLE_MS) * share * of) / (rows * this.#rowMs);
    return Math.max(1, Math.floor(Math.min(wanted, of)));
  }

  /** `stepMs`: of the steps that it may have waited for. */
  #learn(ms: number, stepMs: number | null, rows: number): void {
    const own = Math.max(ms - AHEAD * (stepMs ?? 0), ms / (1 + AHEAD)) / rows;
    this.#rowMs = this.#rowMs === 0 ? own : this.#rowMs * (1 - NEWEST) + own * NEWEST;
  }
}
