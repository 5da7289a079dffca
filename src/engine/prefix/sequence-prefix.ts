/** What the prefix cache has of one sequence, and what it has got of the cache. */

import type { ChainKeys } from '../../kv/prefix/chain-keys.js';
import { FoundChains } from './group-caches.js';

/** Whole blocks, in tokens. */
export interface SnapshotPoints {
  /** The last border before the last token of the prompt. */
  readonly promptEnd: number;
  readonly every: number;
}

export class SequencePrefix {
  readonly keys: ChainKeys;
  /** Blocks of the main pools that hold its beginning; and the same with float-start ones in group 0. */
  readonly main: FoundChains;
  readonly floatStart: FoundChains;

  // While it waits: what it would start with if it came in now.
  /** The one of the two that it would take. */
  takes: FoundChains;
  /** Version of the caches that the chains are of, and the sequence's tokens then. */
  version = -1;
  length = 0;
  /** Tokens it would not compute. */
  tokens = 0;
  /** By cache group: blocks of those that nobody holds: to the scheduler they are still to be had, so it must be told of them. */
  readonly cold: number[];
  /** A block of whose tokens only the first few are the sequence's own, to be copied behind the chain; −1 for none. */
  part = -1;
  /** A running row is about to enter what it would compute itself, or it is read from disk. */
  awaits = false;
  /** It is read from disk, or may be. */
  reads = false;

  // Of recurrent layers.
  /** Tokens at which its state is copied: where its prompt ends, where those before it went on otherwise, and every so many. */
  readonly #snapshots: SnapshotPoints | null;
  diverges = 0;
  /** Tokens at which it was copied last. */
  copiedAt = 0;

  /** How often it was restored from disk. */
  restores = 0;

  // While it runs.
  /** Tokens that retired steps have stored. */
  stored = 0;
  /** By cache group: blocks at the start of its table that are those of the index, or that it has entered. */
  readonly published: number[];
  /** Another row has entered what it computed too: until it ends, it enters no more into group 0. */
  overtaken = false;
  /** Its blocks are being converted. */
  converting = false;
  /** A step that worked on it failed: what it holds cannot be relied on. */
  tainted = false;
  /** The cache has been cleared so many times before it came in. */
  generation = 0;

  /** Prompt tokens that the cache had when it first came in; −1 before. */
  cached = -1;

  /** `keys`: of its prompt. `groups`: cache groups there are. `snapshots`: null without recurrent layers. */
  constructor(
    keys: ChainKeys,
    startsFloatStart: boolean,
    groups: number,
    snapshots: SnapshotPoints | null = null,
  ) {
    this.keys = keys;
    this.#snapshots = snapshots;
    this.main = new FoundChains(groups);
    this.floatStart = new FoundChains(groups);
    this.takes = startsFloatStart ? this.floatStart : this.main;
    this.cold = Array.from({ length: groups }, () => 0);
    this.published = Array.from({ length: groups }, () => 0);
  }

  /** Tokens, more than `computed`, at which the state of its sequence is to be copied next; Infinity for none. */
  nextSnapshot({ computed }: { readonly computed: number }): number {
    if (this.#snapshots === null) return Number.POSITIVE_INFINITY;
    const { promptEnd, every } = this.#snapshots;
    let next = (Math.floor(computed / every) + 1) * every;
    if (promptEnd > computed) next = Math.min(next, promptEnd);
    if (this.diverges > computed) next = Math.min(next, this.diverges);
    return next;
  }

  /** Its state is to be copied when it has taken in so many tokens. */
  isSnapshot(tokens: number): boolean {
    return tokens > 0 && this.nextSnapshot({ computed: tokens - 1 }) === tokens;
  }

  /** Back in the queue: it is looked up anew. */
  requeue(): void {
    this.version = -1;
    this.reads = false;
    this.diverges = 0;
    this.copiedAt = 0;
    this.restores = 0;
    this.tokens = 0;
    this.cold.fill(0);
    this.stored = 0;
    this.published.fill(0);
    this.overtaken = false;
  }

  /** Its blocks of group 0 become those of the main pool, so many of them such as the index has. */
  mature(known: number): void {
    this.converting = true;
    this.published[0] = known;
    this.overtaken = false;
  }
}
