/** What the caller's side keeps of a request is gone with it: read, unread, left, cancelled or refused. */
import { expect, it } from 'vitest';
import type { Engine } from '../../src/engine/engine.js';
import { loadOracle, refusal } from '../engine/engine-harness.js';
import { expectFlat, heapUsed } from './heap.js';

async function ask(engine: Engine, i: number, signal: AbortSignal): Promise<void> {
  const request = { prompt: [i % 4000, 7], maxTokens: 1 + (i % 9), temperature: 0, ignoreEos: true, signal };
  switch (i % 6) {
    case 0:
      for await (const _ of engine.generate(request));
      return;
    case 1:
      for await (const _ of engine.generate(request)) break;
      return;
    case 2: {
      const generation = engine.generate({ ...request, n: 2 });
      setImmediate(() => generation.cancel());
      await generation.result;
      return;
    }
    case 3:
      await refusal(engine.generate({ ...request, prompt: [] }).accepted);
      return;
    case 4:
      await engine.stats();
      await engine.generate({ ...request, signal: AbortSignal.abort() }).result;
      return;
    default:
      // Nobody looks at it at all.
      engine.generate(request);
  }
}

it('12,000 requests leave the heap flat', async () => {
  const { engine } = await loadOracle({ maxQueue: 10_000 });
  const { signal } = new AbortController();
  const heaps: number[] = [];
  for (let i = 0; i < 12_000; i += 10) {
    await Promise.all(Array.from({ length: 10 }, (_, k) => ask(engine, i + k, signal)));
    if ((i + 10) % 1200 !== 0) continue;
    while ((await engine.stats()).slotsUsed > 0) await new Promise((resolve) => setImmediate(resolve));
    heaps.push(heapUsed());
  }
  const { finished, refused } = await engine.stats();
  expect(refused).toBe(2000);
  expect(finished.length).toBeGreaterThanOrEqual(4000);
  expect(finished.cancelled).toBeGreaterThan(2000);
  expect(heaps).toHaveLength(10);
  // A request that stayed would be 1 kB or more, of 1,200 in a window.
  expectFlat(heaps, 120_000);
  await engine.close();
});
