/** The design's promises 1 and 2 for every way to store K and V, on the CPU: bitwise. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createCpuDevice } from '../../src/device/cpu/index.js';
import { Engine } from '../../src/engine/engine.js';
import type { EngineOptions, GenerateRequest } from '../../src/engine/types.js';
import { seeded } from './core-harness.js';
import { Watch } from './watched-device.js';

const MODEL = new URL('../../models/demo-text', import.meta.url).pathname;

const TEXTS = [
  'The capital of France is',
  'Once upon a time there was a small dog who lived by the sea. Every morning',
  'user: What is the currency of Japan?\nassistant:',
  'Record: name = Maria, city = Oslo, colour = green, code = 4471. Record: name = Peter, city = Rome, colour = blue, code = 9120. The code of Peter is',
];

const REQUESTS: readonly GenerateRequest[] = Array.from({ length: 6 }, (_, i) => ({
  prompt: TEXTS[i % 4]!.repeat(1 + (i % 3)).slice(i % 5),
  maxTokens: 12 + ((i * 7) % 16),
  ignoreEos: true,
  ...(i % 2 === 0 ? { temperature: 0 } : { temperature: 0.8, seed: i }),
}));

const load = (options: EngineOptions): Promise<Engine> =>
  Engine.load(MODEL, { device: 'cpu', maxContext: 160, prefixCache: false, ...options });

const answer = async (engine: Engine, request: GenerateRequest): Promise<readonly number[]> =>
  (await engine.generate(request).result).tokenIds;

const WAYS: readonly EngineOptions[] = [
  { kvBits: 8 },
  { kvFormat: 'affine4-g32' },
  { kvBits: 3.5 },
  { kvFormat: 'turbo8/affine8', kvSkipLayers: [], kvFloatHead: 32 },
  { kvFormat: 'turbo8/affine2-g128', kvSkipLayers: [0] },
  { kvBits: 3.5, kvSkipLayers: [], kvFloatTail: 20 },
  { kvFormat: 'affine8/turbo4', blockTokens: 32 },
];

describe.each(WAYS)('KV kept as %j', (way) => {
  let alone: (readonly number[])[];
  let engine: Engine;
  beforeAll(async () => {
    engine = await load({ ...way, maxRows: 8, maxBatchTokens: 96 });
    alone = [];
    for (const request of REQUESTS) alone.push(await answer(engine, request));
  });
  afterAll(() => engine.close());

  it('alone equals in a batch, with joins and leaves', async () => {
    const random = seeded(2);
    const jobs: Promise<readonly number[]>[] = [];
    for (const request of REQUESTS) {
      jobs.push(answer(engine, request));
      if (random() < 0.4) await new Promise((resolve) => setTimeout(resolve, random() * 10));
    }
    expect(await Promise.all(jobs)).toEqual(alone);
  });

  it('chunks do not show, nor does giving way', async () => {
    const { blockTokens = 16 } = way;
    const bytes = engine.info.kv.bytesPerToken * blockTokens;
    // Half of it goes to float heads. A tail has room for a row besides.
    const { groups } = engine.info.kv;
    const parts = groups.filter(({ tail }) => !tail).length;
    const besides = 160 * (groups.find(({ tail }) => tail)?.bytesPerToken ?? 0);
    const kvMemory = parts * bytes * (160 / blockTokens) + besides;
    const options = { ...way, maxRows: 4, maxBatchTokens: 7, kvMemory };
    await using other = await load(options);
    expect(await Promise.all(REQUESTS.map((request) => answer(other, request)))).toEqual(alone);
    const long = TEXTS.slice(0, 3).map((prompt) => ({
      prompt,
      maxTokens: 48,
      temperature: 0,
      ignoreEos: true,
    }));
    const grown = await Promise.all(long.map((request) => answer(other, request)));
    expect(grown).toEqual(await Promise.all(long.map((request) => answer(engine, request))));
    // With a float head fewer rows are in; prefix-cpu.test.ts has such that give way.
    if (parts === 1) expect((await other.stats()).preemptions).toBeGreaterThan(0);
  });
});

describe('KV quantised late', () => {
  const way: EngineOptions = { kvBits: 3.5, kvSkipLayers: [], quantizedKvStart: 30 };

  it('has a float tail before and after: chunks do not show', async () => {
    const tailed = { ...way, kvFloatTail: 24 };
    await using whole = await load({ ...tailed, maxRows: 8, maxBatchTokens: 96 });
    await using cut = await load({ ...tailed, maxRows: 4, maxBatchTokens: 7 });
    const alone = [];
    for (const request of REQUESTS.slice(0, 3)) alone.push(await answer(whole, request));
    expect(await Promise.all(REQUESTS.slice(0, 3).map((request) => answer(cut, request)))).toEqual(alone);
  });

  it('rows of both kinds share batches, whatever the chunks, and nothing that is in use is touched', async () => {
    const watch = new Watch();
    await using engine = await Engine.load(
      MODEL,
      { ...way, maxContext: 160, maxRows: 8, maxBatchTokens: 96, prefixCache: false, worker: false },
      {
        makeDevice: async () => ({
          device: watch.wrap(await createCpuDevice({ threads: 2 })),
          reason: 'watched',
        }),
      },
    );
    const alone: (readonly number[])[] = [];
    for (const request of REQUESTS) alone.push(await answer(engine, request));
    const converted = watch.conversions;
    expect(converted).toBeGreaterThan(3);
    expect(await Promise.all(REQUESTS.map((request) => answer(engine, request)))).toEqual(alone);
    expect(watch.conversions).toBe(2 * converted);
    expect(watch.faults).toEqual([]);
    const { bytesPerToken, floatStart } = engine.info.kv;
    const kvMemory = 16 * (12 * bytesPerToken + 4 * 8192);
    expect(floatStart).toEqual({ start: 30, dtype: 'f16', blocks: 16 });
    await using small = await load({ ...way, maxRows: 4, maxBatchTokens: 7, kvMemory });
    expect(await Promise.all(REQUESTS.map((request) => answer(small, request)))).toEqual(alone);
  });
});

it('the formats differ in what they answer, late ones from the first and from floats: they are in use', async () => {
  const answers = new Set<string>();
  for (const way of [
    { kvFormat: 'affine2' },
    { kvFormat: 'turbo2' },
    { kvFormat: 'turbo2', quantizedKvStart: 40 },
    // No row comes so far: its K and V stay f16.
    { kvFormat: 'turbo2', quantizedKvStart: 200 },
  ]) {
    await using engine = await load({ ...way, kvSkipLayers: [], maxRows: 8 });
    answers.add(JSON.stringify(await Promise.all(REQUESTS.map((request) => answer(engine, request)))));
  }
  expect(answers.size).toBe(4);
});
