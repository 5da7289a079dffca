/**
 * Chain keys: what a block of the KV cache is known by. The key of a block says which tokens it holds, at which
 * positions, after which tokens, and in which kind of cache, for each key is made from the one before it.
 *
 * The chain is SHA-256's own: the root is the chaining value after what the cache is of (model, formats, salt, adapter),
 * and each block's tokens, one 32-bit word each, are taken in by one application of the compression function for
 * every 16 of them. A key is the first 128 bits of the chaining value behind its block.
 */

import { SHA256_START, SHA256_WORDS, sha256Compress } from './sha256.js';

/** 32-bit words of a key. */
export const KEY_WORDS = 4;

/** Where tokens are read: a sequence, or a list of them. */
export interface TokenSource {
  /** The id at a position, undefined for one that is not known. */
  tokenAt(position: number): number | undefined;
  /**
   * What the keys of tokens `[from, to)` depend on besides their ids, in whole blocks of 16 words: digests of pictures. Absent or null:
   * nothing.
   */
  wordsIn?(from: number, to: number): Uint32Array | null;
}

/** A list of ids as a source. */
export function tokensOf(ids: ArrayLike<number>): TokenSource {
  return { tokenAt: (position) => ids[position] };
}

/**
 * Where chains begin, eight words: different for every identity (what the bytes of a block depend on besides its tokens), for
 * every salt, and for every adapter that the tokens went through (`adapter`: a digest of its weights, as its index in a step may be another one's
 * later). Chains of different roots never share a key.
 */
export function chainRoot(
  identity: string,
  salt: string | null = null,
  adapter: string | null = null,
): Uint32Array<ArrayBuffer> {
  // JSON keeps them apart, whatever they hold; the length keeps padding from being content.
  const text = JSON.stringify(adapter === null ? [identity, salt] : [identity, salt, adapter]);
  const bytes = new TextEncoder().encode(text);
  const data = new DataView(new ArrayBuffer(Math.ceil((bytes.length + 4) / 64) * 64));
  data.setUint32(0, bytes.length);
  bytes.forEach((byte, i) => {
    data.setUint8(i + 4, byte);
  });
  const state = Uint32Array.from(SHA256_START);
  const words = new Uint32Array(SHA256_WORDS);
  for (let at = 0; at < data.byteLength; at += 64) {
    for (let i = 0; i < SHA256_WORDS; i++) words[i] = data.getUint32(at + 4 * i);
    sha256Compress(state, words);
  }
  return state;
}

const scratch = new Uint32Array(SHA256_WORDS);

/** The keys of one sequence's blocks, in order. Grows with what is known of the sequence. */
export class ChainKeys {
  readonly blockTokens: number;
  /** The chaining value behind the last block. */
  readonly #state: Uint32Array;
  #words: Uint32Array;
  #count = 0;

  constructor(root: Uint32Array, blockTokens: number) {
    this.#state = root.slice();
    this.blockTokens = blockTokens;
    this.#words = new Uint32Array(KEY_WORDS * 8);
  }

  /** Blocks that have keys. */
  get count(): number {
    return this.#count;
  }

  /** Another chain with the same beginning. */
  fork(): ChainKeys {
    const other = new ChainKeys(this.#state, this.blockTokens);
    other.#words = this.#words.slice();
    other.#count = this.#count;
    return other;
  }

  /** Makes the keys of the first `blocks` blocks, all of whose tokens are known. */
  extend(tokens: TokenSource, blocks: number): void {
    if (blocks * KEY_WORDS > this.#words.length) {
      const words = new Uint32Array(KEY_WORDS * Math.max(blocks, this.#count * 2));
      words.set(this.#words);
      this.#words = words;
    }
    for (; this.#count < blocks; this.#count++) {
      const first = this.#count * this.blockTokens;
      const more = tokens.wordsIn?.(first, first + this.blockTokens) ?? null;
      for (let at = 0; more !== null && at < more.length; at += SHA256_WORDS) {
        for (let i = 0; i < SHA256_WORDS; i++) scratch[i] = more[at + i]!;
        sha256Compress(this.#state, scratch);
      }
      for (let at = 0; at < this.blockTokens; at += SHA256_WORDS) {
        for (let i = 0; i < SHA256_WORDS; i++) scratch[i] = tokens.tokenAt(first + at + i)!;
        sha256Compress(this.#state, scratch);
      }
      for (let i = 0; i < KEY_WORDS; i++) this.#words[this.#count * KEY_WORDS + i] = this.#state[i]!;
    }
  }

  /** Word `i` of the key of a block. */
  word(block: number, i: number): number {
    return this.#words[block * KEY_WORDS + i]!;
  }

  /** Both chains have this block, and it has the same key. */
  sameAt(block: number, other: ChainKeys): boolean {
    if (block >= this.#count || block >= other.#count) return false;
    const at = block * KEY_WORDS;
    for (let i = 0; i < KEY_WORDS; i++) if (this.#words[at + i] !== other.#words[at + i]) return false;
    return true;
  }

  /** The key of a block as 32 hexadecimal digits. */
  hex(block: number): string {
    let text = '';
    for (let i = 0; i < KEY_WORDS; i++) text += this.word(block, i).toString(16).padStart(8, '0');
    return text;
  }
}
