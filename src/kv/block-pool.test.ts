import { describe, expect, it } from 'vitest';
import type { KvPool, KvPoolSpec } from '../device/kv.js';
import { BlockPool } from './block-pool.js';
import { BlockTable } from './block-table.js';

describe('BlockPool', () => {
  it('gives out each block once and takes it back', () => {
    const pool = new BlockPool(5);
    const blocks = Array.from({ length: 5 }, () => pool.allocate());
    expect([...blocks].sort()).toEqual([0, 1, 2, 3, 4]);
    expect(pool.free).toBe(0);
    expect(() => pool.allocate()).toThrow(/No block is free/);
    pool.release(blocks[2]!);
    expect(pool.allocate()).toBe(blocks[2]);
    pool.check(5);
  });

  it('frees a shared block with its last owner', () => {
    const pool = new BlockPool(2);
    const block = pool.allocate();
    pool.retain(block);
    pool.release(block);
    expect(pool.used).toBe(1);
    expect(pool.references(block)).toBe(1);
    pool.release(block);
    pool.check(0);
    expect(() => pool.release(block)).toThrow(/has no owner/);
    expect(() => pool.retain(block)).toThrow(/has no owner/);
  });

  it('notices a leak', () => {
    const pool = new BlockPool(3);
    pool.allocate();
    expect(() => pool.check(0)).toThrow(/1 blocks in use/);
  });

  it('agrees with a model of itself over random operations', () => {
    const pool = new BlockPool(7);
    const owners: number[] = [];
    let state = 12345;
    for (let i = 0; i < 5000; i++) {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0;
      const choice = (state >>> 16) % 3;
      const pick = owners[(state >>> 8) % Math.max(1, owners.length)];
      if (choice === 0 && pool.free > 0) owners.push(pool.allocate());
      else if (choice === 1 && pick !== undefined) {
        pool.retain(pick);
        owners.push(pick);
      } else if (pick !== undefined) {
        pool.release(pick);
        owners.splice(owners.indexOf(pick), 1);
      }
      pool.check(new Set(owners).size);
    }
  });
});

describe('BlockTable', () => {
  it('tells the device of new entries only, and gives all back', () => {
    const pool = new BlockPool(6);
    const writes: [number, number, number[]][] = [];
    const spec: KvPoolSpec = { layers: [], blocks: 6, blockTokens: 16, slots: 2, maxBlocksPerSlot: 4 };
    const device = {
      spec,
      bytes: 0,
      setBlocks: (slot: number, first: number, blocks: Uint32Array) =>
        writes.push([slot, first, [...blocks]]),
    } as unknown as KvPool;
    const table = new BlockTable(1, pool, device);
    table.grow(2);
    table.grow(0);
    table.grow(1);
    expect(writes).toEqual([
      [1, 0, [table.at(0), table.at(1)]],
      [1, 2, [table.at(2)]],
    ]);
    expect(table.at(3)).toBeUndefined();
    expect(pool.used).toBe(3);
    table.clear();
    expect(table.length).toBe(0);
    pool.check(0);
  });

  it('gives back blocks at its beginning, and goes on counting them', () => {
    const pool = new BlockPool(8);
    const writes: [number, number[]][] = [];
    const spec: KvPoolSpec = { layers: [], blocks: 8, blockTokens: 16, slots: 1, maxBlocksPerSlot: 10 };
    const device = {
      spec,
      bytes: 0,
      setBlocks: (_: number, first: number, blocks: Uint32Array) => writes.push([first, [...blocks]]),
    } as unknown as KvPool;
    const table = new BlockTable(0, pool, device);
    table.grow(4);
    const third = table.poolId(2);
    table.giveBack(2);
    table.giveBack(1);
    expect([table.length, table.front, table.poolId(2), pool.used]).toEqual([4, 2, third, 2]);
    // Those that it takes next follow; no more than it has is given back.
    table.grow(1);
    expect(writes.at(-1)).toEqual([4, [table.at(4)]]);
    table.giveBack(9);
    expect([table.front, pool.used]).toEqual([5, 0]);
    table.grow(1);
    table.clear();
    expect([table.length, table.front]).toEqual([0, 0]);
    pool.check(0);
    // What was found behind a lost front: the entries before it are some block of its own, which nobody reads.
    const [a, b] = [pool.allocate(), pool.allocate()];
    table.adopt([a, b], false, 3);
    expect([table.length, table.front, table.poolId(3), table.poolId(4)]).toEqual([5, 3, a, b]);
    expect(writes.at(-1)).toEqual([0, [a, a, a, a, b]]);
    table.giveBack(4);
    expect(pool.used).toBe(1);
    table.clear();
    pool.check(0);
  });

  it('starts in float-start blocks and moves to those set aside', () => {
    const [pool, floatStart] = [new BlockPool(6), new BlockPool(3)];
    const writes: [number, number[]][] = [];
    const spec: KvPoolSpec = {
      layers: [],
      blocks: 6,
      floatStart: { blocks: 3, dtype: 'f16' },
      blockTokens: 16,
      slots: 1,
      maxBlocksPerSlot: 4,
    };
    const device = {
      spec,
      bytes: 0,
      setBlocks: (_: number, first: number, blocks: Uint32Array) => writes.push([first, [...blocks]]),
    } as unknown as KvPool;
    const table = new BlockTable(0, pool, device, floatStart);
    table.grow(2);
    expect([table.floatStart, table.length, floatStart.used, pool.used]).toEqual([true, 2, 2, 0]);
    // To the device their ids follow those of the main pool.
    expect(writes).toEqual([[0, [6, 7]]]);
    table.reserve(1);
    table.reserve(2);
    expect([table.reserved, pool.used]).toEqual([3, 3]);
    const conversion = table.mature();
    const moved = { from: Uint32Array.of(6, 7), to: Uint32Array.of(0, 1) };
    expect(conversion).toEqual({ ...moved, floatStart: moved.from });
    expect(writes[1]).toEqual([0, [0, 1, 2]]);
    expect([table.floatStart, table.length, table.reserved, floatStart.used]).toEqual([false, 3, 0, 2]);
    table.releaseFloatStart(conversion);
    floatStart.check(0);
    table.grow(1);
    expect(table.at(3)).toBe(3);
    table.clear();
    pool.check(0);
    // Who has it next is float-start again; what it set aside goes back as well.
    expect(table.floatStart).toBe(true);
    table.grow(1);
    table.reserve(2);
    table.clear();
    pool.check(0);
    floatStart.check(0);
  });
});
