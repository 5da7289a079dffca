/** Prefixes of layers that do not all see everything: what holds them besides blocks. */

import { describe, expect, it } from 'vitest';
import { B, keysOf, look, Row, text } from '../../../test/setup/prefix-row.js';
import { BlockPool } from '../block-pool.js';
import { tokensOf } from './chain-keys.js';
import { FullHolder, type LayerHolder, WindowHolder } from './holders.js';
import { PrefixCache } from './prefix-cache.js';

describe('PrefixCache of layers that do not all see everything', () => {
  /** Layers with a state of their own, of which there is a snapshot behind some blocks. */
  const recurrent = (snapshots: Set<string>): LayerHolder & { version: number } => ({
    keepsAll: false,
    bordersOnly: true,
    version: 0,
    longest({ keys }, most) {
      let border = most;
      while (border > 0 && !snapshots.has(keys.hex(border - 1))) border--;
      return border;
    },
    firstHeld: (tokens) => Math.floor(tokens / B),
  });
  const tokens = text(6 * B + 9);
  const open = (holder: LayerHolder) => {
    const pool = new BlockPool(32);
    return { pool, cache: new PrefixCache({ pool, blockTokens: B, holder }) };
  };

  it('recurrent ones go on where there is a snapshot, and need no blocks', () => {
    const keys = keysOf(tokens);
    const snapshots = new Set([keys.hex(1), keys.hex(4)]);
    const holder = recurrent(snapshots);
    const alone = open(holder);
    expect(alone.cache.gaps).toBe(true);
    const chain = look(alone.cache, tokens);
    expect([chain.first, chain.length, chain.blocks]).toEqual([5, 5, []]);
    expect(alone.cache.coldIn(chain)).toBe(0);
    // Nobody goes on inside a block.
    expect(alone.cache.findPart(chain, tokensOf(tokens), B)).toBe(-1);
    // A snapshot is new: it is looked for anew.
    const { version } = alone.cache;
    snapshots.add(keys.hex(5));
    holder.version++;
    expect(alone.cache.version).toBeGreaterThan(version);
    alone.cache.find(chain, keys, tokensOf(tokens), 6);
    expect(chain.length).toBe(6);
  });

  it('those that see everything have no gaps', () => {
    expect(open(new FullHolder()).cache.gaps).toBe(false);
  });

  it('drops the block of a key, unless a sequence holds it', () => {
    const keys = keysOf(tokens);
    const sliding = open(new WindowHolder(40, B));
    new Row(sliding, tokens).end();
    const block = sliding.cache.block(keys, 4, tokensOf(tokens));
    expect(block).toBeGreaterThanOrEqual(0);
    const key = { word: (_: number, i: number) => keys.word(4, i) };
    sliding.pool.retain(block);
    sliding.cache.drop(key);
    expect(sliding.cache.block(keys, 4, tokensOf(tokens))).toBe(block);
    sliding.pool.release(block);
    const { free } = sliding.pool;
    sliding.cache.drop(key);
    expect(sliding.cache.block(keys, 4, tokensOf(tokens))).toBe(-1);
    expect(sliding.pool.free).toBe(free + 1);
    sliding.cache.drop(key);
    expect(sliding.pool.free).toBe(free + 1);
  });
});
