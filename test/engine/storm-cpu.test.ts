/**
 * Hundreds of requests on the CPU device, through the library and over HTTP, of all priorities and two keys, in a pool a third of
 * what its rows ask for; some are aborted, some left, some lose their connection. Who comes to an end has the answer that it gets
 * alone, and nothing is left behind.
 */
import { getEventListeners } from 'node:events';
import { expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import type { GenerateRequest } from '../../src/engine/types.js';
import { listen } from '../../src/server/index.js';
import { everyCase } from '../setup/every-case.js';
import { seeded } from './core-harness.js';

const MODEL = new URL('../../models/demo-text', import.meta.url).pathname;
const REQUESTS = everyCase ? 500 : 250;
const KINDS = 40;

type Ask = Pick<GenerateRequest, 'prompt' | 'maxTokens' | 'temperature' | 'seed'> & { prompt: number[] };

/** Forty different requests: lengths from one token to some blocks, greedy and drawn. */
function kinds(vocab: number): Ask[] {
  const random = seeded(11);
  const below = (limit: number): number => Math.floor(random() * limit);
  return Array.from({ length: KINDS }, (_, i) => ({
    prompt: Array.from({ length: 1 + below(i % 8 === 0 ? 60 : 12) }, () => below(vocab)),
    maxTokens: i % 4 === 1 ? 44 : 2 + below(12),
    temperature: i % 2,
    seed: 100 + i,
  }));
}

const timers = (): number => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;

it(`${REQUESTS} requests: what ends is what it is alone, and nothing is left behind`, async () => {
  const options = { device: 'cpu', maxContext: 112, maxBatchTokens: 64, maxQueue: 600 } as const;
  const { bytesPerToken } = await (async () => {
    await using probe = await Engine.load(MODEL, options);
    return probe.info.kv;
  })();
  // Twelve rows of two or three blocks at their end: room for a third.
  await using engine = await Engine.load(MODEL, {
    ...options,
    maxRows: 12,
    kvMemory: 8 * 16 * bytesPerToken,
  });
  const server = await listen({ engine, port: 0, apiKey: ['one', 'two'], maxPriority: 10 });
  const asks = kinds(engine.info.model.vocabSize);
  const alone: (readonly number[])[] = [];
  const texts: string[] = [];
  for (const ask of asks) {
    const { tokenIds, text } = await engine.generate({ ...ask, ignoreEos: true }).result;
    alone.push(tokenIds);
    texts.push(text);
  }
  const timersBefore = timers();

  const random = seeded(5);
  const below = (limit: number): number => Math.floor(random() * limit);
  const seen = { ended: 0, aborted: 0, left: 0, http: 0, disconnected: 0 };
  const signals: AbortSignal[] = [];

  const library = async (kind: number, fate: number, priority: number): Promise<void> => {
    const abort = new AbortController();
    signals.push(abort.signal);
    const generation = engine.generate({
      ...asks[kind]!,
      ignoreEos: true,
      priority,
      share: `group ${kind % 3}`,
      signal: abort.signal,
    });
    if (fate === 0) setTimeout(() => abort.abort(), below(60));
    if (fate === 1) {
      for await (const _ of generation) break;
      seen.left++;
      return;
    }
    const { tokenIds, finishReason } = await generation.result;
    if (finishReason === 'cancelled') {
      seen.aborted++;
      expect(tokenIds).toEqual(alone[kind]!.slice(0, tokenIds.length));
      return;
    }
    seen.ended++;
    expect(tokenIds).toEqual(alone[kind]);
  };

  const http = async (kind: number, fate: number, priority: number): Promise<void> => {
    const abort = new AbortController();
    const { prompt, maxTokens, temperature, seed } = asks[kind]!;
    if (fate < 2) setTimeout(() => abort.abort(), below(60));
    try {
      const response = await fetch(`${server.url}/v1/completions`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${kind % 2 === 0 ? 'one' : 'two'}`,
          'content-type': 'application/json',
          'x-priority': String(priority),
        },
        body: JSON.stringify({ prompt, max_tokens: maxTokens, temperature, seed, ignore_eos: true }),
        signal: abort.signal,
      });
      const body = (await response.json()) as { choices: { text: string }[] };
      expect(response.status).toBe(200);
      expect(body.choices[0]!.text).toBe(texts[kind]);
      seen.http++;
    } catch (error) {
      if (!abort.signal.aborted) throw error;
      seen.disconnected++;
    }
  };

  const jobs: Promise<void>[] = [];
  for (let i = 0; i < REQUESTS; i++) {
    const send = i % 4 === 3 ? http : library;
    jobs.push(send(below(KINDS), below(8), below(21) - 10));
    if (random() < 0.1) await new Promise((resolve) => setTimeout(resolve, below(20)));
  }
  await Promise.all(jobs);

  let stats = await engine.stats();
  for (let i = 0; i < 500 && stats.slotsUsed + stats.queued + stats.stepsInFlight > 0; i++) {
    await new Promise((resolve) => setTimeout(resolve, 5));
    stats = await engine.stats();
  }
  expect(stats).toMatchObject({ slotsUsed: 0, blocksUsed: 0, queued: 0, stepsInFlight: 0, refused: 0 });
  // How many depends on how fast requests come beside how fast they are answered.
  expect(stats.preemptions).toBeGreaterThan(0);
  expect(seen.ended).toBeGreaterThan(0.4 * REQUESTS);
  expect(seen.http).toBeGreaterThan(0.12 * REQUESTS);
  expect(Math.min(seen.aborted, seen.left, seen.disconnected)).toBeGreaterThan(5);
  for (const signal of signals) expect(getEventListeners(signal, 'abort')).toHaveLength(0);
  await server.close();
  expect(timers()).toBeLessThanOrEqual(timersBefore);
});
