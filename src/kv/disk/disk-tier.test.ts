import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { blockFileBytes } from './disk-format.js';
import { DiskTier, type DiskTierOptions } from './disk-tier.js';

const TOKENS = 16;
const BYTES = 3000;
const FILE = blockFileBytes(TOKENS, BYTES);

let folder: string;
let tiers: DiskTier[];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'kvant-disk-'));
  tiers = [];
});
afterEach(async () => {
  for (const tier of tiers) await tier.close();
  rmSync(folder, { recursive: true, force: true });
});

async function open(options: Partial<DiskTierOptions> = {}): Promise<DiskTier> {
  const tier = await DiskTier.open({ folder, maxBytes: 2 ** 30, signature: 'a model', ...options });
  tiers.push(tier);
  return tier;
}

/** Block `i` of one chain. */
function block(i: number, fill = 0) {
  return {
    key: (i * 0x1234567).toString(16).padStart(32, '0'),
    tokens: Uint32Array.from({ length: TOKENS }, (_, t) => i * TOKENS + t),
    depth: i,
    data: new Uint8Array(BYTES).map((_, d) => (d * 7 + i * 13 + fill) & 0xff),
  };
}

function chain(count: number): ReturnType<typeof block>[] {
  return Array.from({ length: count }, (_, i) => block(i));
}

function paths(): string[] {
  return readdirSync(folder, { recursive: true })
    .map(String)
    .filter((name) => name.endsWith('.kvb'))
    .map((name) => join(folder, name))
    .sort();
}

describe('disk tier', () => {
  it('finds and reads what was written, after a restart too', async () => {
    const first = await open();
    const blocks = chain(5);
    for (const b of blocks) expect(first.offer(b)).toBe(true);
    await first.flush();
    const keys = blocks.map(({ key }) => key);
    for (const tier of [first, await open()]) {
      expect(tier.find(keys)).toBe(5);
      expect(tier.find([keys[0]!, block(9).key, keys[1]!])).toBe(1);
      expect(await tier.read(blocks, BYTES, 0, 1000)).toEqual(blocks.map(({ data }) => data));
      expect(await tier.read(blocks.slice(3), BYTES, 3, 1000)).toEqual(
        blocks.slice(3).map(({ data }) => data),
      );
      expect(tier.stats()).toMatchObject({
        files: 5,
        bytes: 5 * FILE,
        readBlocks: 7,
        readBytes: 7 * BYTES,
        corrupt: 0,
        foreign: 0,
        queued: 0,
        queuedBytes: 0,
      });
    }
    expect(first.stats()).toMatchObject({ writtenBlocks: 5, writtenBytes: 5 * FILE });
    for (const path of paths()) expect(readFileSync(path)).toHaveLength(FILE);
  });

  it('writes nothing twice', async () => {
    const tier = await open();
    expect(tier.offer(block(1))).toBe(true);
    expect(tier.wants(block(1).key, BYTES)).toBe(false);
    expect(tier.offer(block(1))).toBe(false);
    await tier.flush();
    expect(tier.offer(block(1))).toBe(false);
    expect((await open()).wants(block(1).key, BYTES)).toBe(false);
    expect(tier.stats()).toMatchObject({ writtenBlocks: 1, dropped: 0 });
  });

  it('stops at the first gap', async () => {
    const tier = await open();
    const blocks = chain(4);
    for (const b of blocks) if (b.depth !== 2) tier.offer(b);
    await tier.flush();
    expect(tier.find(blocks.map(({ key }) => key))).toBe(2);
    expect(await tier.read(blocks, BYTES, 0, 1000)).toHaveLength(2);
    expect(await tier.read(blocks.slice(2), BYTES, 2, 1000)).toEqual([]);
  });

  it('keeps signatures apart, and within one cap', async () => {
    const [one, other] = [await open(), await open({ signature: 'another model' })];
    one.offer(block(1));
    await one.flush();
    expect(other.find([block(1).key])).toBe(0);
    other.offer(block(1, 99));
    await other.flush();
    expect(await one.read([block(1)], BYTES, 1, 1000)).toEqual([block(1).data]);
    expect(await other.read([block(1)], BYTES, 1, 1000)).toEqual([block(1, 99).data]);
    const third = await open({ signature: 'a third', maxBytes: 2 * FILE });
    expect(third.stats()).toMatchObject({ files: 2, foreign: 0 });
    third.offer(block(1));
    await third.flush();
    expect(third.stats()).toMatchObject({ files: 2, evicted: 1 });
    expect(paths()).toHaveLength(2);
  });

  it('removes what was used longest ago, the ends of chains first', async () => {
    const tier = await open({ maxBytes: 6 * FILE });
    const blocks = chain(6);
    for (const b of blocks) tier.offer(b);
    await tier.flush();
    await tier.read(blocks.slice(0, 3), BYTES, 0, 1000);
    for (const i of [20, 21]) tier.offer(block(i));
    await tier.flush();
    expect(tier.stats()).toMatchObject({ files: 6, bytes: 6 * FILE, evicted: 2 });
    const left = (t: DiskTier): number[] =>
      [0, 1, 2, 3, 4, 5, 20, 21].filter((i) => t.find([block(i).key]) === 1);
    expect(left(tier)).toEqual([0, 1, 2, 5, 20, 21]);
    tier.touch([block(5).key]);
    tier.offer(block(22));
    await tier.flush();
    expect(left(tier)).toEqual([0, 1, 5, 20, 21]);
    expect(paths()).toHaveLength(6);
  });

  it('remembers after a restart what was used last', async () => {
    let now = 1_700_000_000_000;
    const tier = await open({ now: () => now });
    for (const b of chain(4)) tier.offer(b);
    await tier.flush();
    now += 60_000;
    await tier.read([block(0), block(1)], BYTES, 0, 1000);
    await tier.close();
    const next = await open({ maxBytes: 4 * FILE });
    for (const i of [8, 9]) next.offer(block(i));
    await next.flush();
    // Of those that were not read the end of the chain went first.
    expect([0, 1, 2, 3].filter((i) => next.find([block(i).key]) === 1)).toEqual([0, 1]);
    next.offer(block(10));
    await next.flush();
    expect([0, 1].filter((i) => next.find([block(i).key]) === 1)).toEqual([0]);
  });

  it('drops what the queue has no room for, and says so', async () => {
    const tier = await open({ queueBytes: 3 * FILE });
    const taken = chain(10).map((b) => tier.offer(b));
    expect(taken).toEqual([true, true, true, ...new Array<boolean>(7).fill(false)]);
    expect(tier.stats()).toMatchObject({ queued: 3, queuedBytes: 3 * FILE, dropped: 7 });
    await tier.flush();
    expect(tier.stats()).toMatchObject({ queued: 0, queuedBytes: 0, writtenBlocks: 3 });
    const small = await open({ maxBytes: FILE - 1, signature: 'small' });
    expect(small.offer(block(1))).toBe(false);
    expect(small.stats()).toMatchObject({ dropped: 1, files: 3 });
  });

  it('leaves alone what is not its own, and counts it', async () => {
    const first = await open();
    for (const b of chain(3)) first.offer(b);
    await first.flush();
    const [one, two, three] = paths() as [string, string, string];
    const foreign = [
      join(folder, 'notes.txt'),
      join(one, '..', 'thumbs.db'),
      join(one, '..', `${'0'.repeat(32)}.kvb.bak`),
    ];
    for (const path of foreign) writeFileSync(path, 'precious');
    mkdirSync(join(folder, 'photos'));
    // A name that is ours with bytes that are not; a cut file; one with a bit flipped.
    writeFileSync(one, 'precious, and no block');
    writeFileSync(two, readFileSync(two).subarray(0, FILE - 1));
    const bytes = readFileSync(three);
    bytes[FILE - 5]! ^= 4;
    writeFileSync(three, bytes);
    // Old, so that they would be the first to be evicted.
    for (const path of [one, two, three]) utimesSync(path, 1, 1);
    const tier = await open({ maxBytes: 3 * FILE });
    expect(tier.stats().foreign).toBe(4);
    for (const i of [0, 1, 2]) expect(await tier.read([block(i)], BYTES, i, 1000)).toEqual([]);
    expect(tier.stats()).toMatchObject({ foreign: 5, corrupt: 2, readBlocks: 0, files: 0 });
    expect(existsSync(one)).toBe(true);
    expect(existsSync(two)).toBe(false);
    expect(existsSync(three)).toBe(false);
    const next = await open({ maxBytes: 2 * FILE });
    for (const i of [5, 6, 7]) next.offer(block(i));
    await next.flush();
    expect(next.stats()).toMatchObject({ evicted: 1, files: 2 });
    for (const path of [...foreign, one]) expect(readFileSync(path, 'utf8')).toMatch(/^precious/);
  });

  it('replaces a corrupt block by a good one', async () => {
    const tier = await open();
    tier.offer(block(1));
    await tier.flush();
    writeFileSync(paths()[0]!, readFileSync(paths()[0]!).fill(0, 100, 200));
    expect(await tier.read([block(1)], BYTES, 1, 1000)).toEqual([]);
    expect(tier.offer(block(1))).toBe(true);
    await tier.flush();
    expect(await tier.read([block(1)], BYTES, 1, 1000)).toEqual([block(1).data]);
  });

  it('does not take other tokens under the same key', async () => {
    const tier = await open();
    tier.offer(block(1));
    await tier.flush();
    expect(await tier.read([{ ...block(1), tokens: block(2).tokens }], BYTES, 1, 1000)).toEqual([]);
    expect(existsSync(paths()[0]!)).toBe(true);
  });

  it('is emptied of its own signature', async () => {
    const [one, other] = [await open({ queueBytes: 2 ** 30 }), await open({ signature: 'another' })];
    for (const b of chain(3)) other.offer(b);
    for (const b of chain(20)) one.offer(b);
    await other.flush();
    await one.clear();
    expect(one.stats()).toMatchObject({ queued: 0 });
    expect(one.find([block(0).key])).toBe(0);
    expect(other.find(chain(3).map(({ key }) => key))).toBe(3);
    expect(paths()).toHaveLength(3);
  });

  it('sees what another process has written, after a while', async () => {
    let now = 1_700_000_000_000;
    const [one, other] = [await open({ now: () => now }), await open()];
    other.offer(block(1));
    await other.flush();
    expect(one.find([block(1).key])).toBe(0);
    now += 31_000;
    one.find([block(1).key]);
    await expect.poll(() => one.find([block(1).key])).toBe(1);
    expect(await one.read([block(1)], BYTES, 1, 1000)).toEqual([block(1).data]);
    await other.clear();
    expect(await one.read([block(1)], BYTES, 1, 1000)).toEqual([]);
    expect(one.stats()).toMatchObject({ readErrors: 0, corrupt: 0, files: 0 });
  });

  it('refuses a folder that is none', async () => {
    writeFileSync(join(folder, 'file'), 'x');
    await expect(open({ folder: join(folder, 'file') })).rejects.toMatchObject({
      code: 'prefix-cache-dir-unusable',
    });
  });
});
