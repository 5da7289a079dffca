/** Cached prefixes of sequences that are quantised late, on the oracle device. */

import { describe, expect, it } from 'vitest';
import { type Harness, randomPrompt, seeded } from './core-harness.js';
import { oracle } from './oracle-model.js';
import { model, settle, start } from './prefix-harness.js';

describe('cached prefixes of sequences that are quantised late', () => {
  const greedy = { temperature: 0, seed: 0 };
  const late = (prompt: readonly number[], draws: number, tokens: number): number[] =>
    oracle(prompt, draws, model, greedy, 0, [], tokens);

  it('float-start blocks serve who takes less than the start, others who takes at least as much', async () => {
    for (const tokens of [40, 48, 50]) {
      const harness = await start({ floatStart: { tokens, blocks: 64 } });
      const random = seeded(tokens);
      const prompt = randomPrompt(random, 150);
      const ask = async (list: readonly number[]): Promise<number> => {
        const answer = await harness.ask(list, { maxTokens: 6 });
        await harness.untilIdle();
        expect(answer.ids).toEqual(late(list, 6, tokens));
        return answer.cached!;
      };
      expect(await ask(prompt)).toBe(0);
      // As far as the main pool has it.
      expect(await ask(prompt)).toBe(149);
      expect(await ask([...prompt.slice(0, 100), ...randomPrompt(random, 60)])).toBe(100);
      // 48 tokens agree.
      const most = Math.floor((tokens - 1) / 16) * 16;
      const short = await ask([...prompt.slice(0, 49), ...randomPrompt(random, 60)]);
      expect(short).toBe(tokens <= 48 ? 48 : most);
      // Fewer than the start: float blocks.
      expect(await ask([...prompt.slice(0, 35), ...randomPrompt(random, 60)])).toBe(32);
      // And it may not reach the start at all.
      expect(await ask(prompt.slice(0, 34))).toBe(32);
      await settle(harness);
    }
  });

  it('requests that come together share both kinds', async () => {
    const tokens = 40;
    const harness = await start({ floatStart: { tokens, blocks: 128 }, maxRows: 16, maxBatchTokens: 64 });
    const random = seeded(12);
    const long = randomPrompt(random, 130);
    const prompts = Array.from({ length: 16 }, (_, i) => [
      ...long.slice(0, i % 2 ? 130 : 35),
      ...randomPrompt(random, 20),
    ]);
    const answers = await Promise.all(prompts.map((prompt) => harness.ask(prompt, { maxTokens: 12 })));
    answers.forEach((answer, i) => {
      expect(answer.ids).toEqual(late(prompts[i]!, 12, tokens));
    });
    // One computes the long beginning, and one the short one of the others.
    expect(answers.filter((answer) => answer.cached === 128)).toHaveLength(7);
    expect(answers.filter((answer) => answer.cached! >= 32).length).toBeGreaterThanOrEqual(14);
    await settle(harness);
  });

  for (const [blocks, floatStartBlocks] of [
    [30, 60],
    [90, 9],
    [30, 9],
  ] as const) {
    it(`random requests in ${blocks} blocks and ${floatStartBlocks} floatStart ones`, async () => {
      const tokens = 40;
      const random = seeded(blocks + floatStartBlocks);
      const harness = await start({
        floatStart: { tokens, blocks: floatStartBlocks },
        blocks,
        maxRows: 6,
        maxContext: 200,
        maxBatchTokens: 48,
        maxQueue: 300,
      });
      const systems = [100, 45, 20].map((length) => randomPrompt(random, length));
      const jobs: { prompt: number[]; draws: number; job: ReturnType<Harness['add']> }[] = [];
      for (let i = 0; i < 200; i++) {
        const system = systems[Math.floor(random() * 4)] ?? [];
        const prompt = [...system.slice(0, random() * 200), ...randomPrompt(random, 1 + random() * 30)];
        const draws = 1 + Math.floor(random() * 40);
        const job = harness.add(prompt, { maxTokens: draws });
        jobs.push({ prompt, draws, job });
        if (random() < 0.2)
          void harness.turns(Math.floor(random() * 100)).then(() => harness.core.cancel(job.id));
        await harness.turns(Math.floor(random() * 3));
      }
      for (const { prompt, draws, job } of jobs) {
        const [answer] = await job.done;
        expect(late(prompt, draws, tokens).slice(0, answer!.ids.length)).toEqual(answer!.ids);
        if (answer!.finish === 'length') expect(answer!.ids).toHaveLength(draws);
      }
      const { prefixCache } = harness.core.stats();
      expect(prefixCache!.hits).toBeGreaterThan(30);
      await settle(harness);
    });
  }
});
