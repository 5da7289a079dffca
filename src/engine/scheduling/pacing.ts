/**
 * What the engine learns as it goes and plans with: what steps cost, what each share has had, how fast the queue moves. Also who
 * may still join the queue.
 */

import type { QueuePlace } from './queue-place.js';
import { DRAWN_CHARGE, ShareLedger } from './share-ledger.js';
import { StepCostModel } from './step-costs.js';

/** Weight of the newest start in the running mean of the time between two. */
const NEWEST = 0.1;
/** Part of the queue's length that is kept, beyond it, for shares that have little in it. */
const KEPT_FOR_OTHERS = 0.25;

/** Error of a foretold time that is believed, in parts of that time. */
const MOST_ERROR = 2;

/** What is paced: a sequence from the queue to its end. */
interface Paced {
  readonly share: number;
  readonly length: number;
  readonly computed: number;
}

/** What a step's time is explained by. */
export interface RetiredStep {
  readonly submittedAt: number;
  /** Rows that took one token and drew one, or took some of a run. */
  readonly decoding: number;
  /** Tokens of runs, beside the first of each row. Default: none. */
  readonly runTokens?: number;
  /** Tokens of all others. */
  readonly promptTokens: number;
  /** The sum over those of how many tokens are before each, in thousands. */
  readonly depth: number;
  /** Milliseconds that they were foretold to take; 0 if they were given as much as there was. */
  readonly spent: number;
}

export class Pacing {
  readonly costs = new StepCostModel();
  /** Sequences that ended in the queue because their time to start was over. */
  tooLate = 0;
  readonly #shares = new ShareLedger();
  /** Milliseconds between two sequences that start, running mean while some wait; 0 before the first. */
  #interval = 0;
  #startedAt = 0;
  #retiredAt = 0;
  #error = 0;

  /** Tokens served to each share: for the scheduler. The array is another one when there are more shares. */
  get served(): Float64Array {
    return this.#shares.served;
  }

  /** So many more sequences wait; answers the index of their share. */
  join({ share }: Pick<QueuePlace, 'share'>, sequences: number): number {
    return this.#shares.open(share, sequences);
  }

  /** A sequence has ended, wherever it was. */
  leave({ share }: Pick<QueuePlace, 'share'>): void {
    this.#shares.close(share);
  }

  /** A sequence has a row for the first time. `queued`: others still wait, so that this is as fast as it goes. */
  start({ share, length, computed }: Paced, now: number, queued: boolean): void {
    this.#shares.charge(share, length - computed);
    const interval = now - this.#startedAt;
    if (queued && this.#startedAt > 0)
      this.#interval = this.#interval === 0 ? interval : this.#interval * (1 - NEWEST) + interval * NEWEST;
    this.#startedAt = now;
  }

  /** A token of a sequence has been drawn. */
  drew({ share }: Paced): void {
    this.#shares.charge(share, DRAWN_CHARGE);
  }

  /** A step has retired: it took from when it was submitted, or the one before it retired, until now. */
  retire(
    { submittedAt, decoding, runTokens = 0, promptTokens, depth, spent }: RetiredStep,
    now: number,
  ): void {
    const ms = now - Math.max(submittedAt, this.#retiredAt) - this.costs.token * runTokens;
    const took = ms - this.costs.fixed - this.costs.row * decoding;
    // One step that the machine was busy elsewhere in is not held against the prompts.
    if (spent > 0) this.#error += Math.max(-spent, Math.min(took - spent, MOST_ERROR * spent));
    // Runs are too short to tell from them what prompts cost, and steps with them are no steps of decoding alone.
    if (runTokens === 0 || promptTokens > 0) this.costs.add(decoding, promptTokens, depth, Math.max(0, ms));
    this.#retiredAt = now;
  }

  /** Milliseconds that prompts took beyond what was foretold, since this was last asked. */
  takeError(): number {
    const error = this.#error;
    this.#error = 0;
    return error;
  }

  /**
   * Whether so many sequences may join `waiting` others, beside `rows` that are free. A full queue still takes what shares with less than
   * their part of it bring, up to a quarter more, so that one client's flood does not shut the others out.
   */
  admits(
    { share }: Pick<QueuePlace, 'share'>,
    sequences: number,
    waiting: number,
    rows: number,
    maxQueue: number,
  ): boolean {
    if (waiting + sequences <= maxQueue + rows) return true;
    const active = this.#shares.activeWith(share);
    const part = Math.floor(maxQueue / active);
    const kept = Math.ceil(maxQueue * KEPT_FOR_OTHERS);
    return (
      active > 1 &&
      this.#shares.opened(share) + sequences <= part &&
      waiting + sequences <= maxQueue + rows + kept
    );
  }

  /** Whole seconds until so many waiting sequences will have started; 1 to 60. */
  retryAfter(places: number): number {
    return Math.min(60, Math.max(1, Math.ceil((this.#interval * places) / 1000)));
  }
}
