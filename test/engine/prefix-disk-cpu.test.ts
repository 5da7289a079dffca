/** Prefixes from disk on the CPU, bitwise, for every way to store K and V: a restart does not show. */
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import type { EngineOptions, GenerateRequest } from '../../src/engine/types.js';
import { casesOf } from '../setup/every-case.js';

const MODEL = new URL('../../models/demo-text', import.meta.url).pathname;

const SYSTEM =
  'Record: name = Maria, city = Oslo, colour = green, code = 4471. Record: name = Peter, city = Rome, colour = blue, code = 9120. Record: name = Lucy, city = Lima, colour = red, code = 3356. ';

const REQUESTS: readonly GenerateRequest[] = [
  `${SYSTEM}The code of Peter is`,
  `${SYSTEM}The city of Lucy is`,
  `${SYSTEM}The code of Peter is`,
  'Once upon a time there was a small dog who lived by the sea. Every morning it ran along the water, looked at the ships and barked at the birds. One morning',
].map((prompt, i) => ({
  prompt,
  maxTokens: 10,
  ignoreEos: true,
  ...(i % 2 === 0 ? { temperature: 0 } : { temperature: 0.8, seed: i }),
}));

const WAYS: readonly EngineOptions[] = casesOf<EngineOptions>(
  [
    {},
    { kvFormat: 'f32' },
    { kvBits: 8 },
    { kvFormat: 'affine6/affine5', kvSkipLayers: [] },
    { kvFormat: 'turbo8/affine2-g128', kvSkipLayers: [0] },
    { kvFormat: 'affine8/turbo4', blockTokens: 32 },
    { kvBits: 3.5, kvSkipLayers: [], quantizedKvStart: 40 },
    { kvFormat: 'turbo4/affine3', kvSkipLayers: [], kvFloatHead: 32 },
    { kvFormat: 'affine4', kvFloatTail: 40 },
  ],
  [
    { kvFormat: 'affine4-g32' },
    { kvFormat: 'affine3/affine2', kvSkipLayers: [] },
    { kvBits: 3.5 },
    { kvFormat: 'turbo2/turbo3', kvSkipLayers: [] },
    { kvBits: 8, quantizedKvStart: 48 },
  ],
);

/** Codes of both kinds, with floats first and without. */
const AT_ONCE = WAYS.filter(
  ({ kvFormat, kvBits, kvFloatHead }) =>
    kvFloatHead !== undefined || kvBits === 3.5 || kvFormat === 'affine4-g32',
);

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'kvant-disk-cpu-'));
});
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

const load = (options: EngineOptions): Promise<Engine> =>
  Engine.load(MODEL, { device: 'cpu', threads: 1, maxContext: 160, maxRows: 4, ...options });

async function ask(engine: Engine): Promise<{ ids: readonly number[][]; cached: number[] }> {
  const ids: number[][] = [];
  const cached: number[] = [];
  for (const request of REQUESTS) {
    const { tokenIds, usage } = await engine.generate(request).result;
    ids.push([...tokenIds]);
    cached.push(usage.cachedTokens);
  }
  return { ids, cached };
}

const signatures = (): string[] => readdirSync(folder);

describe.each(WAYS)('KV kept as %j', (way) => {
  it('what comes from disk after a restart gives the same tokens', async () => {
    const before = signatures().length;
    let expected: Awaited<ReturnType<typeof ask>>;
    {
      await using off = await load({ ...way, prefixCache: false });
      expected = await ask(off);
      expect(expected.cached).toEqual([0, 0, 0, 0]);
    }
    {
      await using first = await load({ ...way, maxBatchTokens: 64, prefixCacheDir: folder });
      expect((await ask(first)).ids).toEqual(expected.ids);
      expect((await first.stats()).prefixCache!.disk!.restoredBlocks).toBe(0);
    }
    // Another number of threads and other chunks change nothing.
    await using second = await load({ ...way, threads: 2, maxBatchTokens: 24, prefixCacheDir: folder });
    const said = await ask(second);
    expect(said.ids).toEqual(expected.ids);
    expect(said.cached.every((tokens) => tokens > 0)).toBe(true);
    const { restoredTokens, corrupt, foreign, readErrors } = (await second.stats()).prefixCache!.disk!;
    expect(restoredTokens).toBeGreaterThan(64);
    expect({ corrupt, foreign, readErrors }).toEqual({ corrupt: 0, foreign: 0, readErrors: 0 });
    if (AT_ONCE.includes(way)) {
      // All of them come from disk at once, in the same steps.
      await using third = await load({ ...way, maxBatchTokens: 48, prefixCacheDir: folder });
      const results = await Promise.all(REQUESTS.map((request) => third.generate(request).result));
      expect(results.map(({ tokenIds }) => [...tokenIds])).toEqual(expected.ids);
      expect(results.every(({ usage }) => usage.cachedTokens > 0)).toBe(true);
      expect((await third.stats()).prefixCache!.disk!.restoredTokens).toBeGreaterThan(64);
    }
    // Every way has a place of its own.
    expect(signatures()).toHaveLength(before + 1);
  });
});

it('a folder makes no sense without the cache, nor a size without a folder', async () => {
  await expect(load({ prefixCache: false, prefixCacheDir: folder })).rejects.toMatchObject({
    code: 'invalid-option',
    where: 'prefixCacheDir',
  });
  await expect(load({ prefixCacheDiskBytes: 1e9 })).rejects.toMatchObject({
    code: 'invalid-option',
    where: 'prefixCacheDiskBytes',
  });
  await expect(load({ prefixCacheDir: join(MODEL, 'config.json') })).rejects.toMatchObject({
    code: 'prefix-cache-dir-unusable',
  });
});
