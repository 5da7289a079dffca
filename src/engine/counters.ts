/** What the engine counts from load on. */

import type { Sequence } from './sequence.js';
import type { EngineStats, FinishReason } from './types.js';

export class Counters {
  /** Of requests that have begun, with what the prefix cache had; once for all choices. */
  promptTokens = 0;
  completionTokens = 0;
  requests = 0;
  refused = 0;
  /** Rows that gave way to an older one and were computed again. */
  preemptions = 0;
  readonly #finished: Record<FinishReason, number> = { stop: 0, length: 0, cancelled: 0, error: 0 };

  /** A choice has its turn: what waits, and gives up, has had nothing of its prompt computed. */
  started({ choice, request }: Pick<Sequence, 'choice' | 'request'>): void {
    if (choice === 0) this.promptTokens += request.prompt.length;
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
