/**
 * Readers are told once for all that a turn of the event loop brought. A thread that has fallen behind finds the events of several
 * steps at once: its readers then get what is new in one piece, which costs hardly more than one token, and it catches up.
 */

interface Notified {
  tell(): void;
}

export class CoalescedNotifier {
  #waiting: Notified[] = [];
  readonly #flush = (): void => {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const one of waiting) one.tell();
  };

  /** Calls `tell` when the messages that are there have been read; `tell` must not mind to be called without need. */
  tell(one: Notified): void {
    this.#waiting.push(one);
    if (this.#waiting.length > 1) return;
    if (typeof setImmediate === 'function') setImmediate(this.#flush);
    else queueMicrotask(this.#flush);
  }
}
