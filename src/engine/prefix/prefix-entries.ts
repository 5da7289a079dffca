/**
 * What running sequences enter into the prefix cache: a block when the step that filled it has retired and the host knows its
 * tokens; the rest when they leave.
 */

import { ROOT } from '../../kv/prefix/prefix-cache.js';
import type { Sequence } from '../sequence.js';
import type { PrefixCaches } from './prefix-caches.js';
import type { SequencePrefix } from './sequence-prefix.js';

export class PrefixEntries {
  /** How often the cache was cleared: who came in before enters no more. */
  generation = 0;
  readonly #caches: PrefixCaches;

  constructor(caches: PrefixCaches) {
    this.#caches = caches;
  }

  /** Whether what a sequence computes may be kept. */
  keeps({ generation, tainted, converting }: SequencePrefix): boolean {
    return generation === this.generation && !tainted && !converting;
  }

  /** A step has retired that filled so many tokens of a sequence. */
  stored(sequence: Sequence, tokens: number): void {
    const prefix = sequence.prefix!;
    prefix.stored = tokens;
    if (sequence.phase !== 'running' || !this.keeps(prefix)) return;
    const full = this.#full(sequence);
    for (let group = 0; group < this.#caches.groups.length; group++) {
      const end = this.#caches.main.caches[group]!.endHeld(full);
      if (group !== this.#caches.stateGroup && end > prefix.published[group]!)
        this.#enter(sequence, group, end);
    }
  }

  /** Enters blocks of one group, up to `full`. */
  #enter(sequence: Sequence, group: number, full: number): void {
    const prefix = sequence.prefix!;
    const table = sequence.tables![group]!;
    const { gaps } = this.#caches.of(sequence.floatStart).caches[group]!;
    if (!gaps && prefix.overtaken) return;
    prefix.keys.extend(sequence, full);
    const { published } = prefix;
    for (; published[group]! < full; published[group]!++) {
      const at = published[group]!;
      // What it gave back is entered already, or never will be.
      if (at < table.front) continue;
      // With gaps nothing depends on what is before: it goes on with what is its own.
      if (this.#publish(sequence, group, at) === table.poolId(at) || gaps) continue;
      prefix.overtaken = true;
      return;
    }
  }

  /**
   * A float-start sequence that holds all tokens it may is about to be converted: blocks of the main pool that hold the first
   * ones already, converted. They are the caller's.
   */
  converted(sequence: Sequence): readonly number[] {
    const prefix = sequence.prefix!;
    if (!this.keeps(prefix)) return [];
    const { keys } = prefix;
    const chain = prefix.main.chains[0]!;
    const full = Math.floor(this.#caches.floatStartTokens / this.#caches.blockTokens);
    keys.extend(sequence, full);
    chain.clear();
    const cache = this.#caches.main.caches[0]!;
    cache.find(chain, keys, sequence, full);
    cache.take(chain);
    return chain.blocks;
  }

  /**
   * A row has given blocks of a group back, for want of a window that shows them. Where its prompt ends the history of a conversation
   * ends: the next turn may go on from there and not from what was written since, as templates strip thoughts. So of all it
   * gave back, what is needed there is the last to be evicted.
   */
  keepHistory(sequence: Sequence, group: number): void {
    const prefix = sequence.prefix!;
    const end = Math.floor(sequence.request.prompt.length / this.#caches.blockTokens);
    if (end === 0 || prefix.published[group]! < end || !this.keeps(prefix)) return;
    const cache = this.#caches.main.caches[group]!;
    const pool = this.#caches.main.pools[group]!;
    // The last tokens of a prompt open the answer, and may be others in the history: so the border before as well.
    for (let at = cache.firstHeld(end - 1); at < Math.min(end, sequence.tables![group]!.front); at++) {
      const block = cache.block(prefix.keys, at, sequence);
      if (block < 0 || pool.references(block) > 1) continue;
      pool.retain(block);
      pool.release(block);
    }
  }

  /** A sequence is about to clear its tables, and no step under way names it: enters all it has. */
  leave(sequence: Sequence): void {
    const prefix = sequence.prefix!;
    if (!this.keeps(prefix)) return;
    const full = this.#full(sequence);
    prefix.keys.extend(sequence, full);
    for (let group = 0; group < this.#caches.groups.length; group++)
      if (group !== this.#caches.stateGroup)
        this.#leaveGroup(sequence, group, this.#caches.main.caches[group]!.endHeld(full));
  }

  #leaveGroup(sequence: Sequence, group: number, full: number): void {
    const prefix = sequence.prefix!;
    const table = sequence.tables![group]!;
    const cache = this.#caches.of(table.floatStart).caches[group]!;
    // With gaps others may have entered what it computed too, all along.
    for (let at = cache.gaps ? table.front : prefix.published[group]!; at < full; at++) {
      const there = this.#publish(sequence, group, at);
      if (there < 0) return;
      // It lets go of what it computed in vain, and of the index's own in its stead: in order, as if it had used that.
      if (there !== table.poolId(at)) table.exchange(at, there);
    }
    const rest = this.#known(sequence) - full * this.#caches.blockTokens;
    // A part of a block is of use only where there is one group.
    if (this.#caches.groups.length > 1 || rest <= 0 || full === 0) return;
    cache.publishPart(table.poolId(full), table.poolId(full - 1), prefix.keys, full, sequence, rest);
  }

  #publish(sequence: Sequence, group: number, at: number): number {
    const { prefix, tables, floatStart } = sequence;
    const table = tables![group]!;
    const parent = at === 0 ? ROOT : table.poolId(at - 1);
    const cache = this.#caches.of(floatStart).caches[group]!;
    return cache.publish(table.poolId(at), parent, prefix!.keys, at, sequence);
  }

  /** Tokens at its beginning that are stored, and known to the host. */
  #known({ prefix, request, ids }: Sequence): number {
    return Math.min(prefix!.stored, request.prompt.length + ids.length);
  }

  #full(sequence: Sequence): number {
    return Math.floor(this.#known(sequence) / this.#caches.blockTokens);
  }
}
