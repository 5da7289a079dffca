import { describe, expect, it } from 'vitest';
import { B, keysOf, look, make, plain, Row, text } from '../../../test/setup/prefix-row.js';
import { BlockPool } from '../block-pool.js';
import { type ChainKeys, chainRoot, tokensOf } from './chain-keys.js';
import { FoundChain, PrefixCache, ROOT } from './prefix-cache.js';

describe('PrefixCache', () => {
  it('finds what was published, as far as the tokens agree, and no further', () => {
    const all = make(32);
    const first = text(5 * B + 3);
    new Row(all, first).end();
    expect(all.pool.held).toBe(0);
    expect(all.cache.size).toBe(5);
    for (let at = 0; at < 5 * B; at++) {
      const other = first.map((id, i) => (i === at ? id + 1 : id));
      const row = new Row(all, other);
      expect(row.hit).toBe(Math.floor(at / B));
      row.drop();
    }
    const row = new Row(all, first);
    expect(row.hit).toBe(5);
    row.drop();
    all.pool.check(5);
  });

  it('always leaves one token to compute', () => {
    const all = make(8);
    new Row(all, text(2 * B)).end();
    const same = new Row(all, text(2 * B));
    expect(same.hit).toBe(1);
    same.drop();
    const longer = new Row(all, [...text(2 * B), 1]);
    expect(longer.hit).toBe(2);
    longer.drop();
  });

  it('roots of other models, formats and salts do not meet', () => {
    const all = make(16);
    new Row(all, text(40)).end();
    expect(new Row(all, text(40), chainRoot('m', 'tenant')).hit).toBe(0);
    expect(new Row(all, text(40), chainRoot('other')).hit).toBe(0);
    expect(new Row(all, text(40)).hit).toBe(2);
  });

  it('compares the tokens when keys agree', () => {
    const { pool, cache } = make(8);
    // Keys that say the same of every block.
    const forged = { word: () => 7 } as unknown as ChainKeys;
    const block = pool.allocate();
    cache.publish(block, ROOT, forged, 0, tokensOf(text(B)));
    const find = (tokens: number[]): number[] => {
      const chain = new FoundChain();
      cache.find(chain, forged, tokensOf(tokens), 1);
      return chain.blocks;
    };
    expect(find(text(B, 1))).toEqual([]);
    expect(find(text(B))).toEqual([block]);
    // Another block beside it, under the same key.
    const other = pool.allocate();
    expect(cache.publish(other, ROOT, forged, 0, tokensOf(text(B, 1)))).toBe(other);
    expect(find(text(B, 1))).toEqual([other]);
  });

  it('the same tokens behind another parent are another block', () => {
    const { pool, cache } = make(8);
    const forged = { word: () => 7 } as unknown as ChainKeys;
    const [a, b, c] = [pool.allocate(), pool.allocate(), pool.allocate()];
    cache.publish(a, ROOT, forged, 0, tokensOf([...text(B)]));
    cache.publish(b, ROOT, forged, 0, tokensOf([...text(B, 1)]));
    const tail = text(B, 2);
    expect(cache.publish(c, a, forged, 1, tokensOf([...text(B), ...tail]))).toBe(c);
    const chain = new FoundChain();
    cache.find(chain, forged, tokensOf([...text(B, 1), ...tail]), 2);
    expect(chain.blocks).toEqual([b]);
  });

  it('evicts the least recently used chain, from its end, when a block is wanted', () => {
    const all = make(9);
    const [one, two, three] = [text(3 * B, 1), text(3 * B, 2), text(3 * B, 3)];
    for (const tokens of [one, two, three]) new Row(all, tokens).end();
    expect(all.pool.free).toBe(0);
    // One is used again, and is younger than two and three.
    const again = new Row(all, [...one, 5]);
    expect(again.hit).toBe(3);
    again.drop();
    const probe = (tokens: number[]): number => look(all.cache, [...tokens, 1]).length;
    // The block behind it came from the end of two.
    expect([probe(one), probe(two), probe(three)]).toEqual([3, 2, 3]);
    const fresh = new Row(all, text(4 * B, 4));
    expect([probe(one), probe(two), probe(three)]).toEqual([3, 0, 2]);
    fresh.drop();
    expect(all.cache.evicted).toBe(4);
  });

  it('never evicts what a sequence holds', () => {
    const all = make(6);
    const row = new Row(all, text(4 * B));
    row.publish();
    const other = new Row(all, text(4 * B + 1));
    expect(other.hit).toBe(4);
    expect(all.pool.available).toBe(1);
    all.pool.allocate();
    expect(() => all.pool.allocate()).toThrow(/No block is free/);
    row.drop();
    expect(all.pool.available).toBe(0);
  });

  it('keeps no more cold blocks than it may', () => {
    const all = make(32, 5);
    for (let i = 0; i < 6; i++) {
      new Row(all, text(3 * B, i)).end();
      expect(all.pool.cold).toBeLessThanOrEqual(5);
    }
    expect(all.pool.cold).toBe(5);
    expect(all.pool.held).toBe(0);
    // Of the newest chain nothing has gone.
    expect(new Row(all, [...text(3 * B, 5), 1]).hit).toBe(3);
    const none = make(8, 0);
    new Row(none, text(3 * B)).end();
    expect(none.pool.used).toBe(0);
  });

  it('rows share a prefix; the last to leave makes it cold', () => {
    const all = make(32);
    const system = text(4 * B);
    const first = new Row(all, [...system, 1, 2]);
    first.publish();
    const rows = [3, 4, 5].map((id) => new Row(all, [...system, id]));
    expect(rows.map((row) => row.hit)).toEqual([4, 4, 4]);
    // Four shared, one each.
    expect(all.pool.held).toBe(8);
    first.end();
    expect(all.pool.cold).toBe(0);
    for (const row of rows) row.drop();
    expect(all.pool.held).toBe(0);
    expect(all.cache.size).toBe(4);
  });

  it('a row that computed what another had entered enters nothing twice, and takes it over at its end', () => {
    const all = make(32);
    const tokens = text(6 * B);
    const one = new Row(all, tokens.slice(0, 3 * B));
    const two = new Row(all, tokens);
    expect(two.hit).toBe(0);
    one.publish();
    two.publish();
    expect(two.published).toBe(0);
    one.end();
    two.end();
    expect(all.cache.size).toBe(6);
    expect(all.pool.used).toBe(6);
    expect(new Row(all, [...tokens, 1]).hit).toBe(6);
  });

  it('lends a part of a block for a copy', () => {
    const all = make(16);
    const tokens = text(3 * B + 10);
    new Row(all, tokens).end();
    expect(all.cache.size).toBe(4);
    const parts = (list: readonly number[], limit: number): [number, number] => {
      const chain = look(all.cache, list);
      const block = all.cache.findPart(chain, tokensOf(list), limit);
      return [chain.length, block < 0 ? 0 : all.cache.agreed];
    };
    // A part-filled block, and a limit.
    expect(parts([...tokens, 1, 2, 3], B)).toEqual([3, 10]);
    expect(parts(tokens, 9)).toEqual([3, 9]);
    // A full block of which a part agrees.
    expect(parts([...tokens.slice(0, 2 * B + 7), 990, 991], B)).toEqual([2, 7]);
    // Less than a quarter of a block is not worth it, nor is anything without a whole block before it.
    expect(parts([...tokens.slice(0, 2 * B + 3), 990, 991], B)).toEqual([2, 0]);
    expect(parts(tokens.slice(0, 10), B)).toEqual([0, 0]);
    // A prompt that is all there: what is left out is computed.
    expect(parts(tokens.slice(0, 3 * B), B - 1)).toEqual([2, B - 1]);
    // The longest of several.
    new Row(all, [...tokens.slice(0, 3 * B), ...tokens.slice(3 * B, 3 * B + 6), 5, 5, 5, 5, 5]).end();
    expect(parts([...tokens.slice(0, 3 * B + 6), 5, 5, 5], B)).toEqual([3, 9]);
    all.pool.check(all.cache.size);
  });

  it('enters no part twice', () => {
    const all = make(16);
    const tokens = text(B + 10);
    new Row(all, tokens).end();
    new Row(all, tokens).end();
    new Row(all, tokens.slice(0, B + 8)).end();
    expect(all.cache.size).toBe(2);
    new Row(all, text(B + 12)).end();
    expect(all.cache.size).toBe(3);
  });

  it('is cleared while sequences go on, and does not take their later blocks', () => {
    const all = make(16);
    new Row(all, text(3 * B, 1)).end();
    const row = new Row(all, text(5 * B));
    row.publish(2);
    all.cache.clear();
    expect(all.pool.used).toBe(5);
    expect(all.cache.size).toBe(0);
    row.publish();
    expect(row.published).toBe(2);
    row.drop();
    all.pool.check(0);
    expect(new Row(all, text(5 * B)).hit).toBe(0);
  });

  it('knows what is cold of a chain, and sees that its version has changed', () => {
    const all = make(16);
    new Row(all, text(5 * B)).end();
    const chain = look(all.cache, [...text(5 * B), 1]);
    expect([chain.length, all.cache.coldIn(chain)]).toEqual([5, 5]);
    const { version } = all.cache;
    const row = new Row(all, [...text(2 * B), 990]);
    expect(all.cache.coldIn(chain)).toBe(3);
    expect(all.cache.version).toBe(version);
    for (let i = 0; i < 11; i++) all.pool.allocate();
    expect(all.cache.version).not.toBe(version);
    // Its last block has been evicted, and holds something else of the same chain now.
    all.cache.find(chain, keysOf(text(5 * B)), tokensOf(text(5 * B)), 5);
    expect(chain.length).toBe(4);
    row.drop();
    all.cache.clear();
    all.cache.find(chain, keysOf(text(5 * B)), tokensOf(text(5 * B)), 5);
    expect(chain.length).toBe(0);
  });

  it('tells of new blocks once', () => {
    const told: string[] = [];
    const pool = new BlockPool(16);
    const cache = new PrefixCache({
      pool,
      blockTokens: B,
      onPublish: (block, keys, at) => {
        expect(pool.references(block)).toBe(2);
        told.push(keys.hex(at));
      },
    });
    const tokens = text(3 * B + 8);
    new Row({ pool, cache }, tokens).end();
    new Row({ pool, cache }, tokens).end();
    const keys = keysOf(tokens);
    expect(told).toEqual([0, 1, 2].map((at) => keys.hex(at)));
  });

  for (const [name, hash] of [
    ['its own hash', undefined],
    ['one bucket for all', () => 3],
  ] as const) {
    it(`agrees with a model of itself over random sequences: ${name}`, () => {
      let state = 99;
      const random = (below: number): number => {
        state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
        return (state >>> 8) % below;
      };
      const all = make(60, 35, hash);
      const { pool, cache } = all;
      const rows: Row[] = [];
      /** What each block holds: the salt, and all tokens up to its end. */
      const store: string[] = [];
      const first = { chain: new FoundChain(), tokens: text(40), root: plain, most: 2 };
      const found = Array(40).fill(first) as (typeof first)[];
      let hits = 0;
      let parts = 0;
      for (let turn = 0; turn < 6000; turn++) {
        const tokens: number[] = [];
        // Texts from few words, so that many begin alike; two salts.
        const words = 1 + random(9);
        for (let w = 0; w < words; w++) tokens.push(...Array<number>(8).fill(random(3)));
        tokens.length = Math.max(1, tokens.length - random(5));
        const root = random(4) === 0 ? chainRoot('m', 'salt') : plain;
        const needed = Math.ceil(tokens.length / B);
        if (rows.length < 8 && pool.available >= needed) {
          const row = new Row(all, tokens, root);
          if (row.hit > 0) hits++;
          row.chain.forEach((block, i) => {
            const content = `${root[0]}:${tokens.slice(0, (i + 1) * B)}`;
            if (i < row.hit) expect(store[block]).toBe(content);
            // Nobody else has what is not shared: it is written to.
            else expect(pool.references(block)).toBe(1);
            store[block] = content;
          });
          rows.push(row);
          const chain = look(cache, tokens, root);
          const part = cache.findPart(chain, tokensOf(tokens), B - 1);
          if (part >= 0) {
            parts++;
            const begins = tokens.slice(0, chain.length * B + cache.agreed);
            expect(`${store[part]},`.startsWith(`${root[0]}:${begins},`)).toBe(true);
          }
          // Chains found long ago are brought up to date.
          const old = found[random(found.length)]!;
          cache.find(old.chain, keysOf(old.tokens, old.root), tokensOf(old.tokens), old.most);
          expect(old.chain.blocks).toEqual(look(cache, old.tokens, old.root).blocks);
          const cold = old.chain.blocks.filter((block) => pool.references(block) === 1).length;
          expect(cache.coldIn(old.chain)).toBe(cold);
          const most = Math.floor((tokens.length - 1) / B);
          found[random(40)] = { chain, tokens, root, most };
        }
        const at = random(Math.max(1, rows.length));
        const row = rows[at];
        if (row === undefined) continue;
        const what = random(4);
        if (what === 0) row.publish();
        else if (what === 1) row.publish(random(1 + Math.floor(row.tokens.length / B)));
        else {
          if (what === 2) row.end();
          else row.drop();
          rows.splice(at, 1);
        }
        if (turn % 1500 === 1499) cache.clear();
        // References: each row that has a block in its chain, and the cache.
        const owners = new Map<number, number>();
        for (const { chain } of rows) for (const b of chain) owners.set(b, (owners.get(b) ?? 0) + 1);
        const blocks = Array.from({ length: pool.size }, (_, b) => b);
        const expected = blocks.map((b) => (owners.get(b) ?? 0) + (pool.kept(b) ? 1 : 0));
        expect(blocks.map((b) => pool.references(b))).toEqual(expected);
        const used = expected.filter((count) => count > 0).length;
        expect(pool.held).toBe(owners.size);
        expect(pool.cold).toBeLessThanOrEqual(35);
        pool.check(used);
      }
      expect(hits).toBeGreaterThan(1000);
      expect(parts).toBeGreaterThan(100);
      expect(cache.evicted).toBeGreaterThan(500);
      for (const row of rows.splice(0)) row.end();
      cache.clear();
      pool.check(0);
    });
  }
});
