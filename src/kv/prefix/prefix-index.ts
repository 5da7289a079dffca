/**
 * The index of a prefix cache: which block holds which tokens after which others. A tree of blocks, with a hash table over
 * the keys of full ones. A block is known by its id, so all of it lies in arrays of the pool's size: nothing is made
 * when an entry comes or goes.
 *
 * A full block is found by its parent and its key, and then its tokens are compared: two prompts that agree in a hash
 * and in nothing else do not meet. A block's children can be looked through for one that begins with given tokens.
 *
 * With `gaps`, for layers that look back so far only, a block may be taken out before its children. These are found by key
 * and tokens alone then: that what came before was the same too, the 128 bits of the chain say.
 */

import { KvantError } from '../../errors.js';
import { type ChainKeys, KEY_WORDS, type TokenSource } from './chain-keys.js';

/** The parent of a chain's first block. */
export const ROOT = -1;
const NONE = -1;
/** The parent of a block whose parent is not in the index. */
const GONE = -2;

/** Children of a block that are looked through: the newest. There may be thousands behind a common system prompt. */
const CHILDREN_TRIED = 16;

/** Where the hash table looks first. A function of the key that tests may replace by a bad one. */
export type KeyHash = (keys: KeyWords, block: number) => number;

/** Keys by their words: those of a chain, or of one block (as number 0). */
export interface KeyWords {
  word(block: number, i: number): number;
}

export class PrefixIndex {
  readonly blockTokens: number;
  readonly #gaps: boolean;
  #size = 0;
  readonly #hash: KeyHash;
  /** Tokens that count; 0: not in the index. */
  readonly #filled: Uint8Array;
  readonly #tokens: Int32Array;
  readonly #keys: Uint32Array;
  readonly #parent: Int32Array;
  /** Which block of its chain it is. */
  readonly #at: Int32Array;
  /** Tells an entry from others that have had its block. */
  readonly #serials: Uint32Array;
  #lastSerial = 0;
  readonly #buckets: Int32Array;
  readonly #next: Int32Array;
  readonly #bucketOf: Int32Array;
  // Children of a block, the newest first. Those of the root are not listed.
  readonly #child: Int32Array;
  readonly #older: Int32Array;
  readonly #newer: Int32Array;

  /** For blocks `0 … blocks − 1`. */
  constructor(
    blocks: number,
    blockTokens: number,
    hash: KeyHash = (keys, block) => keys.word(block, 0),
    gaps = false,
  ) {
    this.blockTokens = blockTokens;
    this.#gaps = gaps;
    this.#hash = hash;
    this.#filled = new Uint8Array(blocks);
    this.#tokens = new Int32Array(blocks * blockTokens);
    this.#keys = new Uint32Array(blocks * KEY_WORDS);
    this.#parent = new Int32Array(blocks).fill(NONE);
    this.#at = new Int32Array(blocks);
    this.#serials = new Uint32Array(blocks);
    this.#buckets = new Int32Array(2 ** Math.ceil(Math.log2(Math.max(2, blocks)))).fill(NONE);
    this.#next = new Int32Array(blocks).fill(NONE);
    this.#bucketOf = new Int32Array(blocks);
    this.#child = new Int32Array(blocks).fill(NONE);
    this.#older = new Int32Array(blocks).fill(NONE);
    this.#newer = new Int32Array(blocks).fill(NONE);
  }

  get size(): number {
    return this.#size;
  }

  /** Tokens of an entry, 0 for a block that is none. */
  filled(block: number): number {
    return this.#filled[block] ?? 0;
  }

  /** Number of the entry that a block is: no other entry, of this block or another, has it. */
  serial(block: number): number {
    return this.#serials[block]!;
  }

  hasChildren(block: number): boolean {
    return this.#child[block] !== NONE;
  }

  /** May have children: it is the root, or a full block of the index. With gaps, one that is gone may too. */
  extends(parent: number): boolean {
    return parent === ROOT || this.#filled[parent] === this.blockTokens || (this.#gaps && parent === GONE);
  }

  /** The full block that holds the tokens of block `at` of a chain behind `parent`, −1 if there is none. */
  find(parent: number, keys: ChainKeys, at: number, tokens: TokenSource): number {
    let block = this.#buckets[this.#bucket(keys, at)]!;
    for (; block !== NONE; block = this.#next[block]!)
      if (
        (this.#gaps || this.#parent[block] === parent) &&
        this.#sameKey(block, keys, at) &&
        this.#same(block, tokens, at)
      )
        return block;
    return NONE;
  }

  /** The key of a full block of the index, as that of block 0. Good until the block is taken out. */
  keyOf(block: number): KeyWords {
    return { word: (_, i) => this.#keys[block * KEY_WORDS + i]! };
  }

  /** With gaps: the full block of a key, −1 if there is none. Its tokens are not compared: 128 bits say which they are. */
  findKey(keys: KeyWords): number {
    let block = this.#buckets[this.#bucket(keys, 0)]!;
    while (block !== NONE && !this.#sameKey(block, keys, 0)) block = this.#next[block]!;
    return block;
  }

  /** A block of the index is one of a chain, as its key has it. */
  isOf(block: number, keys: ChainKeys): boolean {
    const at = this.#at[block]!;
    return this.#filled[block] === this.blockTokens && at < keys.count && this.#sameKey(block, keys, at);
  }

  /** With gaps: the parent for block `at` of a chain, as far as it is there. */
  parentOf(keys: ChainKeys, at: number, tokens: TokenSource): number {
    if (at === 0) return ROOT;
    const parent = this.find(GONE, keys, at - 1, tokens);
    return parent === NONE ? GONE : parent;
  }

  /**
   * Among the newest children of `parent` the one that agrees with the tokens from block `at` on for longest, −1 if none
   * does for at least `least`. How far, up to `limit` tokens, is left in `agreed`.
   */
  findPart(parent: number, at: number, tokens: TokenSource, least: number, limit: number): number {
    this.agreed = 0;
    if (parent < 0) return NONE;
    let best = NONE;
    let child = this.#child[parent]!;
    for (let tried = 0; child !== NONE && tried < CHILDREN_TRIED; tried++, child = this.#older[child]!) {
      const count = this.#agrees(child, tokens, at, Math.min(limit, this.#filled[child]!));
      if (count < least || count <= this.agreed) continue;
      best = child;
      this.agreed = count;
    }
    return best;
  }

  /** Of the block that `findPart` found. */
  agreed = 0;

  /** Enters a block that holds the first `filled` tokens of block `at` of a chain behind `parent`. */
  insert(
    block: number,
    parent: number,
    keys: ChainKeys,
    at: number,
    tokens: TokenSource,
    filled: number,
  ): void {
    if (this.#filled[block] !== 0 || !this.extends(parent)) throw broken(`Block ${block} cannot be entered.`);
    this.#filled[block] = filled;
    this.#parent[block] = parent;
    this.#at[block] = at;
    this.#serials[block] = ++this.#lastSerial;
    const first = at * this.blockTokens;
    for (let i = 0; i < filled; i++) this.#tokens[block * this.blockTokens + i] = tokens.tokenAt(first + i)!;
    this.#size++;
    this.#child[block] = NONE;
    if (filled === this.blockTokens) {
      for (let i = 0; i < KEY_WORDS; i++) this.#keys[block * KEY_WORDS + i] = keys.word(at, i);
      const bucket = this.#bucket(keys, at);
      this.#next[block] = this.#buckets[bucket]!;
      this.#buckets[bucket] = block;
      this.#bucketOf[block] = bucket;
    }
    if (parent < 0) return;
    const sibling = this.#child[parent]!;
    this.#older[block] = sibling;
    this.#newer[block] = NONE;
    if (sibling !== NONE) this.#newer[sibling] = block;
    this.#child[parent] = block;
  }

  /** Takes out a block that has no children; with gaps, any. */
  remove(block: number): void {
    const filled = this.filled(block);
    if (filled === 0 || (this.hasChildren(block) && !this.#gaps))
      throw broken(`Block ${block} cannot be taken out.`);
    if (filled === this.blockTokens) this.#unhash(block);
    for (let child = this.#child[block]!; child !== NONE; child = this.#older[child]!)
      this.#parent[child] = GONE;
    this.#child[block] = NONE;
    const parent = this.#parent[block]!;
    if (parent >= 0) {
      const older = this.#older[block]!;
      const newer = this.#newer[block]!;
      if (newer === NONE) this.#child[parent] = older;
      else this.#older[newer] = older;
      if (older !== NONE) this.#newer[older] = newer;
    }
    this.#filled[block] = 0;
    this.#size--;
  }

  /** Takes out everything. */
  clear(): void {
    this.#filled.fill(0);
    this.#buckets.fill(NONE);
    this.#child.fill(NONE);
    this.#size = 0;
  }

  #unhash(block: number): void {
    const next = this.#next[block]!;
    const bucket = this.#bucketOf[block]!;
    if (this.#buckets[bucket] === block) {
      this.#buckets[bucket] = next;
      return;
    }
    let before = this.#buckets[bucket]!;
    while (this.#next[before] !== block) before = this.#next[before]!;
    this.#next[before] = next;
  }

  #bucket(keys: KeyWords, at: number): number {
    return this.#hash(keys, at) & (this.#buckets.length - 1);
  }

  #sameKey(block: number, keys: KeyWords, at: number): boolean {
    const first = block * KEY_WORDS;
    for (let i = 0; i < KEY_WORDS; i++) if (this.#keys[first + i] !== keys.word(at, i)) return false;
    return true;
  }

  #same(block: number, tokens: TokenSource, at: number): boolean {
    return this.#agrees(block, tokens, at, this.blockTokens) === this.blockTokens;
  }

  /** How many of the first `limit` tokens of a block are those of block `at` of a chain. */
  #agrees(block: number, tokens: TokenSource, at: number, limit: number): number {
    const first = at * this.blockTokens;
    const own = block * this.blockTokens;
    let count = 0;
    while (count < limit && this.#tokens[own + count] === tokens.tokenAt(first + count)) count++;
    return count;
  }
}

function broken(message: string): KvantError {
  return new KvantError('prefix-cache-broken', message, {
    kind: 'internal',
    where: 'prefix cache',
    fix: 'This is a fault of kvant: report it with the log.',
  });
}
