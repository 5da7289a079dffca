/**
 * The prefix cache over one pool of blocks: keeps blocks that hold the beginnings of sequences, and finds them again.
 *
 * It is one more owner of a block (see BlockPool). Sequences that come in with the same beginning share its blocks, and so
 * nobody writes to a block that is in the index: a sequence that goes on inside one does so in a copy.
 *
 * Who holds a block of a chain holds the chain up to it, and lets go of the last block first. So a cold block has cold
 * blocks behind it only, and they are colder: the coldest block is always the end of a chain, and it alone is evicted.
 */

import type { BlockPool, Keeper } from './block-pool.js';
import type { ChainKeys, TokenSource } from './chain-keys.js';
import { type KeyHash, PrefixIndex, ROOT } from './prefix-index.js';

export { ROOT };

export interface PrefixCacheOptions {
  readonly pool: BlockPool;
  readonly blockTokens: number;
  /** Most blocks that are kept while no sequence holds them. Default: as many as there are. */
  readonly limit?: number | undefined;
  /** Told of every full block that is new to the index: the seam of a slower tier. The block is held by its publisher. */
  readonly onPublish?:
    | ((block: number, keys: ChainKeys, at: number, tokens: TokenSource) => void)
    | undefined;
  /** For tests: see PrefixIndex. */
  readonly hash?: KeyHash | undefined;
}

export class PrefixCache implements Keeper {
  readonly blockTokens: number;
  readonly limit: number;
  /** Blocks entered, and blocks that gave way to others, since the start. */
  inserted = 0;
  evicted = 0;
  readonly #pool: BlockPool;
  readonly #index: PrefixIndex;
  readonly #onPublish: PrefixCacheOptions['onPublish'];
  /** Shares of a block that are worth a copy. */
  readonly #leastPart: number;

  constructor({ pool, blockTokens, limit, onPublish, hash }: PrefixCacheOptions) {
    this.#pool = pool;
    this.blockTokens = blockTokens;
    this.limit = Math.min(limit ?? pool.size, pool.size);
    this.#index = new PrefixIndex(pool.size, blockTokens, hash);
    this.#onPublish = onPublish;
    this.#leastPart = blockTokens / 4;
    pool.keeper = this;
  }

  /** Blocks in the index, held by a sequence or not. */
  get size(): number {
    return this.#index.size;
  }

  /**
   * Adds to `chain`, the blocks of a sequence's beginning that the caller holds, those that follow, up to `blocks` in
   * all. The caller holds them from here on, and gives them back with `release`.
   */
  match(keys: ChainKeys, tokens: TokenSource, blocks: number, chain: number[]): void {
    let parent = chain.at(-1) ?? ROOT;
    while (chain.length < blocks) {
      const block = this.#index.find(parent, keys, chain.length, tokens);
      if (block < 0) return;
      this.#pool.retain(block);
      chain.push(block);
      parent = block;
    }
  }

  /** How many blocks `match` would find, held by nobody. */
  probe(keys: ChainKeys, tokens: TokenSource, blocks: number): number {
    let parent = ROOT;
    let count = 0;
    for (; count < blocks; count++) {
      parent = this.#index.find(parent, keys, count, tokens);
      if (parent < 0) break;
    }
    return count;
  }

  /**
   * A block that goes on as the sequence does behind `chain`, for at least a quarter of a block and at most `limit`
   * tokens: −1 if there is none. The caller holds it, and copies it. `agreed` says how many tokens of it are the sequence's.
   */
  matchPart(tokens: TokenSource, chain: readonly number[], limit: number): number {
    const parent = chain.at(-1) ?? ROOT;
    const block = this.#index.findPart(parent, chain.length, tokens, this.#leastPart, limit);
    if (block >= 0) this.#pool.retain(block);
    return block;
  }

  get agreed(): number {
    return this.#index.agreed;
  }

  /** Gives a chain back, its last block first, and empties the list. */
  release(chain: number[]): void {
    for (let block = chain.pop(); block !== undefined; block = chain.pop()) this.#pool.release(block);
  }

  /**
   * Enters a full block that the caller holds as block `at` of a chain behind `parent`, the block before it (ROOT for the
   * first). Answers with the block that the index has there: this one, or another that came before it, which is not
   * held for the caller; −1 if the parent is not in the index.
   */
  publish(block: number, parent: number, keys: ChainKeys, at: number, tokens: TokenSource): number {
    if (!this.#index.extends(parent)) return -1;
    const there = this.#index.find(parent, keys, at, tokens);
    if (there >= 0) return there;
    if (this.#pool.kept(block)) return -1;
    this.#index.insert(block, parent, keys, at, tokens, this.blockTokens);
    this.#pool.keep(block);
    this.inserted++;
    this.#onPublish?.(block, keys, at, tokens);
    return block;
  }

  /**
   * Enters the last block of a sequence, of which only the first `filled` tokens count: it will be copied, never shared.
   * False if that would bring nothing new.
   */
  publishPart(
    block: number,
    parent: number,
    keys: ChainKeys,
    at: number,
    tokens: TokenSource,
    filled: number,
  ): boolean {
    if (parent === ROOT || filled < this.#leastPart || !this.#index.extends(parent)) return false;
    if (this.#index.findPart(parent, at, tokens, filled, filled) >= 0 || this.#pool.kept(block)) return false;
    this.#index.insert(block, parent, keys, at, tokens, filled);
    this.#pool.keep(block);
    this.inserted++;
    return true;
  }

  /** A block is in the index, and is full. */
  has(block: number): boolean {
    return this.#pool.kept(block) && this.#index.filled(block) === this.blockTokens;
  }

  evict(block: number): void {
    this.#index.remove(block);
    this.evicted++;
  }

  /** Forgets everything: blocks that no sequence holds are free. */
  clear(): void {
    this.#index.clear();
    for (let block = 0; block < this.#pool.size; block++)
      if (this.#pool.kept(block)) this.#pool.unkeep(block);
  }
}
