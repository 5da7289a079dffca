/** Requests with pictures leave nothing behind: read, left, refused, sixteen at once. */
import sharp from 'sharp';
import { expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import { MODEL } from '../engine/vision-cases.js';
import { everyCase } from '../setup/every-case.js';
import { expectFlat, heapUsed } from './heap.js';

const AT_ONCE = 16;
// The windows after which all is counted: eight of them, or five.
const [REQUESTS, WINDOW] = everyCase ? [2048, 256] : [640, 128];
const DIFFERENT = 24;

it(`${REQUESTS} requests with pictures leave slabs, blocks, features and memory flat`, async () => {
  const images = await Promise.all(
    Array.from({ length: DIFFERENT }, (_, i) =>
      sharp({ create: { width: 8, height: 8, channels: 3, background: { r: i * 10, g: 0, b: 99 } } })
        .png()
        .toBuffer(),
    ),
  );
  await using engine = await Engine.load(MODEL, {
    device: 'cpu',
    worker: false,
    threads: 2,
    maxContext: 64,
    maxRows: AT_ONCE,
    // What is found there needs no features.
    prefixCache: false,
    // Room for 17 pictures of 4 tokens: they push each other out.
    imageCacheBytes: 17 * 4 * 256 * 4,
  });
  const ask = async (i: number): Promise<void> => {
    const image = i % 50 === 7 ? Buffer.from('no picture') : images[(i * 7) % DIFFERENT]!;
    const controller = new AbortController();
    const run = engine.chat({
      messages: [{ role: 'user', content: [{ type: 'image', image }] }],
      maxTokens: 2,
      ignoreEos: true,
      temperature: 0,
      signal: controller.signal,
    });
    try {
      for await (const _ of run) if (i % 3 === 2) controller.abort();
    } catch (error) {
      if (i % 3 !== 2 && i % 50 !== 7) throw error;
    }
  };
  const idle = async () => {
    for (;;) {
      const stats = await engine.stats();
      if (stats.slotsUsed + stats.queued === 0) return stats;
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  const heaps: number[] = [];
  const outside: number[] = [];
  const devices = new Set<string>();
  for (let i = 0; i < REQUESTS; i += AT_ONCE) {
    await Promise.all(Array.from({ length: AT_ONCE }, (_, k) => ask(i + k)));
    if ((i + AT_ONCE) % WINDOW !== 0) continue;
    const { features, device, blocksUsed } = await idle();
    expect(blocksUsed).toBe(0);
    expect(features).toMatchObject({ references: 0 });
    expect(features!.entries).toBeLessThanOrEqual(17);
    devices.add(JSON.stringify({ ...device, peakBytes: 0 }));
    heaps.push(heapUsed());
    outside.push(process.memoryUsage().arrayBuffers);
  }
  const { features } = await idle();
  expect(features!.evictions).toBeGreaterThan(100);
  expect(devices.size).toBe(1);
  // What stayed of a request would be 1 kB or more, of 128 in a window; patches of a picture are 75 kB.
  expectFlat(heaps, 100_000);
  expectFlat(outside, 100_000);
});
