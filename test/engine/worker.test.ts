/** The engine on a thread of its own: the demo model on the CPU, asked by many at once. */
import type { Worker } from 'node:worker_threads';
import { describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import type { Delta } from '../../src/engine/types.js';
import { KvantError } from '../../src/errors.js';
import { seeded } from './core-harness.js';

const MODEL = new URL('../../models/demo-text', import.meta.url).pathname;
const options = { device: 'cpu', maxContext: 512, maxRows: 8, maxBatchTokens: 64 } as const;

describe('the engine on its thread', () => {
  it('an abort storm: the rest are right, rows and blocks are back to zero', async () => {
    await using engine = await Engine.load(MODEL, options);
    const random = seeded(31);
    const questions = ['France', 'Haiti', 'Paraguay', 'Japan'].map((country) => ({
      messages: [{ role: 'user', content: `What is the capital of ${country}?` }],
      temperature: 0,
      templateOptions: { enable_thinking: false },
    }));
    const expected: string[] = [];
    for (const question of questions) expected.push((await engine.chat(question).result).text);
    expect(expected[1]).toContain('Port-au-Prince');
    const jobs = Array.from({ length: 60 }, async (_, i) => {
      await new Promise((resolve) => setTimeout(resolve, random() * 300));
      const which = i % 4;
      const controller = new AbortController();
      const generation = engine.chat({ ...questions[which]!, signal: controller.signal });
      if (i % 3 === 0) setTimeout(() => controller.abort(), random() * 60);
      let text = '';
      for await (const delta of generation) text += delta.text;
      const { finishReason } = await generation.result;
      if (finishReason === 'cancelled') expect(expected[which]!.startsWith(text)).toBe(true);
      else expect({ text, finishReason }).toEqual({ text: expected[which], finishReason: 'stop' });
      return finishReason;
    });
    const reasons = await Promise.all(jobs);
    expect(reasons.filter((reason) => reason === 'stop').length).toBeGreaterThanOrEqual(40);
    // Cancelled rows leave when the steps under way have retired.
    let stats = await engine.stats();
    for (let i = 0; i < 100 && stats.slotsUsed > 0; i++) {
      await new Promise((resolve) => setTimeout(resolve, 20));
      stats = await engine.stats();
    }
    expect(stats).toMatchObject({ queued: 0, prefilling: 0, decoding: 0, slotsUsed: 0, blocksUsed: 0 });
  });

  it('a thread that dies ends what runs with an error, and every later request is told', async () => {
    let worker: Worker | undefined;
    const engine = await Engine.load(MODEL, options, {
      onWorker: (made) => {
        worker = made;
      },
    });
    const running = engine.generate({ prompt: 'Once upon a time', maxTokens: 400, ignoreEos: true });
    const deltas: Delta[] = [];
    for await (const delta of running) {
      deltas.push(delta);
      if (deltas.length === 3) await worker!.terminate();
    }
    expect(deltas.at(-1)).toMatchObject({ finishReason: 'error' });
    expect(deltas.at(-1)!.error).toMatchObject({ code: 'engine-crashed', status: 503 });
    expect((await running.result).finishReason).toBe('error');
    expect((await engine.failed).code).toBe('engine-crashed');
    const later = engine.generate({ prompt: 'x' });
    await expect(later.accepted).rejects.toMatchObject({ code: 'engine-crashed' });
    await expect(engine.stats()).rejects.toBeInstanceOf(KvantError);
    await engine.close();
  });

  it('loading can be abandoned', async () => {
    const controller = new AbortController();
    const loading = Engine.load(MODEL, {
      ...options,
      signal: controller.signal,
      onProgress: ({ phase }) => {
        if (phase === 'weights') controller.abort(new Error('changed my mind'));
      },
    });
    await expect(loading).rejects.toThrow('changed my mind');
    await expect(Engine.load(MODEL, { signal: AbortSignal.abort(new Error('no')) })).rejects.toThrow('no');
  });

  it('a thread that dies while it loads ends the loading', async () => {
    let died = false;
    const loading = Engine.load(MODEL, options, {
      onWorker: (worker) => {
        void worker.terminate();
        died = true;
      },
    });
    await expect(loading).rejects.toMatchObject({ code: 'engine-crashed', status: 503 });
    expect(died).toBe(true);
  });

  it('closing under load ends everything, on both sides', async () => {
    const engine = await Engine.load(MODEL, options);
    const many = Array.from({ length: 20 }, (_, i) =>
      engine.generate({ prompt: 'Once upon a time', maxTokens: 400, seed: i, ignoreEos: true }),
    );
    await many[19]!.accepted;
    // One that is posted just before: taken in or refused, but never left hanging.
    const last = engine.generate({ prompt: 'x', maxTokens: 400, ignoreEos: true });
    await engine.close();
    for (const generation of [...many, last])
      expect((await generation.result).finishReason).toBe('cancelled');
  });

  it('errors of loading come through whole', async () => {
    const error: unknown = await Engine.load(MODEL, { ...options, maxContext: 10_000 }).catch(
      (reason) => reason,
    );
    expect(error).toBeInstanceOf(KvantError);
    expect(error).toMatchObject({ code: 'context-too-long', where: 'maxContext', status: 400 });
    expect((error as KvantError).fix).toContain('8192');
  });

  it('made-up weights in the sizes of a model: ids in, ids out', async () => {
    await using engine = await Engine.loadShape('demo', { ...options, vocab: 512 });
    const result = await engine.generate({ prompt: [1, 2, 3], maxTokens: 5, temperature: 0 }).result;
    expect(result).toMatchObject({ text: '', finishReason: 'length' });
    expect(result.tokenIds).toHaveLength(5);
    expect(engine.info.model).toMatchObject({ vocabSize: 512, hasChatTemplate: false, eosTokenIds: [] });
    await expect(engine.generate({ prompt: 'text' }).accepted).rejects.toMatchObject({ status: 400 });
  });
});
