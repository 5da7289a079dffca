/** What the engine counts from load on. */

import type { EngineStats, FinishReason } from './types.js';

export class Counters {
  promptTokens = 0;
  completionTokens = 0;
  requests = 0;
  refused = 0;
  /** Rows that gave way to an older one and were computed again. */
  preemptions = 0;
  readonly #finished: Record<FinishReason, number> = { stop: 0, length: 0, cancelled: 0, error: 0 };

  accepted(promptTokens: number): void {
    this.requests++;
    this.promptTokens += promptTokens;
  }

  finish(reason: FinishReason): void {
    this.#finished[reason]++;
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
