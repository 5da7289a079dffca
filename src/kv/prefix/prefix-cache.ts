/**
 * The prefix cache over one pool of blocks: keeps blocks that hold the beginnings of sequences, and finds them again.
 *
 * It is one more owner of a block (see BlockPool). Sequences that come in with the same beginning share its blocks, and so
 * nobody writes to a block that is in the index: a sequence that goes on inside one does so in a copy.
 *
 * Who holds a block of a chain holds the chain up to it, and lets go of the last block first. So a cold block has cold
 * blocks behind it only, and they are colder: the coldest block is always the end of a chain, and it alone is evicted.
 *
 * It is of one cache group (groups.ts). A chain is found up to the longest border at which the group's layers can go on
 * (holders.ts). Where they do not see everything, a sequence holds only what they still read, and any block may be evicted: chains
 * have gaps then, or have lost their front.
 */

import type { BlockPool, Keeper } from '../block-pool.js';
import type { ChainKeys, TokenSource } from './chain-keys.js';
import type { LayerHolder } from './holders.js';
import { type KeyHash, type KeyWords, PrefixIndex, ROOT } from './prefix-index.js';

export { ROOT };

/**
 * The beginning of a sequence as far as the cache has it. It holds no block: one may be evicted, the last first, until
 * the chain is taken.
 */
export class FoundChain {
  /** Number of its first block in the chain: what is before is not needed. */
  first = 0;
  readonly blocks: number[] = [];
  /** Of the entries found, so that another one in the same block is not taken for it. */
  readonly serials: number[] = [];
  /** With gaps: entries that the cache had taken in when it was looked for, up to which block, and the holders' version. */
  looked = -1;
  most = -1;
  holders = 0;

  /** Becomes the first `border` blocks of another chain, which begins at 0. */
  copyOf(other: FoundChain, border: number): void {
    this.clear();
    for (let at = 0; at < border; at++) {
      this.blocks.push(other.blocks[at]!);
      this.serials.push(other.serials[at]!);
    }
  }

  /** Blocks up to the border that it goes to. */
  get length(): number {
    return this.first + this.blocks.length;
  }

  /** Its last block, ROOT for an empty one. */
  get last(): number {
    return this.blocks.at(-1) ?? ROOT;
  }

  clear(): void {
    this.first = 0;
    this.blocks.length = 0;
    this.serials.length = 0;
    this.looked = -1;
  }
}

/** So many entries may be new before a chain is looked for anew. */
const NEWEST = 256;

export interface PrefixCacheOptions {
  readonly pool: BlockPool;
  readonly blockTokens: number;
  /** Most blocks that are kept while no sequence holds them. Default: as many as there are. */
  readonly limit?: number | undefined;
  /** Told of every full block that is new to the index: the seam of a slower tier. The block is held by its publisher. */
  readonly onPublish?:
    | ((block: number, keys: ChainKeys, at: number, tokens: TokenSource) => void)
    | undefined;
  /** Says from where on a sequence can go on. Default: layers that see everything. */
  readonly holder?: LayerHolder | undefined;
  /** Told of a full block before it is evicted, by its key: blocks of other groups may be of no use without it. */
  readonly onEvict?: ((keys: KeyWords) => void) | undefined;
  /** For tests: see PrefixIndex. */
  readonly hash?: KeyHash | undefined;
}

export class PrefixCache implements Keeper {
  readonly blockTokens: number;
  readonly limit: number;
  /** Blocks entered, and blocks that gave way to others, since the start. */
  inserted = 0;
  evicted = 0;
  #cleared = 0;
  readonly #pool: BlockPool;
  readonly #index: PrefixIndex;
  readonly #onPublish: PrefixCacheOptions['onPublish'];
  /** Null where all layers see everything. */
  readonly #holder: LayerHolder | null;
  readonly #onEvict: PrefixCacheOptions['onEvict'];
  /** Chains may have gaps: what its blocks hold is of use without those before them. */
  readonly gaps: boolean;
  /** The blocks entered last, in turn. */
  readonly #newest = new Int32Array(NEWEST);
  /** Tokens that are worth the copy of a block. */
  readonly #leastPart: number;

  constructor({ pool, blockTokens, limit, onPublish, onEvict, holder, hash }: PrefixCacheOptions) {
    this.#pool = pool;
    this.#holder = holder === undefined || holder.keepsAll ? null : holder;
    this.gaps = this.#holder !== null;
    this.#onEvict = onEvict;
    this.blockTokens = blockTokens;
    this.limit = Math.min(limit ?? pool.size, pool.size);
    this.#index = new PrefixIndex(pool.size, blockTokens, hash, this.gaps);
    this.#onPublish = onPublish;
    this.#leastPart = blockTokens / 4;
    pool.keeper = this;
  }

  /** Blocks in the index, held by a sequence or not. */
  get size(): number {
    return this.#index.size;
  }

  /** Number of the entry that a block is, and no other ever was; 0 for a block that is none. */
  serial(block: number): number {
    return this.#index.filled(block) > 0 ? this.#index.serial(block) : 0;
  }

  /** Another number whenever `find` or `findPart` might answer otherwise. */
  get version(): number {
    return this.inserted + this.evicted + this.#cleared + (this.#holder?.version ?? 0);
  }

  /** First block of a chain that is needed to go on at a border, in blocks. */
  firstHeld(border: number): number {
    return this.#holder?.firstHeld(border * this.blockTokens) ?? 0;
  }

  /** Behind the last block of a chain that is needed at a border. */
  endHeld(border: number): number {
    return this.#holder?.endHeld?.(border) ?? border;
  }

  /** Brings a chain up to date: without what has been evicted, and with what there is now, up to `blocks` in all. */
  find(chain: FoundChain, keys: ChainKeys, tokens: TokenSource, blocks: number): void {
    if (this.gaps) {
      if (!this.#isCurrent(chain, keys, blocks))
        this.fill(chain, keys, tokens, this.longest(keys, tokens, blocks));
      chain.looked = this.inserted;
      chain.most = blocks;
      chain.holders = this.#holder!.version;
      return;
    }
    const { blocks: found, serials } = chain;
    // What follows an entry goes before it does: if the last is there, all are.
    while (found.length > 0 && !this.#is(chain.last, serials.at(-1)!)) {
      found.pop();
      serials.pop();
    }
    while (found.length < blocks) {
      const block = this.#index.find(chain.last, keys, found.length, tokens);
      if (block < 0) break;
      found.push(block);
      serials.push(this.#index.serial(block));
    }
  }

  /** With gaps: the longest border, in blocks, with what is here and what `elsewhere` has besides. */
  longest(
    keys: ChainKeys,
    tokens: TokenSource,
    most: number,
    elsewhere: (at: number) => boolean = () => false,
  ): number {
    return this.#holder!.longest(
      { keys, has: (at) => this.block(keys, at, tokens) >= 0 || elsewhere(at) },
      most,
    );
  }

  /** With gaps: block `at` of a chain, −1 if it is not here. */
  block(keys: ChainKeys, at: number, tokens: TokenSource): number {
    return this.#index.find(ROOT, keys, at, tokens);
  }

  /** With gaps: a look would find what it found last time. All of that is there, and nothing of the chain is new. */
  #isCurrent(chain: FoundChain, keys: ChainKeys, most: number): boolean {
    if (chain.looked < 0 || chain.most !== most || chain.holders !== this.#holder!.version) return false;
    if (this.inserted - chain.looked > NEWEST) return false;
    for (let i = chain.looked; i < this.inserted; i++)
      if (this.#index.isOf(this.#newest[i % NEWEST]!, keys)) return false;
    for (let i = 0; i < chain.blocks.length; i++)
      if (!this.#is(chain.blocks[i]!, chain.serials[i]!)) return false;
    return true;
  }

  /** With gaps: what a sequence needs at a border that `longest` gave. */
  fill(chain: FoundChain, keys: ChainKeys, tokens: TokenSource, border: number): void {
    chain.clear();
    chain.first = Math.min(border, this.firstHeld(border));
    for (let at = chain.first, end = this.endHeld(border); at < end; at++) {
      const block = this.block(keys, at, tokens);
      chain.blocks.push(block);
      chain.serials.push(this.#index.serial(block));
    }
  }

  /**
   * A block that goes on as the sequence does behind a chain, for at least a quarter of a block and at most `limit`
   * tokens: −1 if there is none, or a layer cannot go on there. It is to be copied. `agreed` says how many tokens of it are the sequence's.
   */
  findPart(chain: FoundChain, tokens: TokenSource, limit: number): number {
    if (this.#holder?.bordersOnly) return -1;
    return this.#index.findPart(chain.last, chain.length, tokens, this.#leastPart, limit);
  }

  get agreed(): number {
    return this.#index.agreed;
  }

  /** Blocks of a chain that nobody holds: they are among those that can be had, until the chain is taken. */
  coldIn({ blocks }: FoundChain): number {
    if (this.gaps) {
      let cold = 0;
      for (const block of blocks) if (this.#pool.references(block) === 1) cold++;
      return cold;
    }
    // They are its last ones.
    let held = 0;
    for (let end = blocks.length; held < end; ) {
      const middle = (held + end) >> 1;
      if (this.#pool.references(blocks[middle]!) === 1) end = middle;
      else held = middle + 1;
    }
    return blocks.length - held;
  }

  /** The caller is one more owner of each block of a chain that was found just now. */
  take({ blocks }: FoundChain): void {
    for (const block of blocks) this.#pool.retain(block);
  }

  /**
   * Enters a full block that the caller holds as block `at` of a chain behind `parent`, the block before it (ROOT for the
   * first). Answers with the block that the index has there: this one, or another that came before it, which is not
   * held for the caller; −1 if the parent is not in the index. With gaps the parent is looked for by its key.
   */
  publish(block: number, before: number, keys: ChainKeys, at: number, tokens: TokenSource): number {
    const parent = this.gaps ? this.#index.parentOf(keys, at, tokens) : before;
    if (!this.#index.extends(parent)) return -1;
    const there = this.#index.find(parent, keys, at, tokens);
    if (there >= 0) return there;
    this.#enter(block, parent, keys, at, tokens, this.blockTokens);
    this.#onPublish?.(block, keys, at, tokens);
    return block;
  }

  /**
   * Enters the last block of a sequence, of which only the first `filled` tokens count: it will be copied, never shared.
   * False if that would bring nothing new.
   */
  publishPart(
    block: number,
    before: number,
    keys: ChainKeys,
    at: number,
    tokens: TokenSource,
    filled: number,
  ): boolean {
    const parent = this.gaps ? this.#index.parentOf(keys, at, tokens) : before;
    if (parent < 0 || filled < this.#leastPart || !this.#index.extends(parent)) return false;
    if (this.#index.findPart(parent, at, tokens, filled, filled) >= 0) return false;
    this.#enter(block, parent, keys, at, tokens, filled);
    return true;
  }

  evict(block: number): void {
    if (this.#onEvict !== undefined && this.#index.filled(block) === this.blockTokens)
      this.#onEvict(this.#index.keyOf(block));
    this.#index.remove(block);
    this.evicted++;
  }

  /** With gaps: frees the block of a key, if it is here and no sequence holds it. */
  drop(keys: KeyWords): void {
    const block = this.#index.findKey(keys);
    if (block < 0 || this.#pool.references(block) > 1) return;
    this.evict(block);
    this.#pool.unkeep(block);
  }

  /** With gaps: a block of the index is one no more, and the caller, who holds it besides the index, may write to it. */
  forget(block: number): void {
    this.evict(block);
    this.#pool.unkeep(block);
  }

  /** Forgets everything: blocks that no sequence holds are free. */
  clear(): void {
    this.#index.clear();
    this.#cleared++;
    for (let block = 0; block < this.#pool.size; block++)
      if (this.#pool.kept(block)) this.#pool.unkeep(block);
  }

  #enter(
    block: number,
    parent: number,
    keys: ChainKeys,
    at: number,
    tokens: TokenSource,
    filled: number,
  ): void {
    this.#index.insert(block, parent, keys, at, tokens, filled);
    this.#pool.keep(block);
    this.#newest[this.inserted++ % NEWEST] = block;
  }

  #is(block: number, serial: number): boolean {
    return this.#index.filled(block) > 0 && this.#index.serial(block) === serial;
  }
}
