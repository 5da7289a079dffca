import { describe, expect, it } from 'vitest';
import { BlockPool } from '../../kv/block-pool.js';
import { ChainKeys, chainRoot, tokensOf } from '../../kv/prefix/chain-keys.js';
import { FullHolder, type LayerHolder, WindowHolder } from '../../kv/prefix/holders.js';
import { PrefixCache, ROOT } from '../../kv/prefix/prefix-cache.js';
import { FoundChains, GroupCaches } from './group-caches.js';

const B = 16;
const tokens = Array.from({ length: 6 * B + 9 }, (_, i) => i * 7);
const source = tokensOf(tokens);
const keys = new ChainKeys(chainRoot('m'), B);
keys.extend(source, 6);

/** Caches of several groups, the first one seeing everything; what it evicts is dropped from the others. */
function open(holders: readonly LayerHolder[], blocks = 32): GroupCaches {
  const pools = holders.map(() => new BlockPool(blocks));
  const caches: PrefixCache[] = [];
  holders.forEach((holder, group) => {
    const onEvict = group > 0 ? undefined : (of: Parameters<PrefixCache['drop']>[0]) => caches[1]!.drop(of);
    caches.push(new PrefixCache({ pool: pools[group]!, blockTokens: B, holder, onEvict }));
  });
  return new GroupCaches(caches, pools);
}

/** Enters blocks `from` to `to` into a group, as a row that computed and left them. */
function enter(groups: GroupCaches, group: number, from: number, to: number): number[] {
  const entered: number[] = [];
  const cache = groups.caches[group]!;
  for (let at = from; at < to; at++) {
    const block = groups.pools[group]!.allocate();
    cache.publish(block, entered.at(-1) ?? ROOT, keys, at, source);
    entered.push(block);
  }
  for (const block of [...entered].reverse()) groups.pools[group]!.release(block);
  return entered;
}

function find(groups: GroupCaches, most = 6): FoundChains {
  const found = new FoundChains(groups.caches.length);
  groups.find(found, keys, source, most);
  return found;
}

describe('GroupCaches', () => {
  it('go on at the longest border at which every group has what it reads', () => {
    // A window of 40 reads the two blocks before a border, and the last of those before them.
    const groups = open([new FullHolder(), new WindowHolder(40, B)]);
    enter(groups, 0, 0, 6);
    enter(groups, 1, 1, 4);
    const found = find(groups);
    expect(found.length).toBe(4);
    expect(found.chains.map(({ first, length, blocks }) => [first, length, blocks.length])).toEqual([
      [0, 4, 4],
      [1, 4, 3],
    ]);
    expect(found.reach.length).toBe(6);
    // Nobody goes on inside a block.
    expect(groups.findPart(found, source, B)).toBe(-1);
    expect(find(groups, 3).length).toBe(0);
  });

  it('has nothing where the full group ends before what slides', () => {
    const groups = open([new FullHolder(), new WindowHolder(40, B)]);
    enter(groups, 0, 0, 2);
    enter(groups, 1, 3, 6);
    expect(find(groups).length).toBe(0);
    enter(groups, 1, 0, 2);
    expect(find(groups).length).toBe(2);
  });

  it('finds what is new, and forgets what has gone, in either group', () => {
    const groups = open([new FullHolder(), new WindowHolder(20, B)]);
    enter(groups, 0, 0, 6);
    const found = new FoundChains(2);
    groups.find(found, keys, source, 6);
    expect(found.length).toBe(0);
    const { version } = groups;
    const blocks = enter(groups, 1, 3, 6);
    expect(groups.version).toBeGreaterThan(version);
    groups.find(found, keys, source, 6);
    expect(found.length).toBe(6);
    groups.caches[1]!.drop({ word: (_, i) => keys.word(5, i) });
    groups.find(found, keys, source, 6);
    expect(found.length).toBe(5);
    expect(found.chains[1]!.blocks).toEqual(blocks.slice(0, 2));
  });

  it('drops from other groups what depends on a full block that is evicted', () => {
    const groups = open([new FullHolder(), new WindowHolder(20, B)], 6);
    enter(groups, 0, 0, 6);
    enter(groups, 1, 0, 6);
    expect(groups.caches[1]!.size).toBe(6);
    // The end of the chain gives way, in both.
    const taken = groups.pools[0]!.allocate();
    expect(groups.caches[1]!.size).toBe(5);
    expect(groups.pools[1]!.free).toBe(1);
    expect(find(groups).length).toBe(5);
    groups.pools[0]!.release(taken);
  });

  it('takes recurrent state in: snapshots by the key of the block before the border', () => {
    const snapshots = new Set([keys.hex(1), keys.hex(3)]);
    const recurrent: LayerHolder = {
      keepsAll: false,
      bordersOnly: true,
      version: 0,
      longest({ keys: own }, most) {
        let border = most;
        while (border > 0 && !snapshots.has(own.hex(border - 1))) border--;
        return border;
      },
      firstHeld: (count) => Math.floor(count / B),
    };
    const groups = open([new FullHolder(), recurrent]);
    enter(groups, 0, 0, 6);
    expect(find(groups).length).toBe(4);
    snapshots.delete(keys.hex(3));
    expect(find(groups).length).toBe(2);
  });

  it('makes the taker an owner of every block of every group', () => {
    const groups = open([new FullHolder(), new WindowHolder(20, B)]);
    enter(groups, 0, 0, 6);
    enter(groups, 1, 0, 6);
    const found = find(groups);
    groups.take(found);
    for (const [group, { blocks }] of found.chains.entries())
      for (const block of blocks) expect(groups.pools[group]!.references(block)).toBe(2);
    expect(groups.pools.map(({ held }) => held)).toEqual([6, 2]);
  });
});
