/** The design's promises 1, 2 and 4 on the real thing: the demo model on the CPU device, bitwise. */
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { createCpuDevice } from '../../src/device/cpu/index.js';
import { Engine } from '../../src/engine/engine.js';
import type { EngineOptions, GenerateRequest } from '../../src/engine/types.js';
import { seeded } from './core-harness.js';
import { Watch } from './watched-device.js';

const MODEL = new URL('../../models/demo-text', import.meta.url).pathname;

const TEXTS = [
  'The capital of France is',
  'Once upon a time there was a small dog who lived by the sea. Every morning',
  'Anna has 3 apples and Ben has 5 apples. Together they',
  'user: What is the currency of Japan?\nassistant:',
  'Record: name = Maria, city = Oslo, colour = green, code = 4471. Record: name = Peter, city = Rome, colour = blue, code = 9120. Record: name = Lucy, city = Lima, colour = red, code = 3356. The code of Peter is',
];

/** 24 requests of mixed lengths and parameters; the fifth text repeated makes prompts of several chunks. */
function requests(): GenerateRequest[] {
  return Array.from({ length: 24 }, (_, i) => ({
    prompt: TEXTS[i % 5]!.repeat(1 + (i % 3)).slice(i % 7),
    maxTokens: 6 + ((i * 7) % 26),
    ...(i % 2 === 0
      ? { temperature: 0 }
      : {
          temperature: 0.5 + (i % 4) * 0.3,
          seed: 1000 + i,
          topK: (i % 3) * 10,
          topP: i % 5 === 0 ? 0.9 : 1,
        }),
    ...(i % 4 === 0 ? { stop: ['. ', '\n\n'] } : {}),
  }));
}

type Answer = { readonly tokenIds: readonly number[]; readonly text: string; readonly finishReason: string };

async function answer(engine: Engine, request: GenerateRequest): Promise<Answer> {
  const { tokenIds, text, finishReason } = await engine.generate(request).result;
  return { tokenIds, text, finishReason };
}

function load(options: EngineOptions): Promise<Engine> {
  // All is computed every time; test/engine/prefix-cpu.test.ts has what was cached.
  return Engine.load(MODEL, { device: 'cpu', maxContext: 512, prefixCache: false, ...options });
}

describe('the demo model on the CPU', () => {
  let alone: Answer[];
  let engine: Engine;
  beforeAll(async () => {
    engine = await load({ maxRows: 16, maxBatchTokens: 96 });
    alone = [];
    for (const request of requests()) alone.push(await answer(engine, request));
  });
  afterAll(() => engine.close());

  it('answers', async () => {
    const { text } = await engine.chat({
      messages: [{ role: 'user', content: 'What is the capital of Paraguay?' }],
      temperature: 0,
    }).result;
    expect(text).toBe('The capital of Paraguay is Asuncion.');
    expect(new Set(alone.map((one) => one.finishReason))).toContain('stop');
  });

  it('promise 1: alone equals in a batch of 16 with joins and leaves, token for token', async () => {
    const random = seeded(4);
    const jobs: Promise<Answer>[] = [];
    for (const request of requests()) {
      jobs.push(answer(engine, request));
      // Some join at once, some while others are well under way; aborted ones come and go beside them.
      if (random() < 0.3) await new Promise((resolve) => setTimeout(resolve, random() * 12));
      if (random() < 0.3) {
        const passing = engine.generate({ prompt: TEXTS[4]!, maxTokens: 60, temperature: 1 });
        setTimeout(() => passing.cancel(), random() * 15);
      }
    }
    expect(await Promise.all(jobs)).toEqual(alone);
    // The end of a row is told while the step that holds its dropped token is still under way.
    await vi.waitFor(async () =>
      expect(await engine.stats()).toMatchObject({ slotsUsed: 0, blocksUsed: 0, stepsInFlight: 0 }),
    );
  });

  it('choices of one request draw what they draw alone, whatever their number', async () => {
    const request = { prompt: TEXTS[1]!, maxTokens: 16, temperature: 1, seed: 77 };
    const one = await engine.generate(request).result;
    const four = await engine.generate({ ...request, n: 4 }).result;
    expect(four.choices[0]!.tokenIds).toEqual(one.tokenIds);
    expect(new Set(four.choices.map((choice) => choice.text)).size).toBe(4);
    const again = await engine.generate({ ...request, n: 4 }).result;
    expect(again.choices).toEqual(four.choices);
  });

  for (const maxBatchTokens of [1, 7, 64, 512]) {
    it(`promise 2: chunks of at most ${maxBatchTokens} tokens do not show`, async () => {
      await using other = await load({
        maxRows: 3,
        maxBatchTokens,
        blockTokens: maxBatchTokens === 64 ? 32 : 16,
      });
      const chosen = [4, 9, 14, 19, 3, 22];
      const all = requests();
      expect(await Promise.all(chosen.map((i) => answer(other, all[i]!)))).toEqual(
        chosen.map((i) => alone[i]),
      );
    });
  }

  it('a pool a third of the demand: rows give way and are computed again, and nothing shows', async () => {
    const long = TEXTS.slice(0, 4).flatMap((prompt, i): GenerateRequest[] => [
      { prompt, maxTokens: 60, temperature: 0, ignoreEos: true },
      { prompt, maxTokens: 60, temperature: 0.9, seed: i, ignoreEos: true },
    ]);
    // 8 layers, K and V, 2 heads of 128 in f16: 8 KiB a token.
    await using other = await load({ maxRows: 8, maxBatchTokens: 64, maxContext: 128, kvMemory: 192 * 8192 });
    expect(other.info.kv.blocks).toBe(12);
    const crowded = await Promise.all(long.map((request) => answer(other, request)));
    expect((await other.stats()).preemptions).toBeGreaterThan(0);
    expect(crowded).toEqual(await Promise.all(long.map((request) => answer(engine, request))));
  });

  it('promise 4: one step ahead of the host, and nothing that a step names is touched under it', async () => {
    const watch = new Watch();
    await using other = await Engine.load(
      MODEL,
      {
        maxRows: 4,
        maxBatchTokens: 48,
        maxContext: 256,
        kvMemory: 256 * 2 * 8192,
        prefixCache: false,
        worker: false,
      },
      {
        makeDevice: async () => ({
          device: watch.wrap(await createCpuDevice({ threads: 2 })),
          reason: 'watched',
        }),
      },
    );
    const jobs = requests().map((request) => answer(other, request));
    const passing = TEXTS.map((prompt) => other.generate({ prompt, maxTokens: 60 }));
    setTimeout(() => {
      for (const generation of passing) generation.cancel();
    }, 20);
    expect(await Promise.all(jobs)).toEqual(alone);
    await Promise.all(passing.map((generation) => generation.result));
    expect(watch.faults).toEqual([]);
    expect(watch.mostInFlight).toBe(2);
    // Every step but the first after an idle moment was submitted before the host had the ids before it.
    expect(watch.ahead).toBeGreaterThan(0.9 * watch.submits);
  });
});
