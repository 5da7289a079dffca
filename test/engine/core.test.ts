import { describe, expect, it, vi } from 'vitest';
import type { KvantError } from '../../src/errors.js';
import { Harness, letters, randomPrompt, seeded, VOCAB } from './core-harness.js';
import { oracle } from './oracle-model.js';

const model = { vocab: VOCAB };

describe('EngineCore', () => {
  it('answers one prompt as the model does, to the limit', async () => {
    const harness = await Harness.start();
    const answer = await harness.ask([5, 6, 7], { maxTokens: 12 });
    expect(answer.ids).toEqual(oracle([5, 6, 7], 12, model));
    expect(answer).toMatchObject({ finish: 'length', text: letters(answer.ids), error: null });
    await harness.core.close();
  });

  it('keeps two steps under way and feeds the drawn token on the device', async () => {
    const harness = await Harness.start();
    let submittedAtFirstRead = 0;
    harness.onEvents = () => {
      submittedAtFirstRead ||= harness.device.submitted;
    };
    await harness.ask([1, 2, 3], { maxTokens: 20 });
    // When the host got the first id, the step that consumes it had been submitted.
    expect(submittedAtFirstRead).toBe(2);
    expect(harness.device.mostInFlight).toBe(2);
    // The length is known beforehand: no step is wasted on it.
    expect(harness.device.submitted).toBe(20);
    await harness.core.close();
  });

  it('rows do not depend on each other: alone equals a full house with joins and leaves', async () => {
    const random = seeded(7);
    const harness = await Harness.start({ maxRows: 16, blocks: 300, maxBatchTokens: 48 });
    const jobs: { prompt: number[]; draws: number; done: Promise<unknown>; ids: number[] }[] = [];
    for (let i = 0; i < 120; i++) {
      const prompt = randomPrompt(random, 1 + Math.floor(random() * 60));
      const draws = 1 + Math.floor(random() * 40);
      const { answers, done } = harness.add(prompt, { maxTokens: draws });
      jobs.push({ prompt, draws, done, ids: answers[0]!.ids });
      await harness.turns(Math.floor(random() * 6));
      while (harness.core.stats().queued > 40) await harness.turns(1);
    }
    for (const { prompt, draws, done, ids } of jobs) {
      await done;
      expect(ids).toEqual(oracle(prompt, draws, model));
    }
    await harness.core.close();
  });

  for (const maxBatchTokens of [1, 2, 7, 64, 512]) {
    it(`cuts prompts anywhere without trace: ${maxBatchTokens} tokens a step`, async () => {
      const random = seeded(maxBatchTokens);
      const harness = await Harness.start({ maxBatchTokens, maxRows: 5, blocks: 100 });
      const prompts = [1, 15, 16, 17, 100, 3].map((length) => randomPrompt(random, length));
      const answers = await Promise.all(prompts.map((prompt) => harness.ask(prompt, { maxTokens: 9 })));
      answers.forEach((answer, i) => {
        expect(answer.ids).toEqual(oracle(prompts[i]!, 9, model));
      });
      for (const step of harness.device.log) expect(step.tokens).toBeLessThanOrEqual(maxBatchTokens);
      await harness.core.close();
    });
  }

  it('drops the extra token of a stopped row and frees it after its last step, not before', async () => {
    const [first, second, third] = oracle([9, 9], 3, model);
    const harness = await Harness.start({ eosIds: [third!] });
    const seen: number[] = [];
    harness.onEvents = () => {
      seen.push(harness.core.stats().slotsUsed);
    };
    const answer = await harness.ask([9, 9], { maxTokens: 50 });
    expect(answer.ids).toEqual([first, second, third]);
    // The step that holds the dropped token is still under way when the end is told.
    expect(answer).toMatchObject({ finish: 'stop', text: letters([first!, second!]) });
    expect(seen.at(-1)).toBe(1);
    await harness.untilIdle();
    expect(harness.device.submitted).toBe(4);
    await harness.core.close();
  });

  it('goes on after EOS if told to', async () => {
    const ids = oracle([9, 9], 6, model);
    const harness = await Harness.start({ eosIds: [ids[2]!] });
    const answer = await harness.ask([9, 9], { maxTokens: 6, ignoreEos: true });
    expect(answer).toMatchObject({ ids, finish: 'length' });
    await harness.core.close();
  });

  it('ends at a stop string that crosses tokens, and never shows any of it', async () => {
    const ids = oracle([4, 2], 30, model);
    const text = letters(ids);
    const stop = text.slice(11, 15);
    const at = text.indexOf(stop);
    const harness = await Harness.start();
    const pieces: string[] = [];
    harness.onEvents = (events) => {
      pieces.push(...events.map((event) => event.text));
    };
    const answer = await harness.ask([4, 2], { maxTokens: 30, stop: ['never there', stop] });
    expect(answer).toMatchObject({ finish: 'stop', text: text.slice(0, at) });
    expect(answer.ids).toEqual(ids.slice(0, at + stop.length));
    for (let i = 0; i < pieces.length; i++)
      expect(text.slice(0, at).startsWith(pieces.slice(0, i + 1).join(''))).toBe(true);
    await harness.core.close();
  });

  it('gives out what was held back when no stop string came of it', async () => {
    const ids = oracle([4, 2], 8, model);
    const harness = await Harness.start();
    const answer = await harness.ask([4, 2], { maxTokens: 8, stop: [`${letters(ids).slice(5)}?`] });
    expect(answer).toMatchObject({ finish: 'length', text: letters(ids) });
    await harness.core.close();
  });

  it('reaching the context ends with `length`', async () => {
    const harness = await Harness.start({ maxContext: 40, blocks: 10 });
    const prompt = randomPrompt(seeded(1), 30);
    const answer = await harness.ask(prompt);
    expect(answer).toMatchObject({ finish: 'length' });
    expect(answer.ids).toEqual(oracle(prompt, 10, model));
    expect((await harness.ask(randomPrompt(seeded(2), 39))).ids).toHaveLength(1);
    await harness.core.close();
  });

  it('refuses what cannot be, and nobody else notices', async () => {
    const harness = await Harness.start({ maxContext: 40, blocks: 10, maxQueue: 2, maxRows: 1 });
    const good = harness.add([1, 2, 3], { maxTokens: 20 });
    const code = (run: () => unknown): string => {
      try {
        run();
      } catch (error) {
        return (error as KvantError).code;
      }
      return 'taken';
    };
    expect(code(() => harness.add([]))).toBe('prompt-empty');
    expect(code(() => harness.add(randomPrompt(seeded(3), 40)))).toBe('context-length-exceeded');
    expect(code(() => harness.add([1, VOCAB]))).toBe('prompt-token-unknown');
    expect(code(() => harness.add([1, -1]))).toBe('prompt-token-unknown');
    expect(code(() => harness.add([1], { n: 4 }))).toBe('invalid-parameter');
    expect(code(() => harness.add([1], { stop: ['\ud800'] }))).toBe('invalid-stop');
    expect((await good.done)[0]!.ids).toEqual(oracle([1, 2, 3], 20, model));
    expect(harness.core.stats()).toMatchObject({ refused: 6, requests: 1 });
    await harness.core.close();
    expect(code(() => harness.add([1]))).toBe('engine-closed');
  });

  it('refuses beyond the queue with a time to come back', async () => {
    const harness = await Harness.start({ maxQueue: 2, maxRows: 1 });
    const taken = [1, 2, 3].map((id) => harness.add([id], { maxTokens: 3 }));
    try {
      harness.add([4]);
      expect.unreachable();
    } catch (error) {
      expect(error).toMatchObject({ code: 'overloaded', status: 429 });
      expect((error as KvantError).retryAfter).toBeGreaterThanOrEqual(1);
    }
    await Promise.all(taken.map((job) => job.done));
    await harness.untilIdle();
    expect((await harness.ask([4], { maxTokens: 2 })).ids).toEqual(oracle([4], 2, model));
    await harness.core.close();
  });

  it('a row without finite logits ends with an error, alone', async () => {
    const harness = await Harness.start({ poison: 13 });
    const prompts = [
      [1, 2],
      [3, 13, 4],
      [5, 6],
    ];
    const [a, bad, b] = await Promise.all(prompts.map((prompt) => harness.ask(prompt, { maxTokens: 2 })));
    expect(bad).toMatchObject({ finish: 'error', ids: [] });
    expect(bad!.error?.code).toBe('invalid-logits');
    const plain = (prompt: number[]): number[] => oracle(prompt, 2, model);
    expect([a!.ids, b!.ids]).toEqual([plain(prompts[0]!), plain(prompts[2]!)]);
    await harness.untilIdle();
    await harness.core.close();
  });

  it('choices draw differently, each as alone, and the same again with the same seed', async () => {
    const harness = await Harness.start({ maxRows: 3 });
    const sampling = { temperature: 0.8, seed: 42, maxTokens: 10 };
    const answers = await harness.add([8, 8], { ...sampling, n: 5 }).done;
    answers.forEach((answer, choice) => {
      expect(answer.ids).toEqual(oracle([8, 8], 10, model, sampling, choice));
    });
    expect(new Set(answers.map((answer) => answer.ids.join())).size).toBe(5);
    const alone = await harness.ask([8, 8], sampling);
    expect(alone.ids).toEqual(answers[0]!.ids);
    await harness.core.close();
  });

  it('choices share what their stop strings cost: a request for many does not hold up the others', async () => {
    const harness = await Harness.start({ maxRows: 2 });
    const stop = ['x'.repeat(1000), 'y'.repeat(1000)];
    const entries = vi.spyOn(Map.prototype, 'set');
    const one = harness.add([1], { maxTokens: 1, stop });
    const cost = entries.mock.calls.length;
    const many = harness.add([1], { maxTokens: 1, stop, n: 16 });
    expect(entries.mock.calls.length - cost).toBeLessThan(2 * cost);
    entries.mockRestore();
    expect(cost).toBeGreaterThan(1000);
    await Promise.all([one.done, many.done]);
    await harness.core.close();
  });

  it('more demand than blocks: rows give way and come back, nothing is lost or streamed twice', async () => {
    const harness = await Harness.start({ blocks: 7, maxRows: 6, maxContext: 96 });
    const random = seeded(5);
    const jobs = Array.from({ length: 30 }, () => {
      const prompt = randomPrompt(random, 1 + Math.floor(random() * 50));
      const draws = 1 + Math.floor(random() * 45);
      return { prompt, draws, job: harness.add(prompt, { maxTokens: draws }) };
    });
    for (const { prompt, draws, job } of jobs) {
      const [answer] = await job.done;
      const ids = oracle(prompt, draws, model);
      expect(answer).toMatchObject({ ids, text: letters(ids), finish: 'length' });
    }
    expect(harness.core.stats().preemptions).toBeGreaterThan(5);
    await harness.untilIdle();
    await harness.core.close();
  });

  it('a row that gave way can be cancelled, and goes on drawing with the same random numbers', async () => {
    const harness = await Harness.start({ blocks: 6, maxRows: 3, maxContext: 96 });
    const sampling = { temperature: 1, seed: 5, maxTokens: 60 };
    const old = harness.add([1, 2, 3], sampling);
    const floatStart = harness.add([4, 5, 6], sampling);
    const doomed = harness.add([7, 8, 9], sampling);
    while (harness.core.stats().preemptions < 2) await harness.turns(1);
    harness.core.cancel(doomed.id);
    const plain = (prompt: number[]): number[] => oracle(prompt, 60, model, sampling);
    expect((await old.done)[0]!.ids).toEqual(plain([1, 2, 3]));
    expect((await floatStart.done)[0]!.ids).toEqual(plain([4, 5, 6]));
    const [cancelled] = await doomed.done;
    expect(cancelled!.finish).toBe('cancelled');
    expect(plain([7, 8, 9]).slice(0, cancelled!.ids.length)).toEqual(cancelled!.ids);
    await harness.untilIdle();
    await harness.core.close();
  });
});
