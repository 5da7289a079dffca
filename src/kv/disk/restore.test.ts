import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { KvPool } from '../../device/kv.js';
import { BlockPool } from '../block-pool.js';
import { ChainKeys, chainRoot, tokensOf } from '../prefix/chain-keys.js';
import { WindowHolder } from '../prefix/holders.js';
import { FoundChain, PrefixCache, ROOT } from '../prefix/prefix-cache.js';
import { diskKey } from './disk-key.js';
import { DiskTier } from './disk-tier.js';
import { Restore, type RestoreHost } from './restore.js';
import { WriteBehind } from './write-behind.js';

const B = 16;
const BYTES = 640;
const FIRST = 1000;

/** What blocks hold, on a device that takes its time. */
class Store {
  readonly data = new Map<number, Uint8Array>();
  reads = 0;
  /** Called while a block is being read or written. */
  during: () => void = () => {};
  fails = false;

  async read(blocks: Uint32Array): Promise<Uint8Array[]> {
    this.reads += blocks.length;
    await new Promise(setImmediate);
    this.during();
    if (this.fails) throw new Error('lost');
    return Array.from(blocks, (block) => this.data.get(block)!.slice());
  }

  async write(blocks: Uint32Array, bytes: readonly Uint8Array[]): Promise<void> {
    await new Promise(setImmediate);
    this.during();
    if (this.fails) throw new Error('lost');
    blocks.forEach((block, i) => {
      this.data.set(block, bytes[i]!.slice());
    });
  }
}

let folder: string;
let tiers: DiskTier[];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'kvant-restore-'));
  tiers = [];
});
afterEach(async () => {
  for (const tier of tiers) await tier.close();
  rmSync(folder, { recursive: true, force: true });
});

async function make(blocks = 32, reserve = 2, queueBytes = 2 ** 20, window: number | null = null) {
  const tier = await DiskTier.open({ folder, maxBytes: 2 ** 30, signature: 'm', queueBytes });
  tiers.push(tier);
  const pool = new BlockPool(blocks);
  const store = new Store();
  const device = store as unknown as KvPool;
  const common = { device, firstId: FIRST, blockBytes: BYTES, tier, kind: { group: 0, floatStart: false } };
  const told: { writer: WriteBehind | null } = { writer: null };
  const cache = new PrefixCache({
    pool,
    blockTokens: B,
    holder: window === null ? undefined : new WindowHolder(window, B),
    onPublish: (...args) => told.writer?.published(...args),
  });
  const writer = new WriteBehind({ ...common, cache });
  told.writer = writer;
  const host: RestoreHost = { ...common, cache, pool, reserve };
  return { pool, cache, store, tier, writer, host };
}

const text = (blocks: number, seed = 0): number[] =>
  Array.from({ length: blocks * B }, (_, i) => (i * 31 + seed * 1009) % 997);

function keysOf(tokens: readonly number[]): ChainKeys {
  const keys = new ChainKeys(chainRoot('m'), B);
  keys.extend(tokensOf(tokens), tokens.length / B);
  return keys;
}

/** What the block that ends a beginning holds. */
function content(tokens: readonly number[]): Uint8Array {
  const seed = tokens.reduce((sum, token, i) => (Math.imul(sum, 31) + token * (i + 1)) | 0, 7);
  return new Uint8Array(BYTES).map((_, i) => (seed >>> (i % 4)) + i);
}

type Made = Awaited<ReturnType<typeof make>>;

/** Computes a sequence's blocks and enters them; they are cold then. */
function compute({ pool, cache, store }: Made, tokens: readonly number[]): void {
  const held: number[] = [];
  const keys = keysOf(tokens);
  for (let at = 0; at < tokens.length / B; at++) {
    const block = pool.allocate();
    store.data.set(FIRST + block, content(tokens.slice(0, (at + 1) * B)));
    const there = cache.publish(block, held.at(-1) ?? ROOT, keys, at, tokensOf(tokens));
    if (there !== block) {
      pool.retain(there);
      pool.release(block);
    }
    held.push(there);
  }
  for (const block of held.reverse()) pool.release(block);
}

/** How many blocks of a sequence the cache has; their bytes are right. */
function found({ cache, store }: Made, tokens: readonly number[]): number {
  const chain = new FoundChain();
  cache.find(chain, keysOf(tokens), tokensOf(tokens), tokens.length / B);
  chain.blocks.forEach((block, i) => {
    expect(store.data.get(FIRST + block)).toEqual(content(tokens.slice(0, (i + 1) * B)));
  });
  return chain.length;
}

function restore(
  made: Made,
  tokens: readonly number[],
  most = tokens.length / B,
  wanted?: () => boolean,
): Restore {
  return new Restore(made.host, keysOf(tokens), tokensOf(tokens), most, wanted);
}

describe('blocks to disk and back', () => {
  it('what was published is found after a restart', async () => {
    const first = await make();
    compute(first, text(6));
    compute(first, [...text(3), ...text(2, 5)]);
    await first.writer.flush();
    expect(first.tier.stats()).toMatchObject({ writtenBlocks: 8, dropped: 0 });
    expect(first.pool.held).toBe(0);

    const second = await make();
    expect(found(second, text(6))).toBe(0);
    expect(await restore(second, text(6), 5).run()).toBe(5);
    expect(found(second, text(6))).toBe(5);
    expect(await restore(second, text(6)).run()).toBe(1);
    expect(await restore(second, text(6)).run()).toBe(0);
    const other = [...text(3), ...text(3, 5)];
    expect(await restore(second, other).run()).toBe(2);
    expect(found(second, other)).toBe(5);
    expect(second.pool.held).toBe(0);
    second.pool.check(second.cache.size);
    // What came from the disk is not written to it.
    await second.writer.flush();
    expect(second.tier.stats()).toMatchObject({ writtenBlocks: 0, dropped: 0, readBlocks: 8 });
    expect(second.store.reads).toBe(0);
  });

  it('a block that is evicted before it is read, or meanwhile, is left out', async () => {
    const made = await make(8);
    compute(made, text(8));
    // All of them go but the first two, before anything is read.
    const six = Array.from({ length: 6 }, () => made.pool.allocate());
    await made.writer.flush();
    expect(made.tier.stats().writtenBlocks).toBe(2);
    for (const block of six) made.pool.release(block);
    compute(made, [...text(2), ...text(6, 9)]);
    made.store.during = () => {
      made.store.during = () => {};
      // And now while they are read: their blocks hold something else then.
      for (const block of Array.from({ length: 6 }, () => made.pool.allocate())) {
        made.store.data.set(FIRST + block, new Uint8Array(BYTES).fill(0xee));
        made.pool.release(block);
      }
    };
    await made.writer.flush();
    expect(made.tier.stats()).toMatchObject({ writtenBlocks: 2, files: 2 });
    const second = await make();
    expect(await restore(second, text(8)).run()).toBe(2);
    expect(found(second, text(8))).toBe(2);
  });

  it('a queue of few blocks holds up the writing, and loses nothing', async () => {
    const made = await make(32, 2, 3 * 1000);
    compute(made, text(30));
    await made.writer.flush();
    expect(made.tier.stats()).toMatchObject({ writtenBlocks: 30, dropped: 0, queued: 0 });
  });

  it('blocks larger than the whole queue are written beside small ones of another group, and lose none', async () => {
    const made = await make(32, 2, 3 * 1000);
    // As snapshots of state are.
    const blockBytes = 5000;
    const kind = { group: 1, floatStart: false };
    const [pool, store] = [new BlockPool(8), new Store()];
    const told: { writer: WriteBehind | null } = { writer: null };
    const cache = new PrefixCache({
      pool,
      blockTokens: B,
      onPublish: (...args) => told.writer?.published(...args),
    });
    const device = store as unknown as KvPool;
    const writer = new WriteBehind({ cache, device, firstId: FIRST, blockBytes, tier: made.tier, kind });
    told.writer = writer;
    compute(made, text(24));
    compute({ ...made, pool, cache, store }, text(4));
    for (const block of store.data.keys()) store.data.set(block, new Uint8Array(blockBytes).fill(block));
    await Promise.all([made.writer.flush(), writer.flush()]);
    expect(made.tier.stats()).toMatchObject({ writtenBlocks: 28, files: 28, dropped: 0, queued: 0 });
    const again = await make();
    const blocks = [0, 1, 2, 3].map((at) => ({
      key: diskKey(keysOf(text(4)), at, kind),
      tokens: Uint32Array.from(text(4).slice(at * B, (at + 1) * B)),
    }));
    const read = await again.tier.read(blocks, blockBytes, 0, 60_000);
    expect(read).toEqual([...store.data.values()]);
  });

  it('leaves blocks to those who compute, and evicts what is cold', async () => {
    const first = await make();
    compute(first, text(10));
    await first.writer.flush();
    const second = await make(8, 3);
    compute(second, text(4, 3));
    expect(await restore(second, text(10)).run()).toBe(5);
    expect(found(second, text(10))).toBe(5);
    const held = Array.from({ length: 7 }, () => second.pool.allocate());
    expect(await restore(second, text(10)).run()).toBe(0);
    for (const block of held) second.pool.release(block);
    second.pool.check(second.cache.size);
  });

  it('takes what others have computed meanwhile, and ends where the cache was emptied', async () => {
    const first = await make();
    compute(first, text(4));
    await first.writer.flush();
    const second = await make();
    second.store.during = () => compute(second, text(2));
    expect(await restore(second, text(4)).run()).toBe(4);
    expect(found(second, text(4))).toBe(4);
    second.pool.check(4);
    second.cache.clear();
    compute(second, text(1));
    second.store.during = () => second.cache.clear();
    expect(await restore(second, text(4)).run()).toBe(0);
    second.pool.check(0);
  });

  it('stops when it is told to, and ends with the device', async () => {
    const first = await make();
    compute(first, text(4));
    await first.writer.flush();
    const second = await make();
    let asked = 0;
    expect(await restore(second, text(4), 4, () => ++asked < 2).run()).toBe(0);
    expect(asked).toBe(2);
    second.pool.check(0);
    second.store.fails = true;
    await expect(restore(second, text(4)).run()).rejects.toThrow('lost');
    second.pool.check(0);
    // Writing behind a device that is lost ends, and says nothing.
    compute(second, text(2, 8));
    await second.writer.flush();
    expect(second.tier.stats().writtenBlocks).toBe(0);
  });

  it('ends while the disk hangs', async () => {
    const made = await make();
    compute(made, text(4));
    made.writer.stop();
    await made.tier.close(10);
    await made.writer.idle();
    compute(made, text(4, 7));
    await made.writer.idle();
    expect(made.store.reads).toBeLessThanOrEqual(4);
  });
});

describe('where all layers slide', () => {
  // [b − 32, b): two blocks before each border.
  const sliding = (blocks?: number, reserve?: number): Promise<Made> => make(blocks, reserve, undefined, 33);
  /** What the cache has to go on from; its bytes are right. */
  const border = ({ cache, store }: Made, tokens: readonly number[]): [first: number, end: number] => {
    const chain = new FoundChain();
    cache.find(chain, keysOf(tokens), tokensOf(tokens), tokens.length / B);
    chain.blocks.forEach((block, i) => {
      const data = content(tokens.slice(0, (chain.first + i + 1) * B));
      expect(store.data.get(FIRST + block)).toEqual(data);
    });
    return [chain.first, chain.length];
  };

  it('reads what is needed at the farthest border, and no more', async () => {
    const first = await sliding();
    compute(first, text(9));
    await first.writer.flush();
    const second = await sliding();
    expect(await restore(second, text(9), 8).run()).toBe(2);
    expect(border(second, text(9))).toEqual([6, 8]);
    expect(second.cache.size).toBe(2);
    // One of two is in memory by now.
    expect(await restore(second, text(9)).run()).toBe(1);
    expect(border(second, text(9))).toEqual([7, 9]);
    expect(await restore(second, text(9)).run()).toBe(0);
    expect(second.pool.held).toBe(0);
  });

  it('goes to a border before what is missing, and reads nothing that has no room', async () => {
    const first = await sliding();
    compute(first, text(9));
    await first.writer.flush();
    const keys = keysOf(text(9));
    rmSync(join(folder, readdirSync(folder)[0]!, keys.hex(7).slice(0, 2), `${keys.hex(7)}.kvb`));
    const second = await sliding();
    expect(await restore(second, text(9)).run()).toBe(2);
    expect(border(second, text(9))).toEqual([5, 7]);
    const small = await sliding(3, 2);
    expect(await restore(small, text(9)).run()).toBe(0);
    expect([small.cache.size, small.pool.used]).toEqual([0, 0]);
  });
});
