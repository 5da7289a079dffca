/** Work for pictures in pieces: what the host does gives way to the event loop, and benchmarks are told what each piece took. */

import { epochNow, yieldToEvents } from '../yield.js';

/** What a piece was, when it began (see `epochNow`) and what it took. */
export interface Piece {
  readonly what: string;
  readonly at: number;
  readonly ms: number;
}

/** For benchmarks: told of each piece. */
export const pieces: { seen: ((piece: Piece) => void) | null } = { seen: null };

export function tell(what: string, at: number): void {
  pieces.seen?.({ what, at, ms: epochNow() - at });
}

/** Milliseconds that the host works on pictures before it turns to others: less than it has between two steps. */
const PIECE_MS = 1;

/** Gives way to whatever else the thread has to do. */
export class Yielder {
  readonly #what: string;
  #began = epochNow();

  constructor(what: string) {
    this.#what = what;
  }

  /** Whether it is time to. */
  get due(): boolean {
    return epochNow() - this.#began >= PIECE_MS;
  }

  async giveWay(): Promise<void> {
    tell(this.#what, this.#began);
    await yieldToEvents();
    this.#began = epochNow();
  }
}
