/** A row as the prefix cache's tests drive it: it takes blocks, computes tokens, enters them and ends. */

import { BlockPool } from '../../src/kv/block-pool.js';
import { ChainKeys, chainRoot, tokensOf } from '../../src/kv/prefix/chain-keys.js';
import { FoundChain, PrefixCache, ROOT } from '../../src/kv/prefix/prefix-cache.js';

export const B = 16;
export const plain = chainRoot('m');

export function make(
  blocks: number,
  limit?: number,
  hash?: () => number,
): { pool: BlockPool; cache: PrefixCache } {
  const pool = new BlockPool(blocks);
  return { pool, cache: new PrefixCache({ pool, blockTokens: B, limit, hash }) };
}

export function keysOf(tokens: readonly number[], root = plain): ChainKeys {
  const keys = new ChainKeys(root, B);
  keys.extend(tokensOf(tokens), Math.floor(tokens.length / B));
  return keys;
}

/** A sequence as the engine treats one: adopts what there is, computes the rest, publishes, lets go. */
export class Row {
  readonly chain: number[];
  readonly keys: ChainKeys;
  readonly hit: number;
  readonly tokens: number[];
  published: number;
  readonly #pool: BlockPool;
  readonly #cache: PrefixCache;

  constructor({ pool, cache }: ReturnType<typeof make>, tokens: number[], root = plain) {
    this.#pool = pool;
    this.#cache = cache;
    this.tokens = tokens;
    this.keys = keysOf(tokens, root);
    const found = look(cache, tokens, root);
    cache.take(found);
    this.chain = [...found.blocks];
    this.hit = this.chain.length;
    this.published = this.hit;
    while (this.chain.length < Math.ceil(tokens.length / B)) this.chain.push(pool.allocate());
  }

  /** What a running row may do: enter what is its own. */
  publish(blocks = Math.floor(this.tokens.length / B)): void {
    while (this.published < blocks) {
      const at = this.published;
      const own = this.chain[at]!;
      const parent = this.chain[at - 1] ?? ROOT;
      if (this.#cache.publish(own, parent, this.keys, at, tokensOf(this.tokens)) !== own) return;
      this.published++;
    }
  }

  /** What a row does that ends: it takes over what others entered before it, then enters the rest. */
  end(): void {
    const full = Math.floor(this.tokens.length / B);
    for (let at = this.published; at < full; at++) {
      const own = this.chain[at]!;
      const parent = this.chain[at - 1] ?? ROOT;
      const there = this.#cache.publish(own, parent, this.keys, at, tokensOf(this.tokens));
      if (there < 0) break;
      if (there === own) continue;
      this.#pool.retain(there);
      this.#pool.release(own);
      this.chain[at] = there;
    }
    const rest = this.tokens.length % B;
    if (rest > 0 && full > 0)
      this.#cache.publishPart(
        this.chain[full]!,
        this.chain[full - 1]!,
        this.keys,
        full,
        tokensOf(this.tokens),
        rest,
      );
    this.drop();
  }

  drop(): void {
    for (const block of this.chain.splice(0).reverse()) this.#pool.release(block);
  }
}

/** What there is of a prompt: all but one token at most. */
export function look(cache: PrefixCache, tokens: readonly number[], root = plain): FoundChain {
  const found = new FoundChain();
  cache.find(found, keysOf(tokens, root), tokensOf(tokens), Math.floor((tokens.length - 1) / B));
  return found;
}

export const text = (length: number, seed = 0): number[] =>
  Array.from({ length }, (_, i) => (i * 31 + seed * 1009) % 997);
