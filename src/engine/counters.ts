/** What the engine counts from load on. */

import type { EngineStats, FinishReason } from './types.js';

/** Weight of the newest sequence in the running mean of how long sequences take. */
const NEWEST = 0.1;

export class Counters {
  promptTokens = 0;
  completionTokens = 0;
  requests = 0;
  refused = 0;
  /** Rows that gave way to an older one and were computed again. */
  preemptions = 0;
  readonly #finished: Record<FinishReason, number> = { stop: 0, length: 0, cancelled: 0, error: 0 };
  /** Milliseconds a sequence has its row, running mean; 0 before the first. */
  #rowMs = 0;

  accepted(promptTokens: number): void {
    this.requests++;
    this.promptTokens += promptTokens;
  }

  finish(reason: FinishReason, rowMs: number): void {
    this.#finished[reason]++;
    if (reason === 'stop' || reason === 'length')
      this.#rowMs = this.#rowMs === 0 ? rowMs : this.#rowMs * (1 - NEWEST) + rowMs * NEWEST;
  }

  /** Whole seconds until so many waiting sequences have had one of so many rows; 1 to 60. */
  retryAfter(waiting: number, rows: number): number {
    const seconds = (this.#rowMs / 1000) * Math.ceil(Math.max(1, waiting) / rows);
    return Math.min(60, Math.max(1, Math.ceil(seconds)));
  }

  snapshot(): Pick<
    EngineStats,
    'promptTokens' | 'completionTokens' | 'requests' | 'refused' | 'preemptions' | 'finished'
  > {
    const { promptTokens, completionTokens, requests, refused, preemptions } = this;
    return {
      promptTokens,
      completionTokens,
      requests,
      refused,
      preemptions,
      finished: { ...this.#finished },
    };
  }
}
