/** The way out of service: first nothing new is taken, then what still runs is ended. */
import { checkArgument, FUNCTION } from '../arguments.js';
import { KvantError } from '../errors.js';

export class Shutdown {
  readonly #running = new Set<() => void>();
  readonly #waiting: (() => void)[] = [];
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

  /**
   * Calls `cancel` when the time is up. Returns what to call when there is nothing to cancel any more. Who comes while it drains
   * is refused, and not waited for.
   */
  track(cancel: () => void): () => void {
    checkArgument('cancel', cancel, FUNCTION);
    if (this.#ended) cancel();
    if (this.#draining) return () => {};
    this.#running.add(cancel);
    return () => {
      this.#running.delete(cancel);
      if (this.#running.size === 0) for (const resolve of this.#waiting.splice(0)) resolve();
    };
  }

  /** Resolves when nothing runs of what was there before it drained. */
  idle(): Promise<void> {
    if (this.#running.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.push(resolve));
  }
}

export function stopping(): KvantError {
  return new KvantError('shutting-down', 'The server is shutting down.', {
    kind: 'overloaded',
    fix: 'Send the request again, to another server or later.',
    retryAfter: 5,
  });
}
