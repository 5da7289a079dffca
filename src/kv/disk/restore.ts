/**
 * Brings blocks from the disk tier back into a prefix cache, ahead of a sequence's prefill: range by range, so that steps
 * go on in between. What was brought in is in the cache like any other prefix, whoever finds it first.
 *
 * Where chains may have gaps, only those blocks are read that the sequence needs to go on at the border it can reach.
 */

import type { KvPool } from '../../device/kv.js';
import type { BlockPool } from '../block-pool.js';
import type { ChainKeys, TokenSource } from '../prefix/chain-keys.js';
import { FoundChain, type PrefixCache } from '../prefix/prefix-cache.js';
import { type BlockKind, diskKey, diskKeys } from './disk-key.js';
import type { DiskTier } from './disk-tier.js';

export interface RestoreHost {
  readonly cache: PrefixCache;
  readonly pool: BlockPool;
  readonly device: KvPool;
  /** Id by which the device knows block 0 of the pool. */
  readonly firstId: number;
  readonly blockBytes: number;
  readonly tier: DiskTier;
  /** Which of the caches it is. */
  readonly kind: BlockKind;
  /** Blocks that are left to those who compute. */
  readonly reserve: number;
}

/** Bytes read at once, or one block; a range that takes longer than this is given up. */
const RANGE_BYTES = 8 * 2 ** 20;
const RANGE_MS = 1000;

/** Where chains may have gaps: the longest border, in blocks, that a sequence could go on at with what is on disk. */
export function farthestBorder(
  { cache, tier, kind }: Pick<RestoreHost, 'cache' | 'tier' | 'kind'>,
  keys: ChainKeys,
  tokens: TokenSource,
  most: number,
): number {
  return cache.longest(keys, tokens, most, (at) => tier.readable(diskKey(keys, at, kind)));
}

/** How many numbers from `list[from]` on follow one another. */
function runLength(list: readonly number[], from: number): number {
  let to = from + 1;
  while (to < list.length && list[to] === list[to - 1]! + 1) to++;
  return to - from;
}

export class Restore {
  readonly #host: RestoreHost;
  readonly #keys: ChainKeys;
  readonly #tokens: TokenSource;
  readonly #most: number;
  readonly #wanted: () => boolean;
  readonly #held: number[] = [];
  /** Blocks that the device is filling: they cannot be given back before it has. */
  #filling = 0;
  #dropped = false;

  /** Of a sequence whose first `most` blocks have keys. `wanted`: whether to go on, asked in between. */
  constructor(
    host: RestoreHost,
    keys: ChainKeys,
    tokens: TokenSource,
    most: number,
    wanted: () => boolean = () => true,
  ) {
    this.#wanted = wanted;
    this.#host = host;
    this.#keys = keys;
    this.#tokens = tokens;
    this.#most = most;
  }

  get dropped(): boolean {
    return this.#dropped;
  }

  /** Blocks that `drop` would make free. */
  get held(): number {
    return this.#dropped ? 0 : this.#held.length + this.#filling;
  }

  /** Blocks that are free as soon as the device has filled them, since it was dropped. */
  get leaving(): number {
    return this.#dropped ? this.#filling : 0;
  }

  /** Brings in no more, and gives back what it holds: others need it. */
  drop(): void {
    this.#dropped = true;
    this.#letGo();
  }

  /** Gives the blocks brought in. Fails as the device does. */
  async run(): Promise<number> {
    const { cache, tier, blockBytes } = this.#host;
    if (this.#dropped) return 0;
    const missing = cache.gaps ? this.#holdNeeded() : this.#holdFound();
    const before = this.#held.length;
    const range = Math.max(1, Math.floor(RANGE_BYTES / blockBytes));
    try {
      for (let next = 0; this.#goesOn() && next < missing.length; ) {
        const at = missing[next]!;
        const count = Math.min(range, runLength(missing, next), this.#room());
        if (count <= 0) break;
        const data = await tier.read(this.#blocks(at, count), blockBytes, at, RANGE_MS);
        // Others have gone on meanwhile.
        const fits = Math.min(data.length, this.#room());
        if (!this.#goesOn() || fits <= 0 || !(await this.#write(at, data.slice(0, fits)))) break;
        if (data.length < count) break;
        next += count;
      }
      return Math.max(0, this.#held.length - before);
    } finally {
      this.#letGo();
    }
  }

  /** Holds what the cache has of the beginning. Gives the blocks behind it that are on disk. */
  #holdFound(): number[] {
    const { cache, tier, kind } = this.#host;
    const chain = new FoundChain();
    cache.find(chain, this.#keys, this.#tokens, this.#most);
    cache.take(chain);
    this.#held.push(...chain.blocks);
    const count = tier.find(diskKeys(this.#keys, chain.length, this.#most, kind));
    return Array.from({ length: count }, (_, i) => chain.length + i);
  }

  /** Holds what the cache has of what is needed at the farthest border. Gives what else is: none, unless all has room. */
  #holdNeeded(): number[] {
    const { cache, pool } = this.#host;
    const border = farthestBorder(this.#host, this.#keys, this.#tokens, this.#most);
    const missing: number[] = [];
    for (let at = cache.firstHeld(border), end = cache.endHeld(border); at < end; at++) {
      const block = cache.block(this.#keys, at, this.#tokens);
      if (block < 0) {
        missing.push(at);
        continue;
      }
      pool.retain(block);
      this.#held.push(block);
    }
    return missing.length <= this.#room() ? missing : [];
  }

  #goesOn(): boolean {
    return !this.#dropped && this.#wanted();
  }

  /** The last block first. */
  #letGo(): void {
    const { pool } = this.#host;
    for (let block = this.#held.pop(); block !== undefined; block = this.#held.pop()) pool.release(block);
  }

  #room(): number {
    return this.#host.pool.available - this.#host.reserve;
  }

  #blocks(at: number, count: number): { key: string; tokens: Uint32Array }[] {
    const { cache, kind } = this.#host;
    const { blockTokens } = cache;
    return Array.from({ length: count }, (_, i) => ({
      key: diskKey(this.#keys, at + i, kind),
      tokens: Uint32Array.from(
        { length: blockTokens },
        (_, t) => this.#tokens.tokenAt((at + i) * blockTokens + t)!,
      ),
    }));
  }

  /** Enters blocks from number `at` on in the cache; false if it has no place for them. */
  async #write(at: number, data: readonly Uint8Array[]): Promise<boolean> {
    const { cache, pool, device, firstId } = this.#host;
    const blocks = data.map(() => pool.allocate());
    this.#filling = blocks.length;
    try {
      await device.write(
        Uint32Array.from(blocks, (block) => block + firstId),
        data,
      );
    } catch (error) {
      for (const block of blocks) pool.release(block);
      throw error;
    } finally {
      this.#filling = 0;
    }
    // What it was to follow may be gone.
    let fits = !this.#dropped;
    blocks.forEach((block, i) => {
      const parent = this.#held.at(-1) ?? -1;
      const entry = fits ? cache.publish(block, parent, this.#keys, at + i, this.#tokens) : -1;
      if (entry === block) {
        this.#held.push(block);
        return;
      }
      // Somebody has computed it meanwhile, or the cache was emptied.
      if (entry >= 0) {
        pool.retain(entry);
        this.#held.push(entry);
      } else fits = false;
      pool.release(block);
    });
    return fits;
  }
}
