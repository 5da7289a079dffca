/**
 * The prefix caches of both kinds, and what is known of them.
 *
 * With `floatStartTokens` = N there are two. Tokens before N were computed over floats, later ones over what the main pool
 * keeps; so blocks of the main pool serve only who takes at least N tokens from them, and float-start ones who takes fewer.
 */

import type { BlockPool } from '../../kv/block-pool.js';
import type { ChainKeys, TokenSource } from '../../kv/prefix/chain-keys.js';
import { PrefixCache } from '../../kv/prefix/prefix-cache.js';
import type { KeyWords } from '../../kv/prefix/prefix-index.js';
import { type PrefixLimits, prefixBlockBytes } from '../../kv/prefix/prefix-limits.js';
import type { GroupMemory } from '../group-memory.js';
import { GroupCaches } from './group-caches.js';

/** A full block is new in a cache. */
type OnPublish = (
  group: number,
  floatStart: boolean,
  block: number,
  keys: ChainKeys,
  at: number,
  tokens: TokenSource,
) => void;

export class PrefixCaches {
  readonly main: GroupCaches;
  /** The same with float-start blocks in group 0; null where there are none. */
  readonly floatStart: GroupCaches | null;
  readonly groups: readonly GroupMemory[];
  readonly blockTokens: number;
  /** N; 0 without float-start blocks. */
  readonly floatStartTokens: number;
  /** The group of recurrent layers, −1 for none. */
  readonly stateGroup: number;
  /** By cache group. */
  readonly blockBytes: readonly PrefixLimits[];

  /** `limits`: by cache group. `onPublish`: null where nobody is to be told. */
  constructor(
    groups: readonly GroupMemory[],
    limits: readonly PrefixLimits[] | undefined,
    floatStartTokens: number,
    onPublish: OnPublish | null,
  ) {
    const { blockTokens } = groups[0]!.pool.spec;
    this.groups = groups;
    this.blockTokens = blockTokens;
    this.floatStartTokens = floatStartTokens;
    this.stateGroup = groups.findIndex(({ state }) => state);
    this.blockBytes = groups.map(({ pool }) => prefixBlockBytes(pool.spec));
    const cache = (group: number, isFloatStart: boolean): PrefixCache => {
      const { blocks, floatStart, holder } = groups[group]!;
      return new PrefixCache({
        pool: isFloatStart ? floatStart! : blocks,
        blockTokens,
        limit: isFloatStart ? limits?.[group]?.floatStart : limits?.[group]?.blocks,
        holder,
        // Behind a full block that is gone no group can go on.
        ...(group === 0 && !isFloatStart && groups.length > 1 && holder.keepsAll
          ? { onEvict: (keys) => this.#dropBehind(keys) }
          : {}),
        ...(onPublish === null ? {} : { onPublish: (...args) => onPublish(group, isFloatStart, ...args) }),
      });
    };
    const main = groups.map((_, group) => cache(group, false));
    const pools = groups.map(({ blocks }) => blocks);
    this.main = new GroupCaches(main, pools);
    const floatStartPool = groups[0]!.floatStart;
    this.floatStart =
      floatStartPool === null
        ? null
        : new GroupCaches([cache(0, true), ...main.slice(1)], [floatStartPool, ...pools.slice(1)]);
  }

  /** Another number whenever a sequence might find something else. */
  get version(): number {
    return this.main.version + (this.floatStart?.version ?? 0);
  }

  of(floatStart: boolean): GroupCaches {
    return floatStart ? this.floatStart! : this.main;
  }

  /** The pool of group 0 that has the blocks of one kind. */
  poolOf(floatStart: boolean): BlockPool {
    return this.of(floatStart).pools[0]!;
  }

  /** Forgets all. */
  clear(): void {
    for (const { cache } of this.#sides()) cache.clear();
  }

  /** What they hold, all together. */
  totals() {
    const total = { evictions: 0, blocks: 0, bytes: 0, idleBytes: 0, maxBytes: 0 };
    for (const { cache, pool, bytes } of this.#sides()) {
      total.evictions += cache.evicted;
      total.blocks += cache.size;
      total.bytes += cache.size * bytes;
      total.idleBytes += pool.cold * bytes;
      total.maxBytes += cache.limit * bytes;
    }
    return total;
  }

  /** Every cache there is, with the pool it is of and the bytes of a block. */
  #sides(): { cache: PrefixCache; pool: BlockPool; bytes: number }[] {
    const { main, floatStart } = this;
    const sides = main.caches.map((cache, group) => ({
      cache,
      pool: main.pools[group]!,
      bytes: this.blockBytes[group]!.blocks,
    }));
    if (floatStart !== null)
      sides.push({
        cache: floatStart.caches[0]!,
        pool: floatStart.pools[0]!,
        bytes: this.blockBytes[0]!.floatStart,
      });
    return sides;
  }

  #dropBehind(keys: KeyWords): void {
    for (const cache of this.main.caches) if (cache.gaps) cache.drop(keys);
  }
}
