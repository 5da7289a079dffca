/** The engine at its limits: lengths, borders of blocks, the first token, and everything going wrong at once. */
import { describe, expect, it } from 'vitest';
import { KvantError } from '../../src/errors.js';
import { type Answer, Harness, letters, randomPrompt, seeded, VOCAB } from './core-harness.js';
import { oracle } from './oracle-model.js';

const model = { vocab: VOCAB };

describe('limits', () => {
  it('prompts and answers that end on, before and behind the border of a block', async () => {
    // Four blocks: room for exactly one sequence of full length, so that each also waits for the one before.
    const harness = await Harness.start({ blocks: 4, maxContext: 64, maxRows: 3 });
    const jobs = [1, 15, 16, 17, 31, 32, 33, 47, 48, 62, 63].flatMap((length) =>
      [1, 2, 15, 16, 17, 64].map((maxTokens) => {
        const prompt = randomPrompt(seeded(length * 100 + maxTokens), length);
        return { prompt, draws: Math.min(maxTokens, 64 - length), job: harness.add(prompt, { maxTokens }) };
      }),
    );
    for (const { prompt, draws, job } of jobs) {
      const [answer] = await job.done;
      expect(answer).toMatchObject({ ids: oracle(prompt, draws, model), finish: 'length' });
    }
    await harness.untilIdle();
    await harness.core.close();
  });

  it('ends with the first token: EOS, a stop string, one token allowed, or all of them', async () => {
    const [first] = oracle([5, 6], 1, model);
    const letter = letters([first!]);
    const harness = await Harness.start({ eosIds: [first!] });
    const ask = (options: object): Promise<Answer> => harness.ask([5, 6], options);
    const ids = [first];
    expect(await ask({})).toMatchObject({ ids, text: '', finish: 'stop' });
    expect(await ask({ maxTokens: 1 })).toMatchObject({ ids, text: '', finish: 'stop' });
    const ignoreEos = true;
    expect(await ask({ ignoreEos, stop: letter })).toMatchObject({ ids, text: '', finish: 'stop' });
    expect(await ask({ ignoreEos, stop: letter, maxTokens: 1 })).toMatchObject({ ids, finish: 'stop' });
    expect(await ask({ ignoreEos, maxTokens: 1 })).toMatchObject({ ids, text: letter, finish: 'length' });
    await harness.untilIdle();
    // Only where the end could not be foreseen was there a step too many.
    expect(harness.device.submitted).toBe(2 + 1 + 2 + 1 + 1);
    expect(harness.core.stats()).toMatchObject({ completionTokens: 5, promptTokens: 10, requests: 5 });
    await harness.core.close();
  });

  it('more choices than rows: as many as rows and queue take, and not one more', async () => {
    const harness = await Harness.start({ maxRows: 2, maxQueue: 5 });
    expect(() => harness.add([1], { n: 8 })).toThrow(KvantError);
    const sampling = { temperature: 1, seed: 3, maxTokens: 4 };
    const answers = await harness.add([1], { ...sampling, n: 7 }).done;
    answers.forEach((answer, choice) => {
      expect(answer.ids).toEqual(oracle([1], 4, model, sampling, choice));
    });
    await harness.core.close();
  });

  it('bounds the wait for a first token: behind decoding rows, behind a long prompt, before a flood', async () => {
    const harness = await Harness.start({ maxRows: 8, maxBatchTokens: 16, blocks: 200 });
    const stepsTo = async (length: number): Promise<number> => {
      const from = harness.core.stats().steps;
      const { answers, done } = harness.add(randomPrompt(seeded(length), length), { maxTokens: 3 });
      while (answers[0]!.ids.length === 0) {
        // The flood: whenever there is a row, somebody new is there to take it.
        if (harness.core.stats().queued < 3) harness.add([1, 2, 3, 4, 5], { maxTokens: 2 });
        await harness.turns(1);
      }
      const steps = harness.core.stats().steps - from;
      await done;
      return steps;
    };
    const decoding = [1, 2, 3, 4].map((id) => harness.add([id], { maxTokens: 250 }));
    await harness.turns(8);
    // Four rows decode and at most three newcomers beside it: half of the nine tokens left is five.
    expect(await stepsTo(200)).toBeLessThanOrEqual(200 / 5 + 4);
    const long = harness.add(randomPrompt(seeded(9), 250), { maxTokens: 2 });
    await harness.turns(2);
    // The long prompt leaves the short one a share, instead of some 25 steps to wait.
    expect(await stepsTo(6)).toBeLessThanOrEqual(8);
    expect(long.answers[0]!.ids).toEqual([]);
    for (const { id } of [...decoding, long]) harness.core.cancel(id);
    await harness.untilIdle();
    await harness.core.close();
  });

  for (const seed of [1, 2, 3, 4]) {
    it(`rows that give way, end, are cancelled and fail together: the others do not notice (${seed})`, async () => {
      const random = seeded(seed);
      const below = (limit: number): number => Math.floor(random() * limit);
      const harness = await Harness.start({
        blocks: 5 + below(3),
        maxRows: 3 + below(5),
        maxContext: 80,
        maxBatchTokens: 1 + below(30),
        maxQueue: 20,
        eosIds: [11],
      });
      const seen = { failed: 0, cancelled: 0, ended: 0 };
      const checks: Promise<void>[] = [];
      for (let i = 0; i < 150; i++) {
        while (harness.core.stats().queued > 15) await harness.turns(1);
        const prompt = randomPrompt(random, 1 + below(40));
        const sampling = { temperature: below(2), seed: i, n: 1 + below(3), maxTokens: 1 + below(50) };
        const job = harness.add(prompt, sampling);
        const draws = Math.min(sampling.maxTokens, 80 - prompt.length);
        checks.push(
          job.done.then((answers) => {
            for (const [choice, { ids, finish }] of answers.entries()) {
              const expected = oracle(prompt, draws, model, sampling, choice, [11]);
              if (finish === 'error') seen.failed++;
              else if (finish === 'cancelled') seen.cancelled++;
              else {
                seen.ended++;
                expect(ids).toHaveLength(expected.length);
              }
              expect(ids).toEqual(expected.slice(0, ids.length));
            }
          }),
        );
        if (random() < 0.2) setTimeout(() => harness.core.cancel(job.id), below(4));
        // Never three in a row: that would be a broken device.
        if (random() < 0.05 && harness.device.failNext.length === 0)
          harness.device.failNext.push(new KvantError('kernel-failed', 'A kernel failed.'));
        await harness.turns(below(3));
      }
      await Promise.all(checks);
      expect(harness.core.stats().fault).toBeUndefined();
      expect(seen.ended).toBeGreaterThan(80);
      expect(Math.min(seen.failed, seen.cancelled)).toBeGreaterThan(2);
      expect(harness.core.stats().preemptions).toBeGreaterThan(0);
      await harness.untilIdle();
      await harness.core.close();
    });
  }
});
