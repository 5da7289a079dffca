/** Cached prefixes over many requests: the host's memory stays flat, and under all that can happen answers stay what they are. */
import { expect, it, vi } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import type { GenerateRequest } from '../../src/engine/types.js';
import { seeded } from '../engine/core-harness.js';
import { loadOracle } from '../engine/engine-harness.js';
import { expectFlat, heapUsed } from './heap.js';

it('20,000 steps in a pool that is always full leave the heap flat', async () => {
  const { engine } = await loadOracle({ maxContext: 256, maxRows: 4 });
  const random = seeded(1);
  const system = Array.from({ length: 60 }, () => Math.floor(random() * 4000));
  const heaps: number[] = [];
  let window = 2000;
  while ((await engine.stats()).steps < 20_000) {
    await Promise.all(
      Array.from({ length: 8 }, (_, k) => {
        const own = Array.from({ length: 90 }, () => Math.floor(random() * 4000));
        return engine.generate({ prompt: k % 2 ? [...system, ...own] : own, maxTokens: 30, ignoreEos: true })
          .result;
      }),
    );
    // A row that ended has one more step to go.
    while ((await engine.stats()).slotsUsed > 0) await new Promise((resolve) => setImmediate(resolve));
    if ((await engine.stats()).steps < window) continue;
    window += 2000;
    heaps.push(heapUsed());
  }
  const { prefixCache, blocksUsed } = await engine.stats();
  expect(prefixCache!.evictions).toBeGreaterThan(1000);
  expect(blocksUsed).toBe(0);
  expectFlat(heaps.slice(1), 150_000);
  await engine.close();
});

it.each([
  { kvBits: 8, quantizedKvStart: 40 },
  { kvFormat: 'turbo3.5', kvSkipLayers: [], kvFloatHead: 32 },
])(
  '250 requests of a real model, many aborted, in a pool of a third of the demand: as alone, %j',
  async (kv) => {
    const model = new URL('../../models/demo-text', import.meta.url).pathname;
    const system =
      'Record: name = Maria, city = Oslo, colour = green, code = 4471. Record: name = Peter, city = Rome, colour = blue, code = 9120. ';
    const kinds: GenerateRequest[] = Array.from({ length: 20 }, (_, i) => ({
      prompt: `${system.slice(0, (i % 5) * 32)}${['The code of Peter is', 'Once upon a time', 'In the city of Oslo'][i % 3]}`,
      maxTokens: 8 + ((i * 7) % 25),
      ignoreEos: true,
      ...(i % 2 === 0 ? { temperature: 0 } : { temperature: 0.9, seed: i }),
    }));
    const options = { device: 'cpu', maxContext: 128, ...kv } as const;
    const alone: (readonly number[])[] = [];
    await using off = await Engine.load(model, { ...options, prefixCache: false });
    for (const kind of kinds) alone.push((await off.generate(kind).result).tokenIds);

    // Eight rows of about 70 tokens would want 40 blocks.
    const { bytesPerToken } = off.info.kv;
    const kvMemory = 16 * (12 * bytesPerToken + 8 * 8192);
    await using engine = await Engine.load(model, { ...options, maxRows: 8, maxQueue: 300, kvMemory });
    const random = seeded(2);
    let complete = 0;
    const jobs: Promise<void>[] = [];
    for (let i = 0; i < 250; i++) {
      const kind = Math.floor(random() * kinds.length);
      const abort = new AbortController();
      const generation = engine.generate({ ...kinds[kind]!, signal: abort.signal });
      if (random() < 0.4) setTimeout(() => abort.abort(), random() * 4000);
      jobs.push(
        generation.result.then(({ finishReason, tokenIds }) => {
          if (finishReason === 'length') {
            complete++;
            expect(tokenIds).toEqual(alone[kind]);
          } else {
            expect(finishReason).toBe('cancelled');
            expect(alone[kind]!.slice(0, tokenIds.length)).toEqual(tokenIds);
          }
        }),
      );
    }
    await Promise.all(jobs);
    expect(complete).toBeGreaterThan(140);
    expect((await engine.stats()).prefixCache!.hits).toBeGreaterThan(50);
    const nothing = { slotsUsed: 0, blocksUsed: 0, floatStartBlocksUsed: 0, stepsInFlight: 0, queued: 0 };
    await vi.waitFor(async () => expect(await engine.stats()).toMatchObject(nothing));
    // close() throws if a block is still held.
  },
);
