/**
 * The bytes of bodies that are held at once, from the first until their text has become tokens. Beyond a number of them large bodies
 * are refused before they are read. Small ones have room of their own: nobody's flood of large bodies turns them away.
 */
import { KvantError } from '../errors.js';

/** A body of up to so many bytes is a small one. */
export const SMALL_BODY = 65_536;
/** Room of small bodies, of the room of large ones. */
const SMALL_ROOM = 0.25;
/** Of the room that one sender's large bodies may have: the rest is for the others. */
const SENDER_ROOM = 0.5;
/** What a body that does not say how long it is takes at a time. */
const STEP = 262_144;

export interface HeldBody {
  /** It has come to so many bytes. Errors: `bodies-in-flight`. */
  grow(size: number): void;
  /** It is held no longer. May be called twice. */
  release(): void;
}

export class BodiesInFlight {
  readonly #most: number;
  #small = 0;
  #large = 0;
  readonly #bySender = new Map<string, number>();
  /** Milliseconds that large bodies were held for, of late. */
  #heldMs = 1000;

  /** `most`: bytes of large bodies. */
  constructor(most: number) {
    this.#most = most;
  }

  /** Bytes that are held. */
  get held(): number {
    return this.#small + this.#large;
  }

  /**
   * `told`: its length, NaN where it is not said. `sender`: whose it is.
   * Errors: `bodies-in-flight` (503), where there is no room for it.
   */
  open(told: number, sender: string): HeldBody {
    const began = performance.now();
    let taken = 0;
    let open = true;
    const grow = (size: number): void => {
      if (!open || size <= taken) return;
      // A small one that grows beyond moves to the room of large ones.
      const next = size <= SMALL_BODY ? size : told >= size ? told : Math.ceil(size / STEP) * STEP;
      this.#take(taken, next, sender);
      taken = next;
    };
    grow(Number.isNaN(told) ? 0 : told);
    return {
      grow,
      release: () => {
        if (!open) return;
        open = false;
        if (taken > SMALL_BODY) this.#heldMs += 0.2 * (performance.now() - began - this.#heldMs);
        this.#add(-taken, taken, sender);
      },
    };
  }

  #take(before: number, after: number, sender: string): void {
    const small = after <= SMALL_BODY;
    const room = small ? this.#most * SMALL_ROOM : this.#most;
    const held = small ? this.#small : this.#large;
    const own = before > SMALL_BODY ? before : 0;
    const more = small ? after - before : after - own;
    const senders = (this.#bySender.get(sender) ?? 0) - own;
    // One alone has room, however large it is.
    const full = held - own > 0 && held + more > room;
    const greedy = !small && senders > 0 && senders + after > this.#most * SENDER_ROOM;
    if (full || greedy) throw this.#refusal(greedy && !full);
    this.#add(-before, before, sender);
    this.#add(after, after, sender);
  }

  /** `size`: of the body, which says what room it is in. */
  #add(bytes: number, size: number, sender: string): void {
    if (size <= SMALL_BODY) {
      this.#small += bytes;
      return;
    }
    this.#large += bytes;
    const left = (this.#bySender.get(sender) ?? 0) + bytes;
    if (left > 0) this.#bySender.set(sender, left);
    else this.#bySender.delete(sender);
  }

  #refusal(own: boolean): KvantError {
    const whose = own ? 'this sender' : 'all senders';
    return new KvantError(
      'bodies-in-flight',
      `The server holds ${this.held} bytes of request bodies; there is no room for another large one of ${whose}.`,
      {
        kind: 'overloaded',
        fix: 'Send it again later, or send less at once; the server’s --body-memory sets the limit.',
        retryAfter: Math.ceil(this.#heldMs / 1000),
      },
    );
  }
}
