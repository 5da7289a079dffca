/** The way out of service: first nothing new is taken, then what still runs is ended. */
import { KvantError } from '../errors.js';

export class Shutdown {
  readonly #running = new Set<() => void>();
  #draining = false;
  #ended = false;

  /** New requests are refused. */
  get draining(): boolean {
    return this.#draining;
  }

  drain(): void {
    this.#draining = true;
  }

  /** Ends what runs, and whatever comes yet. */
  end(): void {
    this.#draining = true;
    this.#ended = true;
    for (const cancel of this.#running) cancel();
  }

  /** Calls `cancel` when the time is up. Returns what to call when there is nothing to cancel any more. */
  track(cancel: () => void): () => void {
    if (this.#ended) cancel();
    this.#running.add(cancel);
    return () => this.#running.delete(cancel);
  }
}

export function stopping(): KvantError {
  return new KvantError('shutting-down', 'The server is shutting down.', {
    kind: 'overloaded',
    fix: 'Send the request again, to another server or later.',
    retryAfter: 5,
  });
}
