/**
 * The prefix caches of all cache groups side by side. A sequence goes on at a border where every group has what its layers
 * read there; it takes a chain of each.
 *
 * Inside a block (a copy of one that begins alike) a sequence goes on only where there is a single group: each group would
 * need the same part of a block, and all but the full one may have given it back.
 */

import type { BlockPool } from '../../kv/block-pool.js';
import type { ChainKeys, TokenSource } from '../../kv/prefix/chain-keys.js';
import { agreedBorder } from '../../kv/prefix/holders.js';
import { FoundChain, type PrefixCache } from '../../kv/prefix/prefix-cache.js';

/** What the caches have of a sequence's beginning: a chain of each group, all to the same border. */
export class FoundChains {
  /** By cache group. */
  readonly chains: readonly FoundChain[];
  /** With several groups: all that the full one has, of which the border may use less. */
  readonly reach = new FoundChain();

  constructor(groups: number) {
    this.chains = Array.from({ length: groups }, () => new FoundChain());
  }

  /** Blocks up to the border. */
  get length(): number {
    return this.chains[0]!.length;
  }
}

export class GroupCaches {
  /** By cache group. */
  readonly caches: readonly PrefixCache[];
  readonly pools: readonly BlockPool[];

  constructor(caches: readonly PrefixCache[], pools: readonly BlockPool[]) {
    this.caches = caches;
    this.pools = pools;
  }

  /** Another number whenever `find` or `findPart` might answer otherwise. */
  get version(): number {
    let version = 0;
    for (const cache of this.caches) version += cache.version;
    return version;
  }

  /** Brings chains up to date: without what has been evicted, and with what there is now, up to `most` blocks. */
  find(found: FoundChains, keys: ChainKeys, tokens: TokenSource, most: number): void {
    const { caches } = this;
    const { chains, reach } = found;
    if (caches.length === 1) {
      caches[0]!.find(chains[0]!, keys, tokens, most);
      return;
    }
    let end = most;
    if (!caches[0]!.gaps) {
      caches[0]!.find(reach, keys, tokens, most);
      end = reach.length;
    }
    const border = agreedBorder(caches.length, end, (group, least) =>
      caches[group]!.gaps ? caches[group]!.longest(keys, tokens, least) : least,
    );
    caches.forEach((cache, group) => {
      if (cache.gaps) cache.fill(chains[group]!, keys, tokens, border);
      else chains[group]!.copyOf(reach, border);
    });
  }

  /** See `PrefixCache.findPart`; −1 with several groups. */
  findPart({ chains }: FoundChains, tokens: TokenSource, limit: number): number {
    return this.caches.length > 1 ? -1 : this.caches[0]!.findPart(chains[0]!, tokens, limit);
  }

  /** Of the block that `findPart` found: how many of its tokens are the sequence's. */
  get agreed(): number {
    return this.caches[0]!.agreed;
  }

  /** The caller is one more owner of each block of chains that were found just now. */
  take({ chains }: FoundChains): void {
    this.caches.forEach((cache, group) => {
      cache.take(chains[group]!);
    });
  }
}
