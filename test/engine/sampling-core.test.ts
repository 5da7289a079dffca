/** What the core does for rows with sampling features, on the oracle device, which checks the contract as it goes. */
import { describe, expect, it } from 'vitest';
import { FEATURE } from '../../src/device/sampling.js';
import type { Constrain } from '../../src/engine/constraint.js';
import { KvantError } from '../../src/errors.js';
import type { SamplingOptions } from '../../src/sampling/options.js';
import { type Answer, Harness, randomPrompt, seeded, VOCAB } from './core-harness.js';
import { oracle } from './oracle-model.js';

/** 20 ways to sample, no two alike. */
const MIXED: readonly SamplingOptions[] = [
  {},
  { temperature: 1, seed: 1 },
  { repetitionPenalty: 1.3 },
  { repetitionPenalty: 1.2, repetitionContextSize: 7, temperature: 0.8, seed: 2 },
  { frequencyPenalty: 0.5 },
  { presencePenalty: 1.5, temperature: 1, seed: 3 },
  { frequencyPenalty: -0.5, presencePenalty: 0.3, repetitionPenalty: 1.1, temperature: 0.5, seed: 4 },
  { dryMultiplier: 2, dryAllowedLength: 1 },
  { dryMultiplier: 1, dryBase: 1.2, dryPenaltyLastN: 12, temperature: 1.2, seed: 5 },
  { logitBias: { 3: 4, 90: -100, 17: 2 }, temperature: 1, seed: 6 },
  { suppressTokens: [1, 2, 3, 5, 8, 13, 21, 34, 55, 89] },
  { typicalP: 0.6, temperature: 1, seed: 7 },
  { topNSigma: 1, temperature: 1.5, seed: 8 },
  { xtcProbability: 0.5, xtcThreshold: 0.02, temperature: 1, seed: 9 },
  { mirostat: 2, mirostatTau: 3, mirostatEta: 0.3, temperature: 1, seed: 10 },
  { mirostat: 2, mirostatTau: 2, temperature: 0.7, seed: 11, frequencyPenalty: 1 },
  { minTokens: 9, stopTokenIds: [...Array(40).keys()], temperature: 1, seed: 12 },
  { logprobs: true, topLogprobs: 5 },
  { logprobs: true, topLogprobs: 1, logprobsMode: 'processed', presencePenalty: 1, temperature: 1, seed: 13 },
  { topK: 9, topP: 0.8, minP: 0.02, repetitionPenalty: 1.4, temperature: 0.9, seed: 14 },
];

async function alone(
  prompt: readonly number[],
  sampling: SamplingOptions,
  constrain?: Constrain,
): Promise<Answer> {
  const harness = await Harness.start({ maxRows: 1, blocks: 20 });
  const [answer] = await harness.add(prompt, sampling, constrain).done;
  await harness.core.close();
  return answer!;
}

describe('rows with sampling features', () => {
  it('a batch in which every row has other parameters equals each row alone', async () => {
    const random = seeded(3);
    const prompts = MIXED.map(() => randomPrompt(random, 1 + Math.floor(random() * 40)));
    const jobs = MIXED.map((options) => ({ maxTokens: 24, ...options }));
    const want = await Promise.all(jobs.map((options, i) => alone(prompts[i]!, options)));
    const harness = await Harness.start({ maxRows: MIXED.length, blocks: 200, maxBatchTokens: 40 });
    const answers: Answer[] = [];
    const running: Promise<Answer[]>[] = [];
    for (const [i, options] of jobs.entries()) {
      const job = harness.add(prompts[i]!, options);
      answers.push(job.answers[0]!);
      running.push(job.done);
      await harness.turns(i % 4);
    }
    await Promise.all(running);
    answers.forEach((answer, i) => {
      expect(answer, JSON.stringify(jobs[i])).toEqual(want[i]);
    });
    expect(new Set(answers.map((answer) => answer.ids.join())).size).toBe(MIXED.length);
    await harness.untilIdle();
    expect(harness.device.rows.slots).toBe(0);
    await harness.core.close();
  });

  it('a row that gives way comes back with its state, μ included', async () => {
    const random = seeded(5);
    const prompts = MIXED.map(() => randomPrompt(random, 20));
    const jobs = MIXED.map((options) => ({ maxTokens: 60, ...options }));
    const want = await Promise.all(jobs.map((options, i) => alone(prompts[i]!, options)));
    const harness = await Harness.start({ maxRows: 6, blocks: 16, maxContext: 112, maxBatchTokens: 40 });
    const answers = await Promise.all(jobs.map((options, i) => harness.ask(prompts[i]!, options)));
    answers.forEach((answer, i) => {
      expect(answer, JSON.stringify(jobs[i])).toEqual(want[i]);
    });
    expect(harness.core.stats().preemptions).toBeGreaterThan(5);
    await harness.untilIdle();
    expect(harness.device.rows.slots).toBe(0);
    await harness.core.close();
  });

  it('keeps nothing for rows that need nothing', async () => {
    const harness = await Harness.start({ maxRows: 4 });
    await Promise.all([
      harness.ask([1, 2], { maxTokens: 9 }),
      harness.ask([3], { maxTokens: 9, temperature: 1, topK: 5, topP: 0.9, minP: 0.1, seed: 1 }),
      harness.ask([4], {
        maxTokens: 9,
        repetitionPenalty: 1,
        frequencyPenalty: 0,
        dryMultiplier: 0,
        typicalP: 1,
        xtcProbability: 0,
        logitBias: {},
        minTokens: 0,
      }),
    ]);
    expect(harness.device.rows.syncs).toBe(0);
    // Kernels are made ready, but no state is.
    await harness.ask([5], { maxTokens: 3, typicalP: 0.5, temperature: 1, logprobs: true });
    expect(harness.device.rows.syncs).toBe(1);
    expect(harness.device.stats().samplerBytes).toBe(0);
    await harness.core.close();
  });

  it('gives log-probabilities with every id', async () => {
    const harness = await Harness.start();
    const { ids, logprobs } = await harness.ask([1, 2, 3], { maxTokens: 12, logprobs: true, topLogprobs: 4 });
    expect(logprobs.map(({ id }) => id)).toEqual(ids);
    for (const { id, logprob, rank, top } of logprobs) {
      expect([rank, top.length]).toEqual([1, 4]);
      expect(top[0]).toEqual({ id, logprob });
      expect(logprob).toBeLessThan(0);
    }
    const other = harness.add([1, 2, 3], { maxTokens: 2, mirostat: 2, temperature: 1 });
    expect((await other.done)[0]!.logprobs).toEqual([]);
    await harness.core.close();
  });

  it('does not end before min_tokens', async () => {
    const eosIds = [...Array(60).keys()];
    const harness = await Harness.start({ eosIds });
    const options = { maxTokens: 30, temperature: 1, seed: 4 };
    const short = await harness.ask([7], { ...options, minTokens: 1 });
    expect(short.finish).toBe('stop');
    const long = await harness.ask([7], { ...options, minTokens: 20 });
    expect(long.ids.length).toBeGreaterThanOrEqual(20);
    expect(long.ids.slice(0, 19).every((id) => id >= 60)).toBe(true);
    const own = await harness.ask([7], {
      maxTokens: 30,
      ignoreEos: true,
      stopTokenIds: [90, 91, 92, 93, 94, 95, 96],
    });
    expect(own.ids.slice(0, -1).every((id) => id < 90)).toBe(true);
    await harness.core.close();
  });

  it('refuses what the device has no kernels for, before it costs anything', async () => {
    const harness = await Harness.start();
    Object.defineProperty(harness.device.rows, 'features', { value: FEATURE.BIAS });
    expect(() => harness.add([1], { dryMultiplier: 1 })).toThrowError(
      expect.objectContaining({ code: 'sampling-unsupported', status: 400 }),
    );
    expect((await harness.ask([1], { maxTokens: 2, suppressTokens: [5] })).finish).toBe('length');
    await harness.core.close();
  });
});

describe('state that cannot be made, or is not wanted any more', () => {
  it('ends its own row with the error; the others go on', async () => {
    const harness = await Harness.start({ maxRows: 4 });
    harness.device.rows.failNext = [new KvantError('device-out-of-memory', 'Full.', { kind: 'device' })];
    const failing = harness.ask([1, 2], { maxTokens: 9, repetitionPenalty: 1.2 });
    const fine = harness.ask([1, 2], { maxTokens: 9 });
    expect(await failing).toMatchObject({
      finish: 'error',
      error: { code: 'device-out-of-memory' },
      ids: [],
    });
    expect((await fine).ids).toEqual(oracle([1, 2], 9, { vocab: VOCAB }));
    await harness.untilIdle();
    await harness.core.close();
  });

  it('survives cancellation at every moment, and leaks nothing', async () => {
    const random = seeded(11);
    const harness = await Harness.start({ maxRows: 4, blocks: 12, maxContext: 96, maxBatchTokens: 24 });
    for (let i = 0; i < 200; i++) {
      harness.device.rows.delay = Math.floor(random() * 5);
      const options = MIXED[Math.floor(random() * MIXED.length)]!;
      const job = harness.add(randomPrompt(random, 1 + Math.floor(random() * 30)), {
        maxTokens: 40,
        n: 1 + (i % 2),
        ...options,
      });
      setTimeout(() => harness.core.cancel(job.id), 0);
      await harness.turns(Math.floor(random() * 12));
      if (random() < 0.7) harness.core.cancel(job.id);
      while (harness.core.stats().queued > 20) await harness.turns(1);
    }
    await harness.untilIdle();
    expect(harness.device.rows.slots).toBe(0);
    expect(harness.core.stats().finished.error).toBe(0);
    await harness.core.close();
  });

  it('closes while rows are made ready', async () => {
    const harness = await Harness.start();
    harness.device.rows.delay = 20;
    const { answers } = harness.add([1], { repetitionPenalty: 1.5 });
    await harness.turns(3);
    await harness.core.close();
    expect(answers[0]).toMatchObject({ finish: 'cancelled' });
    expect(harness.device.rows.slots).toBe(0);
  });
});

describe('a constraint', () => {
  /** After `last` only ids with a certain remainder may come; every fifth token is told outright. */
  const remainder = (last: number | null): number => ((last ?? 4) * 3 + 1) % 7;
  const legal = (last: number | null, id: number): boolean => id % 7 === remainder(last);
  const constrain = (asked: (number | null)[]): Constrain => {
    return () => ({
      next: (last) => {
        asked.push(last);
        if (asked.length % 5 === 0) return 90 + ((remainder(last) - (90 % 7) + 7) % 7);
        const mask = new Uint32Array(Math.ceil(VOCAB / 32));
        for (let id = 0; id < VOCAB; id++) if (legal(last, id)) mask[id >> 5]! |= 1 << (id & 31);
        return mask;
      },
    });
  };

  it('holds for every token beside 31 free rows, which it does not disturb', async () => {
    const random = seeded(17);
    const harness = await Harness.start({ maxRows: 32, blocks: 400, maxBatchTokens: 96 });
    const prompts = Array.from({ length: 31 }, () => randomPrompt(random, 1 + Math.floor(random() * 20)));
    const options = (i: number): SamplingOptions => ({ maxTokens: 30, ...MIXED[i % MIXED.length] });
    const asked: (number | null)[] = [];
    const bound = harness.add([4], { maxTokens: 40, temperature: 1, seed: 5 }, constrain(asked));
    const free = await Promise.all(prompts.map((prompt, i) => harness.ask(prompt, options(i))));
    const [answer] = await bound.done;
    expect(answer).toMatchObject({ finish: 'length', error: null });
    answer!.ids.forEach((id, i) => {
      expect(legal(i === 0 ? null : answer!.ids[i - 1]!, id), `token ${i}`).toBe(true);
    });
    // It was asked once for each token, with what came.
    expect(asked).toEqual([null, ...answer!.ids.slice(0, -1)]);
    expect(await alone([4], { maxTokens: 40, temperature: 1, seed: 5 }, constrain([]))).toEqual(answer);
    const want = await Promise.all(prompts.map((prompt, i) => alone(prompt, options(i))));
    expect(free).toEqual(want);
    await harness.untilIdle();
    await harness.core.close();
  });

  it('holds across preemption, and its faults end its row alone', async () => {
    const harness = await Harness.start({ maxRows: 4, blocks: 9, maxContext: 112, maxBatchTokens: 32 });
    const jobs = [3, 4, 5].map((start) =>
      harness.add([start], { maxTokens: 60, temperature: 1, seed: start }, constrain([])),
    );
    const others = [6, 7].map((start) => harness.ask([start], { maxTokens: 60 }));
    for (const { done } of jobs) {
      const [{ ids, finish }] = (await done) as [Answer];
      expect([ids.length, finish]).toEqual([60, 'length']);
      ids.forEach((id, i) => {
        expect(legal(i === 0 ? null : ids[i - 1]!, id)).toBe(true);
      });
    }
    await Promise.all(others);
    expect(harness.core.stats().preemptions).toBeGreaterThan(0);
    const failing: Constrain = () => ({
      next: (last) => {
        if (last !== null) throw new Error('no way on');
        return null;
      },
    });
    const [broken] = await harness.add([1], { maxTokens: 9 }, failing).done;
    expect(broken).toMatchObject({ finish: 'error', error: { code: 'internal' } });
    const [empty] = await harness.add([1], { maxTokens: 9 }, () => ({ next: () => new Uint32Array(4) })).done;
    expect(empty).toMatchObject({ finish: 'error', error: { code: 'invalid-logits' } });
    await harness.untilIdle();
    expect(harness.device.rows.slots).toBe(0);
    await harness.core.close();
  });
});
