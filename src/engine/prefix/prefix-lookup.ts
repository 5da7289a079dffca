/** What waiting sequences find in the prefix cache. */

import type { Sequence } from '../sequence.js';
import type { FoundChains } from './group-caches.js';
import type { PrefixCaches } from './prefix-caches.js';

export class PrefixLookup {
  readonly #caches: PrefixCaches;

  constructor(caches: PrefixCaches) {
    this.#caches = caches;
  }

  /** Tells a waiting sequence what it would start with if it came in now, besides `rows` that run. */
  look(sequence: Sequence, rows: number): void {
    const prefix = sequence.prefix!;
    const blockTokens = this.#caches.blockTokens;
    const version = this.#caches.version;
    // One token is left to be computed: the next one is drawn from it.
    const limit = sequence.length - 1;
    if (prefix.version !== version || prefix.length !== sequence.length) {
      prefix.version = version;
      prefix.length = sequence.length;
      prefix.keys.extend(sequence, Math.floor(sequence.length / blockTokens));
      this.#caches.main.find(prefix.main, prefix.keys, sequence, Math.floor(limit / blockTokens));
      const floatStartBlocks = Math.floor(this.#floatStartLimit(limit) / blockTokens);
      this.#caches.floatStart?.find(prefix.floatStart, prefix.keys, sequence, floatStartBlocks);
    }
    this.#take(sequence, rows, false, limit);
    if (this.#caches.floatStart === null || prefix.tokens >= this.#caches.floatStartTokens) return;
    this.#take(sequence, rows, true, this.#floatStartLimit(limit));
  }

  /** What it would start with if it took the chains of one kind. */
  #take(sequence: Sequence, rows: number, floatStart: boolean, limit: number): void {
    const prefix = sequence.prefix!;
    const caches = this.#caches.of(floatStart);
    const blockTokens = this.#caches.blockTokens;
    const found: FoundChains = floatStart ? prefix.floatStart : prefix.main;
    prefix.takes = found;
    for (let group = 0; group < found.chains.length; group++)
      prefix.cold[group] =
        group === this.#caches.stateGroup ? 0 : caches.caches[group]!.coldIn(found.chains[group]!);
    // Where others have gone on otherwise, somebody may again.
    const known = found.reach.length * blockTokens;
    prefix.diverges = found.reach.length > found.length ? known : 0;
    prefix.tokens = found.length * blockTokens;
    prefix.published.fill(found.length);
    prefix.part = -1;
    const part = caches.findPart(found, sequence, limit - prefix.tokens);
    if (part >= 0) {
      // It is held besides the copy until that is made: there must be room for both.
      const chain = found.chains[0]!;
      const pool = this.#caches.poolOf(floatStart);
      const cold = pool.references(part) === 1 ? 1 : 0;
      const needs =
        Math.min(Math.ceil(sequence.length / blockTokens) - chain.first, this.#caches.groups[0]!.rowBlocks) -
        chain.blocks.length +
        prefix.cold[0]! +
        cold;
      if (pool.available >= needs + rows) {
        prefix.part = part;
        prefix.cold[0]! += cold;
        prefix.tokens += caches.agreed;
      }
    }
    sequence.computed = prefix.tokens;
  }

  #floatStartLimit(limit: number): number {
    return Math.min(limit, this.#caches.floatStartTokens - 1);
  }
}
