/** The prefix cache where all layers slide: chains that lose any of their blocks. */
import { describe, expect, it } from 'vitest';
import { BlockPool } from '../block-pool.js';
import { ChainKeys, chainRoot, tokensOf } from './chain-keys.js';
import { WindowHolder } from './holders.js';
import { FoundChain, PrefixCache, ROOT } from './prefix-cache.js';

const B = 16;
/** [b − 32, b): two blocks before each border. */
const WINDOW = 33;
const root = chainRoot('m');

function make(blocks: number, limit?: number, hash?: () => number): { pool: BlockPool; cache: PrefixCache } {
  const pool = new BlockPool(blocks);
  const holder = new WindowHolder(WINDOW, B);
  return { pool, cache: new PrefixCache({ pool, blockTokens: B, limit, holder, hash }) };
}

const text = (length: number, seed = 0): number[] =>
  Array.from({ length }, (_, i) => (i * 31 + seed * 1009) % 997);

function keysOf(tokens: readonly number[]): ChainKeys {
  const keys = new ChainKeys(root, B);
  keys.extend(tokensOf(tokens), Math.floor(tokens.length / B));
  return keys;
}

type Made = ReturnType<typeof make>;

/** Enters blocks `from` to `to` of a text, and lets go of them one by one, the first one first, as a row goes on. */
function enter(
  { pool, cache }: Made,
  tokens: readonly number[],
  from = 0,
  to = Math.floor(tokens.length / B),
): number[] {
  const keys = keysOf(tokens);
  const blocks: number[] = [];
  for (let at = from; at < to; at++) {
    const block = pool.allocate();
    const there = cache.publish(block, ROOT, keys, at, tokensOf(tokens));
    blocks.push(there);
    if (there !== block) pool.retain(there);
    pool.release(block);
    if (there !== block) pool.release(there);
  }
  return blocks;
}

function look(
  { cache }: Made,
  tokens: readonly number[],
  most = Math.floor((tokens.length - 1) / B),
): FoundChain {
  const chain = new FoundChain();
  cache.find(chain, keysOf(tokens), tokensOf(tokens), most);
  return chain;
}

describe('a prefix cache with gaps', () => {
  it('finds the longest border whose window is there, and takes no more than that', () => {
    const all = make(32);
    const tokens = text(8 * B + 1);
    const blocks = enter(all, tokens);
    const chain = look(all, tokens);
    expect([chain.length, chain.first, chain.blocks]).toEqual([8, 6, blocks.slice(6)]);
    expect(look(all, tokens, 5).blocks).toEqual(blocks.slice(3, 5));
    expect(look(all, tokens, 1)).toMatchObject({ first: 0, length: 1 });
    expect(all.cache.coldIn(chain)).toBe(2);
    all.cache.take(chain);
    expect([all.cache.coldIn(chain), all.pool.held]).toEqual([0, 2]);
    for (const block of chain.blocks) all.pool.release(block);
    // Another text shares what it begins with.
    const other = [...tokens.slice(0, 70), ...text(60, 3)];
    expect(look(all, other)).toMatchObject({ first: 2, length: 4 });
  });

  it('evicts whatever was used least recently, and goes on behind it', () => {
    const all = make(8);
    const tokens = text(8 * B + 1);
    enter(all, tokens);
    // The front goes first.
    all.pool.release(all.pool.allocate());
    enter(all, text(2 * B, 5));
    expect(all.cache.evicted).toBe(2);
    expect(look(all, tokens)).toMatchObject({ first: 6, length: 8 });
    expect(look(all, tokens, 4)).toMatchObject({ first: 2, length: 4 });
    expect(look(all, tokens, 3).length).toBe(0);
    // What is used again is warm: the others go before it.
    const chain = look(all, tokens, 4);
    all.cache.take(chain);
    for (const block of chain.blocks) all.pool.release(block);
    enter(all, text(4 * B, 6));
    expect(look(all, tokens, 4).length).toBe(4);
    expect(look(all, tokens).length).toBe(4);
  });

  it('copies parts of blocks behind the block before, as long as that is there', () => {
    const all = make(6);
    const tokens = text(3 * B + 10);
    enter(all, tokens);
    const part = all.pool.allocate();
    const keys = keysOf(tokens);
    expect(all.cache.publishPart(part, ROOT, keys, 3, tokensOf(tokens), 10)).toBe(true);
    all.pool.release(part);
    const next = [...tokens.slice(0, -1), 1, 2, 3];
    expect(all.cache.findPart(look(all, next), tokensOf(next), 16)).toBe(part);
    expect(all.cache.agreed).toBe(9);
    // Three blocks of another text push out the chain: its end alone is of no use.
    enter(all, text(5 * B, 7));
    expect(look(all, next).length).toBe(0);
    expect(all.cache.findPart(look(all, next), tokensOf(next), 16)).toBe(-1);
    // What has no block before it is not entered as a part.
    const lone = all.pool.allocate();
    expect(all.cache.publishPart(lone, ROOT, keys, 3, tokensOf(tokens), 10)).toBe(false);
    all.pool.release(lone);
    all.cache.clear();
    all.pool.check(0);
  });

  it('finds nothing that was said elsewhere, whatever the hash', () => {
    const all = make(32, undefined, () => 7);
    enter(all, text(6 * B));
    const moved = [...text(B, 9), ...text(6 * B)];
    expect(look(all, moved).length).toBe(0);
    expect(look(all, [...text(6 * B), 1]).length).toBe(6);
  });

  it('agrees with a list of what is there, over random texts and evictions', () => {
    let seed = 3;
    const random = (): number => {
      seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0;
      return (seed >>> 8) / 2 ** 24;
    };
    for (const limit of [24, 10]) {
      const all = make(24, limit);
      /** Which text has which of its blocks there, by block. */
      const there = new Map<number, string>();
      /** Looked for again and again, as a waiting sequence does: before each plan. */
      const waiting = Array.from({ length: 12 }, (_, i) => {
        const own = [...text((i % 4) * B, 1), ...text(8 * B + 1 - (i % 4) * B, 2 + (i % 3))];
        return { own, keys: keysOf(own), chain: new FoundChain() };
      });
      const name = (tokens: readonly number[], at: number): string => tokens.slice(0, (at + 1) * B).join();
      for (let round = 0; round < 2000; round++) {
        // Few texts, that branch.
        const branch = Math.floor(random() * 3);
        const at = Math.floor(random() * 4) * B;
        const tokens = [...text(at, 1), ...text(8 * B + 1 - at, 2 + branch)];
        const from = Math.floor(random() * 8);
        const to = Math.min(8, from + 1 + Math.floor(random() * 4));
        enter(all, tokens, from, to).forEach((block, i) => {
          there.set(block, name(tokens, from + i));
        });
        const alive = new Set<string>();
        for (const [block, what] of there)
          if (all.pool.kept(block) && all.cache.serial(block) > 0) alive.add(what);
        const has = (b: number): boolean => alive.has(name(tokens, b));
        let border = 8;
        while (border > 0 && !(has(border - 1) && (border < 2 || has(border - 2)))) border--;
        const chain = look(all, tokens);
        expect(chain.length).toBe(border);
        for (const { own, keys, chain: kept } of waiting) {
          if (random() < 0.3) continue;
          all.cache.find(kept, keys, tokensOf(own), 8);
          const fresh = look(all, own);
          expect([kept.first, kept.blocks, kept.serials]).toEqual([fresh.first, fresh.blocks, fresh.serials]);
        }
        chain.blocks.forEach((block, i) => {
          expect(there.get(block)).toBe(name(tokens, chain.first + i));
        });
        expect(all.cache.size).toBe(alive.size);
        expect(all.pool.cold).toBeLessThanOrEqual(limit);
      }
      expect(all.cache.evicted).toBeGreaterThan(500);
      all.cache.clear();
      all.pool.check(0);
    }
  });
});
