/** Events on their way out: all that one step (or a cancellation) brought goes at once. */

import type { KvantError } from '../errors.js';
import type { ChoiceEvent, Sequence } from './sequence.js';
import type { FinishReason, TokenLogprobs } from './types.js';
import { epochNow } from './yield.js';

export class Outbox {
  #events: ChoiceEvent[] = [];
  readonly #onEvents: (events: readonly ChoiceEvent[]) => void;

  /** The array that `onEvents` is given is not used again. */
  constructor(onEvents: (events: readonly ChoiceEvent[]) => void) {
    this.#onEvents = onEvents;
  }

  /** What is new about a sequence: text, an id or none, and why it ended, if it did. */
  push(
    sequence: Sequence,
    text: string,
    id: number | null,
    logprobs: TokenLogprobs | null,
    finish: FinishReason | null,
    error: KvantError | null,
    hidden: Float32Array | null = null,
  ): void {
    const { request, choice, startedAt: started, firstTokenAt: firstToken, prefix } = sequence;
    const ends = finish !== null;
    this.#events.push({
      request: request.id,
      choice,
      text,
      ids: id === null ? [] : [id],
      logprobs: logprobs === null ? null : [logprobs],
      finish,
      error,
      times: ends ? { started, firstToken, finished: epochNow() } : null,
      cached: ends && started > 0 ? (prefix?.cached ?? 0) : null,
      ...(hidden === null ? {} : { hidden }),
    });
  }

  flush(): void {
    if (this.#events.length === 0) return;
    const events = this.#events;
    this.#events = [];
    this.#onEvents(events);
  }
}
