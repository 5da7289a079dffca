/**
 * Sliding windows on the CPU, bitwise: a row gives back what lies behind its window, and goes on at any border that is
 * cached, wherever its blocks come from. The reference keeps every position.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createCpuDevice } from '../../src/device/cpu/index.js';
import { rowBlocks } from '../../src/kv/retention.js';
import { loadFolder, MODEL_FIXTURES, Runner } from '../parity/runner.js';
import { Asker, BATCH, DRAWS, type Said } from './asker.js';
import { seeded } from './core-harness.js';
import { Watch } from './watched-device.js';

const WINDOW = 64;
const random = seeded(64);
const tokens = (length: number): number[] => Array.from({ length }, () => 3 + Math.floor(random() * 250));

/** All begin alike, as far as they go; their ends are at, and one beside, borders of blocks and of the window. */
const BASE = tokens(397);
const PROMPTS = [37, 40, 62, 63, 64, 65, 77, 79, 80, 126, 128, 143, 200, 397].map((length) => [
  ...BASE.slice(0, length),
  ...tokens(3),
]);

const ids = (said: readonly Said[]): unknown => said.map((answer) => answer.ids);

/** Bytes of a pool of so many blocks. */
async function poolOf(blocks: number): Promise<{ kvMemory: number }> {
  await using asker = await Asker.open('mistral-window');
  return { kvMemory: blocks * 16 * asker.info.kv.bytesPerToken };
}

describe('a tiny Mistral with a window of 64', () => {
  const most = rowBlocks(WINDOW, 16, BATCH);
  const expected: number[][] = [];

  beforeAll(async () => {
    await using device = await createCpuDevice({ threads: 1 });
    const model = await loadFolder(join(MODEL_FIXTURES, 'mistral-window'), device, {
      maxContext: 512,
      kvFormat: { kind: 'float', dtype: 'f16' },
    });
    await using runner = await Runner.create(device, model, { context: 512, chunk: 64 });
    for (const prompt of PROMPTS) expected.push((await runner.generate(prompt, DRAWS)).tokens);
  });

  it('cold, part hit, hit and chunked give the tokens of one that keeps every position', async () => {
    await using off = await Asker.open('mistral-window', { prefixCache: false });
    expect(off.info.kv.layers.every(({ kind }) => kind === 'sliding')).toBe(true);
    const cold = await off.inTurn(PROMPTS);
    expect(ids(cold)).toEqual(expected);
    expect(cold.every(({ cached }) => cached === 0)).toBe(true);

    await using on = await Asker.open('mistral-window', await poolOf(128));
    const first = await on.inTurn(PROMPTS);
    expect(ids(first)).toEqual(expected);
    // Each begins like the one before it for all but its own three tokens.
    for (const [i, { cached }] of first.entries())
      if (i > 0) expect(cached).toBeGreaterThanOrEqual(Math.floor((PROMPTS[i - 1]!.length - 3) / 16) * 16);
    const again = await on.inTurn(PROMPTS);
    expect(ids(again)).toEqual(expected);
    for (const [i, { cached }] of again.entries())
      expect(cached).toBeGreaterThanOrEqual(Math.floor((PROMPTS[i]!.length - 1) / 16) * 16);

    await using chunked = await Asker.open('mistral-window', { maxBatchTokens: 7 });
    expect(ids(await Promise.all(PROMPTS.map((prompt) => chunked.ask(prompt))))).toEqual(expected);
  });

  it('hits behind a front that is gone, and after nothing is left', async () => {
    await using asker = await Asker.open('mistral-window', { ...(await poolOf(most + 6)), maxRows: 1 });
    const long = PROMPTS.at(-1)!;
    expect((await asker.ask(long)).ids).toEqual(expected.at(-1));
    await asker.idle();
    expect(asker.stats().prefixCache!.evictions).toBeGreaterThan(5);
    // Its front is gone, its end is there.
    const again = await asker.ask(long);
    expect(again.ids).toEqual(expected.at(-1));
    expect(again.cached).toBeGreaterThanOrEqual(384);
    // What begins like it finds nothing: all is computed, and the end is lost.
    const short = await asker.ask(PROMPTS[10]!);
    expect(short).toMatchObject({ ids: expected[10], cached: 0 });
    await asker.ask(tokens(300));
    expect((await asker.ask(long)).ids).toEqual(expected.at(-1));
  });

  it('no more blocks than a row holds at once are enough for any length', async () => {
    const small = await poolOf(most);
    await using asker = await Asker.open('mistral-window', { ...small, maxRows: 1, prefixCache: false });
    expect(asker.info.limits.maxContext).toBe(512);
    expect((await asker.ask(PROMPTS.at(-1)!)).ids).toEqual(expected.at(-1));
    await expect(Asker.open('mistral-window', await poolOf(most - 1))).rejects.toMatchObject({
      code: 'kv-memory-too-small',
    });
    // Where the context was not asked for, it is what the pool holds.
    await using least = await Asker.open('mistral-window', {
      ...(await poolOf(most - 1)),
      maxContext: undefined,
    });
    expect(least.info.limits.maxContext).toBe((most - 1) * 16);
  });

  it('rows that give way go on with the same tokens', async () => {
    // Short prompts come in together and grow to their windows.
    const prompts = [3, 9, 12, 20, 37, 62].map((length) => BASE.slice(-length));
    const options = { maxTokens: 120 };
    await using alone = await Asker.open('mistral-window', { prefixCache: false });
    const solo: Said[] = [];
    for (const prompt of prompts) solo.push(await alone.ask(prompt, options));
    for (const prefixCache of [true, false]) {
      await using tight = await Asker.open('mistral-window', {
        ...(await poolOf(most + 2)),
        maxRows: 6,
        prefixCache,
      });
      const said = await Promise.all(prompts.map((prompt) => tight.ask(prompt, options)));
      expect(ids(said)).toEqual(ids(solo));
      expect(tight.stats().preemptions).toBeGreaterThan(0);
    }
  });

  it('nothing that a step reads is given away under it', async () => {
    for (const prefixCache of [false, true]) {
      const watch = new Watch(WINDOW);
      await using asker = await Asker.open(
        'mistral-window',
        { ...(await poolOf(3 * most)), maxRows: 8, prefixCache },
        (device) => watch.wrap(device),
      );
      const lengths = [5, 61, 130, 40, 90, 63, 200, 9, 77, 30, 64, 250];
      const prompts = lengths.map((length, i) => BASE.slice(i, i + length));
      await Promise.all(prompts.map((prompt, i) => asker.ask(prompt, { maxTokens: 90 + i })));
      expect(watch.faults).toEqual([]);
      expect(watch.ahead).toBeGreaterThan(100);
    }
  });

  describe('on disk', () => {
    let folder: string;
    beforeAll(() => {
      folder = mkdtempSync(join(tmpdir(), 'kvant-sliding-cpu-'));
    });
    afterAll(() => {
      rmSync(folder, { recursive: true, force: true });
    });

    it('a restart goes on from the window alone', async () => {
      const options = { ...(await poolOf(most + 6)), maxRows: 1, prefixCacheDir: folder };
      {
        await using asker = await Asker.open('mistral-window', options);
        expect((await asker.ask(PROMPTS.at(-1)!)).ids).toEqual(expected.at(-1));
      }
      await using again = await Asker.open('mistral-window', options);
      const { ids: said, cached } = await again.ask(PROMPTS.at(-1)!);
      expect(said).toEqual(expected.at(-1));
      expect(cached).toBe(384);
      // Positions 321 to 383.
      expect(again.stats().prefixCache!.disk!.restoredBlocks).toBe(4);
    });
  });

  it('keeps floats where KV is to be quantised, early or late', async () => {
    for (const kv of [{ kvBits: 4 }, { kvBits: 3.5, quantizedKvStart: 100, kvSkipLayers: [] }]) {
      await using asker = await Asker.open('mistral-window', { kv, ...(await poolOf(most + 8)) });
      expect(asker.info.kv).toMatchObject({ floatStart: null });
      expect(asker.info.kv.layers.every(({ key, reason }) => key === 'f16' && reason !== undefined)).toBe(
        true,
      );
      expect(ids(await Promise.all(PROMPTS.map((prompt) => asker.ask(prompt))))).toEqual(expected);
    }
  });
});

describe.each([
  ['qwen2-tied-sharded', 32],
  ['gemma2', 32],
  ['gemma3-list', 32],
  // Parallel blocks; full layers without rotation, or with one of their own.
  ['cohere2', 24],
  ['exaone4', 24],
  ['olmo3', 24],
  // Sinks and experts; layers that look at others' keys and values.
  ['gpt-oss', 24],
  ['gemma4-shared', 24],
])('%s, which has layers of both kinds', (MIXED, window) => {
  // The smallest has 67 tokens.
  const prompts = PROMPTS.slice(2).map((prompt) => prompt.slice(-140).map((id) => 3 + (id % 64)));

  it.each([
    {},
    { kvBits: 8 },
    { kvFormat: 'turbo3.5', kvSkipLayers: [] },
    { kvBits: 4, kvSkipLayers: [], quantizedKvStart: 70 },
  ])('gives back what slides, and hits as far as all layers do: %j', async (kv) => {
    await using off = await Asker.open(MIXED, { kv, prefixCache: false, maxContext: 256 });
    const { groups, bytesPerToken } = off.info.kv;
    expect(groups.map(({ window }) => window)).toEqual([null, window]);
    expect(groups.flatMap(({ layers }) => layers).sort()).toEqual(
      off.info.kv.layers.map(({ layer }) => layer),
    );
    expect(groups.reduce((sum, group) => sum + group.bytesPerToken, 0)).toBe(bytesPerToken);
    // A row's window and the chunks of two steps, whatever its context.
    expect(groups[1]!.blocks).toBeLessThanOrEqual(4 * rowBlocks(window, 16, BATCH));
    const cold = await off.inTurn(prompts);
    await using on = await Asker.open(MIXED, { kv, maxContext: 256, maxRows: 16 });
    expect(ids(await on.inTurn(prompts))).toEqual(ids(cold));
    const again = await on.inTurn(prompts);
    expect(ids(again)).toEqual(ids(cold));
    for (const [i, { cached }] of again.entries())
      expect(cached).toBeGreaterThanOrEqual(Math.floor((prompts[i]!.length - 1) / 16) * 16);
    // All at once, in a pool that is short of blocks.
    await using short = await Asker.open(MIXED, { kv, maxContext: 256, maxRows: 8, kvMemory: 400_000 });
    expect(ids(await Promise.all(prompts.map((prompt) => short.ask(prompt))))).toEqual(ids(cold));
  });

  it('says the same as one that keeps every position of every layer', async () => {
    await using device = await createCpuDevice({ threads: 1 });
    const model = await loadFolder(join(MODEL_FIXTURES, MIXED), device, {
      maxContext: 256,
      kvFormat: { kind: 'float', dtype: 'f16' },
    });
    await using runner = await Runner.create(device, model, { context: 256, chunk: 64 });
    const expected: number[][] = [];
    for (const prompt of prompts) expected.push((await runner.generate(prompt, DRAWS)).tokens);
    await using engine = await Asker.open(MIXED, { kv: { kvFormat: 'f16' }, maxContext: 256 });
    expect(ids(await engine.inTurn(prompts))).toEqual(expected);
  });
});

/** Parallel blocks; layers with and without rotation; multipliers; queries that grow with their position; norms behind the rotation. */
describe.each(['cohere2', 'smollm3', 'exaone4', 'granite4', 'ministral3', 'hunyuan'])('%s', (name) => {
  it('says alone what it says in company, in any pieces, from the cache, and after it gave way', async () => {
    const prompts = PROMPTS.slice(0, 8).map((prompt) => prompt.slice(-90));
    const options = { maxContext: 256, prefixCache: false };
    await using alone = await Asker.open(name, { ...options, maxRows: 1, maxBatchTokens: 256 });
    const expected = ids(await alone.inTurn(prompts));
    const together = async (asker: Asker): Promise<unknown> =>
      ids(await Promise.all(prompts.map((prompt) => asker.ask(prompt))));
    await using pieces = await Asker.open(name, { ...options, maxRows: 8, maxBatchTokens: 11 });
    expect(await together(pieces)).toEqual(expected);
    await using cached = await Asker.open(name, { ...options, prefixCache: true });
    await cached.inTurn(prompts);
    const again = await cached.inTurn(prompts);
    expect(ids(again)).toEqual(expected);
    expect(again.every(({ cached: hit }) => hit > 0)).toBe(true);
    // Short prompts come in together, and grow beyond what the pool holds.
    const short = [3, 9, 12, 20, 37, 62].map((length) => BASE.slice(-length));
    const long = { maxTokens: 100 };
    const solo: Said[] = [];
    for (const prompt of short) solo.push(await alone.ask(prompt, long));
    const kvMemory = 17 * 16 * alone.info.kv.bytesPerToken;
    await using tight = await Asker.open(name, { ...options, maxRows: 6, kvMemory });
    const said = await Promise.all(short.map((prompt) => tight.ask(prompt, long)));
    expect(ids(said)).toEqual(ids(solo));
    expect(tight.stats().preemptions).toBeGreaterThan(0);
  });
});
