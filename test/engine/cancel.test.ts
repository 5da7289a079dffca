import { describe, expect, it } from 'vitest';
import { KvantError } from '../../src/errors.js';
import { Harness, randomPrompt, seeded, VOCAB } from './core-harness.js';
import { oracle } from './oracle-model.js';

const model = { vocab: VOCAB };

describe('cancellation', () => {
  it('of a queued request: it never runs', async () => {
    const harness = await Harness.start({ maxRows: 1 });
    const running = harness.add([1], { maxTokens: 30 });
    const queued = harness.add([2], { maxTokens: 30 });
    await harness.turns(4);
    expect(harness.core.stats()).toMatchObject({ queued: 1, decoding: 1 });
    harness.core.cancel(queued.id);
    expect(harness.core.stats()).toMatchObject({ queued: 0, decoding: 1 });
    expect((await queued.done)[0]).toMatchObject({ finish: 'cancelled', ids: [] });
    expect((await running.done)[0]!.ids).toEqual(oracle([1], 30, model));
    await harness.core.close();
  });

  it('while it prefills: row and blocks are back within the steps under way', async () => {
    const harness = await Harness.start({ maxBatchTokens: 4, maxContext: 200, blocks: 20 });
    const prompt = randomPrompt(seeded(1), 150);
    const job = harness.add(prompt, { maxTokens: 5 });
    await harness.turns(6);
    expect(harness.core.stats()).toMatchObject({ prefilling: 1, slotsUsed: 1, blocksUsed: 10 });
    const submitted = harness.device.submitted;
    harness.core.cancel(job.id);
    expect(harness.core.stats()).toMatchObject({ prefilling: 0 });
    expect((await job.done)[0]).toMatchObject({ finish: 'cancelled', ids: [] });
    await harness.untilIdle();
    expect(harness.device.submitted).toBe(submitted);
    await harness.core.close();
  });

  it('while it decodes: the next step planned is without it', async () => {
    const harness = await Harness.start();
    const a = harness.add([1], { maxTokens: 100 });
    const b = harness.add([2], { maxTokens: 60 });
    await harness.turns(10);
    harness.core.cancel(a.id);
    const planned = harness.device.log.length;
    const [cancelled] = await a.done;
    expect(cancelled!.finish).toBe('cancelled');
    expect(oracle([1], 100, model).slice(0, cancelled!.ids.length)).toEqual(cancelled!.ids);
    expect((await b.done)[0]!.ids).toEqual(oracle([2], 60, model));
    for (const step of harness.device.log.slice(planned)) expect(step.sequences).toHaveLength(1);
    await harness.core.close();
  });

  it('when it has finished, twice, or of nothing at all: no effect', async () => {
    const harness = await Harness.start();
    const job = harness.add([3], { maxTokens: 4 });
    const [answer] = await job.done;
    harness.core.cancel(job.id);
    harness.core.cancel(job.id);
    harness.core.cancel(999);
    await harness.untilIdle();
    expect(answer!.finish).toBe('length');
    expect(harness.core.stats().finished).toEqual({ stop: 0, length: 1, cancelled: 0, error: 0 });
    await harness.core.close();
  });

  it('of one of several choices’ request ends all of them', async () => {
    const harness = await Harness.start({ maxRows: 2 });
    const job = harness.add([3], { maxTokens: 80, n: 3 });
    await harness.turns(8);
    harness.core.cancel(job.id);
    const answers = await job.done;
    expect(answers.map((answer) => answer.finish)).toEqual(['cancelled', 'cancelled', 'cancelled']);
    await harness.untilIdle();
    await harness.core.close();
  });

  it('a storm of aborts leaves slots and blocks as they were, and the rest right', async () => {
    const random = seeded(99);
    const harness = await Harness.start({ maxRows: 6, blocks: 25, maxContext: 128, maxBatchTokens: 24 });
    const survivors: { prompt: number[]; draws: number; done: Promise<unknown>; ids: number[] }[] = [];
    const doomed: { id: number; in: number }[] = [];
    let cancelled = 0;
    for (let i = 0; i < 300; i++) {
      const prompt = randomPrompt(random, 1 + Math.floor(random() * 70));
      const draws = 1 + Math.floor(random() * 40);
      while (harness.core.stats().queued > 50) await harness.turns(1);
      const job = harness.add(prompt, { maxTokens: draws });
      if (random() < 0.6) doomed.push({ id: job.id, in: Math.floor(random() * 12) });
      else survivors.push({ prompt, draws, done: job.done, ids: job.answers[0]!.ids });
      for (const victim of doomed.splice(0)) {
        if (victim.in-- > 0) doomed.push(victim);
        else {
          harness.core.cancel(victim.id);
          cancelled++;
        }
      }
      if (random() < 0.5) await harness.turns(1);
    }
    for (const victim of doomed) harness.core.cancel(victim.id);
    for (const { prompt, draws, done, ids } of survivors) {
      await done;
      expect(ids).toEqual(oracle(prompt, draws, model));
    }
    expect(cancelled).toBeGreaterThan(100);
    await harness.untilIdle();
    expect(harness.core.stats().finished.cancelled).toBeGreaterThan(50);
    await harness.core.close();
  });
});

describe('closing', () => {
  it('with drain, finishes what there is and takes nothing new', async () => {
    const harness = await Harness.start({ maxRows: 1 });
    const jobs = [1, 2, 3].map((id) => harness.add([id], { maxTokens: 10 }));
    const closed = harness.core.close({ drain: true });
    expect(() => harness.add([4])).toThrow(/shutting down/);
    await closed;
    for (const [i, job] of jobs.entries())
      expect((await job.done)[0]!.ids).toEqual(oracle([i + 1], 10, model));
  });

  it('without drain, ends what there is as cancelled', async () => {
    const harness = await Harness.start({ maxRows: 1 });
    const jobs = [1, 2, 3].map((id) => harness.add([id], { maxTokens: 50 }));
    await harness.turns(5);
    await harness.core.close();
    for (const job of jobs) expect((await job.done)[0]!.finish).toBe('cancelled');
    expect(harness.idle).toBe(true);
  });
});

describe('faults', () => {
  it('a step that fails takes its rows with it and no others', async () => {
    const harness = await Harness.start({ maxRows: 2 });
    const jobs = [1, 2, 3, 4].map((id) => harness.add([id], { maxTokens: 12 }));
    await harness.turns(4);
    harness.device.failNext.push(new KvantError('kernel-failed', 'A kernel failed.'));
    const answers = (await Promise.all(jobs.map((job) => job.done))).map(([answer]) => answer!);
    expect(answers.map((answer) => answer.finish)).toEqual(['error', 'error', 'length', 'length']);
    expect(answers[0]!.error).toMatchObject({ code: 'kernel-failed' });
    expect(answers[2]!.ids).toEqual(oracle([3], 12, model));
    await harness.untilIdle();
    expect(harness.core.stats().fault).toBeUndefined();
    await harness.core.close();
  });

  it('a device that fails step after step counts as broken', async () => {
    const harness = await Harness.start({ maxRows: 1 });
    const failure = new KvantError('kernel-failed', 'A kernel failed.');
    harness.device.failNext.push(failure, failure, failure, failure, failure, failure);
    const jobs = [1, 2, 3, 4, 5].map((id) => harness.add([id], { maxTokens: 5 }));
    const answers = (await Promise.all(jobs.map((job) => job.done))).map(([answer]) => answer!);
    expect(answers.every((answer) => answer.finish === 'error')).toBe(true);
    expect(harness.core.stats().fault).toMatchObject({ code: 'kernel-failed' });
    expect(() => harness.add([1])).toThrow('A kernel failed.');
    await harness.core.close();
  });

  it('a lost device ends everything with its error and goes on saying so', async () => {
    const harness = await Harness.start({ maxRows: 2 });
    const jobs = [1, 2, 3].map((id) => harness.add([id], { maxTokens: 50 }));
    await harness.turns(6);
    harness.device.lose();
    const answers = (await Promise.all(jobs.map((job) => job.done))).map(([answer]) => answer!);
    for (const answer of answers) {
      expect(answer.finish).toBe('error');
      expect(answer.error?.code).toBe('device-lost');
    }
    expect(answers[0]!.ids).toEqual(oracle([1], 50, model).slice(0, answers[0]!.ids.length));
    expect(() => harness.add([1])).toThrow(/lost/);
    expect(harness.idle).toBe(true);
    await harness.core.close();
  });

  it('a device lost while prompts are computed is told at once, whatever becomes of the steps under way', async () => {
    const harness = await Harness.start({ maxRows: 2, maxBatchTokens: 16 });
    const jobs = [1, 2, 3].map((id) => harness.add(Array.from({ length: 90 }, () => id)));
    await harness.turns(4);
    expect(harness.core.stats()).toMatchObject({ prefilling: 2, decoding: 0, queued: 1 });
    harness.device.lose();
    for (let i = 0; i < 5; i++) await Promise.resolve();
    for (const { answers } of jobs) {
      expect(answers[0]).toMatchObject({ finish: 'error', ids: [] });
      expect(answers[0]!.error?.code).toBe('device-lost');
    }
    expect(harness.idle).toBe(true);
    await harness.core.close();
  });

  it('a device lost while nothing runs is noticed by the next request', async () => {
    const harness = await Harness.start();
    await harness.ask([1], { maxTokens: 2 });
    await harness.untilIdle();
    harness.device.lose();
    await harness.turns(2);
    expect(() => harness.add([1])).toThrow(/lost/);
    await harness.core.close();
  });
});

describe('a fault of the engine itself', () => {
  it('ends every request with the error, instead of leaving readers to wait', async () => {
    const harness = await Harness.start({
      onStep: () => {
        throw new Error('a bug');
      },
    });
    const job = harness.add([1], { maxTokens: 5 });
    expect((await job.done)[0]).toMatchObject({ finish: 'error' });
    expect(() => harness.add([1])).toThrow('a bug');
    await harness.core.close();
  });
});
