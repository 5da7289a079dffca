/**
 * Cached prefixes in the core, on the oracle device: what it draws depends on every token of a sequence as read back from
 * its blocks, so a block that is shared wrongly, too early or after it was reused gives other tokens.
 */

import { describe, expect, it } from 'vitest';
import { ORDINARY_PLACE } from '../../src/engine/scheduling/queue-place.js';
import { Harness, randomPrompt, seeded } from './core-harness.js';
import { oracle } from './oracle-model.js';
import { computed, model, settle, start } from './prefix-harness.js';

describe('cached prefixes in the core', () => {
  it('cold, hit and partial hit draw the same; only what is new is computed', async () => {
    const harness = await start();
    const random = seeded(1);
    const prompt = randomPrompt(random, 100);
    const ask = async (tokens: readonly number[]): Promise<[number, number]> => {
      const before = computed(harness);
      const answer = await harness.ask(tokens, { maxTokens: 5 });
      await harness.untilIdle();
      expect(answer.ids).toEqual(oracle(tokens, 5, model));
      // One draw comes with the last prompt token, the others take one token each.
      return [answer.cached!, computed(harness) - before - 4];
    };
    expect(await ask(prompt)).toEqual([0, 100]);
    expect(await ask(prompt)).toEqual([96, 4]);
    // Six tokens of the next block agree: it is copied.
    expect(await ask([...prompt.slice(0, 70), ...randomPrompt(random, 30)])).toEqual([70, 30]);
    expect(await ask([...prompt, ...randomPrompt(random, 30)])).toEqual([100, 30]);
    expect(await ask(prompt.slice(0, 96))).toEqual([95, 1]);
    expect(await ask(prompt.slice(0, 97))).toEqual([96, 1]);
    expect(await ask(randomPrompt(random, 50))).toEqual([0, 50]);
    const { prefixCache } = harness.core.stats();
    expect(prefixCache).toMatchObject({ lookups: 7, hits: 5, hitTokens: 96 + 70 + 100 + 95 + 96 });
    await settle(harness);
  });

  it('a conversation hits what was generated too', async () => {
    const harness = await start();
    let history = randomPrompt(seeded(2), 20);
    for (let turn = 0; turn < 6; turn++) {
      const answer = await harness.ask(history, { maxTokens: 20 });
      expect(answer.ids).toEqual(oracle(history, 20, model));
      // The last id of an answer is never computed.
      const known = history.length - 5;
      const rest = known % 16;
      // Less than a quarter of a block is not worth a copy.
      if (turn > 0) expect(answer.cached).toBe(rest < 4 ? known - rest : known);
      history = [...history, ...answer.ids, 1, 2, 3, 4];
      await harness.untilIdle();
    }
    await settle(harness);
  });

  it('32 requests with one long beginning compute it once', async () => {
    const random = seeded(3);
    for (const maxBatchTokens of [64, 512, 4096]) {
      const harness = await start({ maxRows: 32, blocks: 1400, maxContext: 4200, maxBatchTokens });
      const system = randomPrompt(random, 4000);
      const prompts = Array.from({ length: 32 }, () => [...system, ...randomPrompt(random, 10)]);
      const answers = await Promise.all(prompts.map((prompt) => harness.ask(prompt, { maxTokens: 4 })));
      answers.forEach((answer, i) => {
        expect(answer.ids).toEqual(oracle(prompts[i]!, 4, model));
      });
      const once = 4000 + 32 * 10;
      expect(computed(harness) - 32 * 3).toBe(once);
      expect(answers.filter((answer) => answer.cached === 4000)).toHaveLength(31);
      await settle(harness);
    }
  });

  it('the first token of a hit comes in its first step', async () => {
    const harness = await start({ blocks: 600, maxContext: 4200, maxBatchTokens: 256 });
    const prompt = randomPrompt(seeded(15), 4000);
    const steps: number[] = [];
    for (let i = 0; i < 2; i++) {
      const before = harness.device.submitted;
      await harness.ask(prompt, { maxTokens: 1 });
      steps.push(harness.device.submitted - before);
      await harness.untilIdle();
    }
    expect(steps).toEqual([16, 1]);
    await settle(harness);
  });

  it('nobody waits for a lower priority', async () => {
    const harness = await start({ blocks: 600, maxContext: 2200, maxBatchTokens: 64 });
    const random = seeded(16);
    const prompt = randomPrompt(random, 2000);
    const low = harness.add(prompt, { maxTokens: 2 }, null, { ...ORDINARY_PLACE, priority: -5 });
    while (computed(harness) < 300) await harness.turns(1);
    const high = harness.add(prompt, { maxTokens: 2 }, null, { ...ORDINARY_PLACE, priority: 5 });
    const same = harness.add(prompt, { maxTokens: 2 }, null, { ...ORDINARY_PLACE, priority: -5 });
    await harness.turns(6);
    expect(harness.core.stats()).toMatchObject({ prefilling: 2, queued: 1 });
    const ids = oracle(prompt, 2, model);
    expect([(await high.done)[0]!.ids, (await low.done)[0]!.ids]).toEqual([ids, ids]);
    expect((await same.done)[0]).toMatchObject({ ids, cached: 1999 });
    await settle(harness);
  });

  it('penalties, log-probabilities and constraints know the whole prompt, cached or not', async () => {
    const harness = await start({ maxRows: 4 });
    const prompt = randomPrompt(seeded(17), 90);
    const samplings = [
      { repetitionPenalty: 1.7, frequencyPenalty: 0.5, logprobs: true, topLogprobs: 3 },
      { dryMultiplier: 1, temperature: 1, seed: 4 },
    ];
    const constrain = () => ({ next: (last: number | null) => (last === null ? 5 : null) });
    const all = async () => {
      const jobs = samplings.map((sampling) => harness.add(prompt, { ...sampling, maxTokens: 12 }).done);
      jobs.push(harness.add(prompt, { maxTokens: 12 }, constrain).done);
      return (await Promise.all(jobs)).map(([answer]) => ({ ...answer!, cached: null }));
    };
    const cold = await all();
    await harness.untilIdle();
    // The device holds the sampler's state against the tokens in the cache.
    expect(await all()).toEqual(cold);
    expect(cold[2]!.ids[0]).toBe(5);
    expect(harness.core.stats().prefixCache!.hits).toBeGreaterThanOrEqual(5);
    await settle(harness);
  });

  it('choices of one request share its prompt', async () => {
    const harness = await start({ maxRows: 8 });
    const prompt = randomPrompt(seeded(4), 130);
    const sampling = { temperature: 1, seed: 3, maxTokens: 6 };
    const answers = await harness.add(prompt, { ...sampling, n: 8 }).done;
    answers.forEach((answer, choice) => {
      expect(answer.ids).toEqual(oracle(prompt, 6, model, sampling, choice));
    });
    expect(answers.map((answer) => answer.cached)).toEqual([0, 128, 128, 128, 128, 128, 128, 128]);
    expect(computed(harness)).toBe(130 + 7 * 2 + 8 * 5);
    await settle(harness);
  });

  it('other salts share nothing', async () => {
    const harness = await start();
    const prompt = randomPrompt(seeded(5), 60);
    const ask = async (salt?: string): Promise<number> => {
      const [answer] = await harness.add(prompt, { maxTokens: 3 }, null, undefined, salt).done;
      await harness.untilIdle();
      expect(answer!.ids).toEqual(oracle(prompt, 3, model));
      return answer!.cached!;
    };
    expect(await ask()).toBe(0);
    expect(await ask('one')).toBe(0);
    expect(await ask('two')).toBe(0);
    expect(await ask('one')).toBe(59);
    expect(await ask('')).toBe(0);
    expect(await ask()).toBe(59);
    await settle(harness);
  });

  it('whoever waits for a prefix goes on when the one that computes it is cancelled', async () => {
    const harness = await start({ maxBatchTokens: 16, maxRows: 4 });
    const random = seeded(6);
    const system = randomPrompt(random, 200);
    const prompts = [1, 2, 3].map(() => [...system, ...randomPrompt(random, 9)]);
    const [first, ...others] = prompts.map((prompt) => harness.add(prompt, { maxTokens: 3 }));
    while (computed(harness) < 100) await harness.turns(1);
    // One computes, the others wait.
    expect(harness.core.stats()).toMatchObject({ prefilling: 1, queued: 2 });
    harness.core.cancel(first!.id);
    for (const [i, job] of others.entries()) {
      const [answer] = await job.done;
      expect(answer!.ids).toEqual(oracle(prompts[i + 1]!, 3, model));
      expect(answer!.cached).toBeGreaterThanOrEqual(i === 0 ? 64 : 192);
    }
    await settle(harness);
  });

  it('rows that give way go on where they were', async () => {
    const random = seeded(7);
    const prompts = Array.from({ length: 12 }, () => randomPrompt(random, 30 + Math.floor(random() * 30)));
    const counts: number[] = [];
    for (const prefixes of [{}, undefined]) {
      const harness = await Harness.start({
        blocks: 24,
        maxRows: 6,
        maxContext: 160,
        ...(prefixes === undefined ? {} : { prefixes }),
      });
      const answers = await Promise.all(prompts.map((prompt) => harness.ask(prompt, { maxTokens: 70 })));
      answers.forEach((answer, i) => {
        expect(answer.ids).toEqual(oracle(prompts[i]!, 70, model));
      });
      const stats = harness.core.stats();
      expect(stats.preemptions).toBeGreaterThan(0);
      if (prefixes !== undefined) expect(stats.prefixCache!.resumedTokens).toBeGreaterThan(0);
      counts.push(computed(harness));
      await settle(harness);
    }
    expect(counts[0]).toBeLessThan(counts[1]!);
  });

  it('a copy that fails ends its sequence and no other', async () => {
    const { KvantError } = await import('../../src/errors.js');
    const harness = await start();
    const prompt = randomPrompt(seeded(13), 60);
    await harness.ask(prompt, { maxTokens: 2 });
    await harness.untilIdle();
    const error = new KvantError('internal', 'The kernel was not found.');
    harness.device.failConvert = [error];
    const doomed = harness.ask(prompt, { maxTokens: 20 });
    const beside = harness.ask(prompt.slice(1), { maxTokens: 20 });
    expect(await doomed).toMatchObject({ finish: 'error', error });
    expect((await beside).ids).toEqual(oracle(prompt.slice(1), 20, model));
    await harness.untilIdle();
    expect((await harness.ask(prompt, { maxTokens: 20 })).ids).toEqual(oracle(prompt, 20, model));
    await settle(harness);
  });

  it('closing waits for a copy under way', async () => {
    for (const drain of [true, false]) {
      const harness = await start();
      const prompt = randomPrompt(seeded(14), 60);
      await harness.ask(prompt, { maxTokens: 2 });
      await harness.untilIdle();
      const asked = harness.ask(prompt, { maxTokens: 20 });
      await harness.turns(1);
      await harness.core.close({ drain });
      expect((await asked).finish).toBe(drain ? 'length' : 'cancelled');
    }
  });

  for (const limit of [0, 3, undefined]) {
    it(`keeps at most ${limit ?? 'all'} blocks that nobody holds, and evicts before a row gives way`, async () => {
      const harness = await start({
        blocks: 40,
        maxContext: 160,
        prefixes: limit === undefined ? {} : { limits: [{ blocks: limit, floatStart: 0 }] },
      });
      const random = seeded(8);
      for (let i = 0; i < 30; i++) {
        const prompt = randomPrompt(random, 120);
        expect((await harness.ask(prompt, { maxTokens: 20 })).ids).toEqual(oracle(prompt, 20, model));
        await harness.untilIdle();
        expect(harness.core.stats().prefixCache!.blocks).toBeLessThanOrEqual(limit ?? 40);
      }
      expect(harness.core.stats().preemptions).toBe(0);
      if (limit === undefined) expect(harness.core.stats().prefixCache!.evictions).toBeGreaterThan(100);
      await settle(harness);
    });
  }

  it('is cleared under running rows', async () => {
    const harness = await start({ maxBatchTokens: 16 });
    const prompt = randomPrompt(seeded(9), 150);
    const asked = harness.add(prompt, { maxTokens: 30 });
    while (computed(harness) < 100) await harness.turns(1);
    harness.core.clearPrefixes();
    expect(harness.core.stats().prefixCache!.blocks).toBe(0);
    expect((await asked.done)[0]!.ids).toEqual(oracle(prompt, 30, model));
    await harness.untilIdle();
    // It had begun before: what it holds is not kept.
    expect(harness.core.stats().prefixCache!.blocks).toBe(0);
    expect((await harness.ask(prompt, { maxTokens: 3 })).cached).toBe(0);
    await harness.untilIdle();
    expect((await harness.ask(prompt, { maxTokens: 3 })).cached).toBe(149);
    await settle(harness);
  });

  it('a step that fails leaves nothing of its rows, and whoever waited for them computes it', async () => {
    const { KvantError } = await import('../../src/errors.js');
    const harness = await start({ maxBatchTokens: 32 });
    const prompt = randomPrompt(seeded(10), 100);
    const doomed = harness.add(prompt, { maxTokens: 5 });
    const waiting = harness.add(prompt, { maxTokens: 5 });
    while (computed(harness) < 64) await harness.turns(1);
    harness.device.failNext = [new KvantError('internal', 'a fault')];
    expect((await doomed.done)[0]!.finish).toBe('error');
    expect((await waiting.done)[0]!.ids).toEqual(oracle(prompt, 5, model));
    await settle(harness);
  });

  it('a storm of aborts leaves rows and blocks as they were', async () => {
    const random = seeded(18);
    const harness = await start({
      maxRows: 6,
      blocks: 40,
      maxContext: 256,
      maxBatchTokens: 48,
      maxQueue: 400,
    });
    const system = randomPrompt(random, 120);
    for (let round = 0; round < 20; round++) {
      const jobs = Array.from({ length: 20 }, () => {
        const own = randomPrompt(random, 1 + Math.floor(random() * 30));
        return harness.add([...system.slice(0, random() * 160), ...own], { maxTokens: 60 });
      });
      for (const { id } of jobs) {
        await harness.turns(Math.floor(random() * 3));
        harness.core.cancel(id);
      }
      await Promise.all(jobs.map(({ done }) => done));
      await harness.untilIdle();
      expect(harness.core.stats()).toMatchObject({ slotsUsed: 0, blocksUsed: 0, queued: 0 });
    }
    const prompt = [...system, 1, 2, 3];
    expect((await harness.ask(prompt, { maxTokens: 20 })).ids).toEqual(oracle(prompt, 20, model));
    await settle(harness);
  });

  it('500 requests that begin alike, with aborts and priorities, in a pool of a third of the demand', async () => {
    const random = seeded(11);
    const systems = [200, 90, 33].map((length) => randomPrompt(random, length));
    const harness = await start({
      maxRows: 12,
      blocks: 36,
      maxContext: 400,
      maxBatchTokens: 96,
      maxQueue: 600,
    });
    const jobs: { prompt: number[]; draws: number; job: ReturnType<Harness['add']>; cancelled: boolean }[] =
      [];
    for (let i = 0; i < 500; i++) {
      const system = systems[Math.floor(random() * 4)] ?? [];
      const shared = system.slice(0, Math.floor(random() * 1.5 * system.length));
      const prompt = [...shared, ...randomPrompt(random, 1 + Math.floor(random() * 40))];
      const draws = 1 + Math.floor(random() * 90);
      const place = { ...ORDINARY_PLACE, priority: Math.floor(random() * 5) - 2, share: `key ${i % 3}` };
      const job = harness.add(prompt, { maxTokens: draws }, null, place);
      const cancelled = random() < 0.3;
      jobs.push({ prompt, draws, job, cancelled });
      if (cancelled) void harness.turns(Math.floor(random() * 400)).then(() => harness.core.cancel(job.id));
      await harness.turns(Math.floor(random() * 3));
    }
    let complete = 0;
    for (const { prompt, draws, job } of jobs) {
      const [answer] = await job.done;
      const ids = oracle(prompt, draws, model);
      if (answer!.finish === 'length') {
        complete++;
        expect(answer!.ids).toEqual(ids);
      } else expect(ids.slice(0, answer!.ids.length)).toEqual(answer!.ids);
    }
    expect(complete).toBeGreaterThan(340);
    const stats = harness.core.stats();
    expect(stats.preemptions).toBeGreaterThan(10);
    expect(stats.prefixCache!.hits).toBeGreaterThan(100);
    expect(stats.prefixCache!.evictions).toBeGreaterThan(100);
    await settle(harness);
  });
});
