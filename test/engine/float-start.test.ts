/**
 * `quantizedKvStart`: sequences that keep floats until they hold so many tokens. The oracle's draws tell a token that
 * was computed over the wrong kind of cache from one that was not.
 */
import { describe, expect, it } from 'vitest';
import { KvantError } from '../../src/errors.js';
import { Harness, type HarnessOptions, randomPrompt, seeded, VOCAB } from './core-harness.js';
import { oracle } from './oracle-model.js';

const model = { vocab: VOCAB };
const greedy = { temperature: 0, seed: 0 };
const expected = (prompt: readonly number[], draws: number, start: number) =>
  oracle(prompt, draws, model, greedy, 0, [], start);

function start(
  tokens: number,
  options: HarnessOptions & { readonly floatStartBlocks?: number } = {},
): Promise<Harness> {
  const { floatStartBlocks = 32, ...rest } = options;
  return Harness.start({ floatStart: { tokens, blocks: floatStartBlocks }, ...rest });
}

async function settle(harness: Harness): Promise<void> {
  await harness.untilIdle();
  await harness.core.close();
}

describe('sequences that are quantised late', () => {
  it('the oracle can tell', () => {
    const prompt = randomPrompt(seeded(1), 30);
    const answers = [0, 29, 30, 31, 35, 99].map((tokens) => expected(prompt, 8, tokens));
    // Never float-start, or quantised from one of these tokens on, or never quantised.
    expect(new Set(answers.map(String)).size).toBe(5);
    expect(answers[5]).toEqual(answers[0]);
  });

  for (const blockTokens of [4, 16]) {
    for (const maxBatchTokens of [1, 7, 64, 512]) {
      it(`blocks of ${blockTokens}, ${maxBatchTokens} tokens a step: any prompt, any start`, async () => {
        const random = seeded(maxBatchTokens);
        for (const tokens of [1, 2, 15, 16, 17, 40]) {
          const harness = await start(tokens, {
            maxBatchTokens,
            blockTokens,
            blocks: 256,
            floatStartBlocks: 64,
          });
          const prompts = [1, 14, 15, 16, 17, 39, 40, 41, 90].map((length) => randomPrompt(random, length));
          const answers = await Promise.all(prompts.map((prompt) => harness.ask(prompt, { maxTokens: 9 })));
          answers.forEach((answer, i) => {
            expect(answer.ids).toEqual(expected(prompts[i]!, 9, tokens));
          });
          // No step crosses the start.
          for (const step of harness.device.log)
            for (const { position, length } of step.sequences)
              expect(position >= tokens || position + length <= tokens).toBe(true);
          // Those that go on after they hold so many tokens; the last token drawn is not computed.
          const grown = prompts.filter((prompt) => prompt.length + 8 > tokens).length;
          expect(harness.core.stats().conversions).toBe(grown);
          await settle(harness);
        }
      });
    }
  }

  it('rows of both kinds share a batch, with joins and leaves', async () => {
    const random = seeded(7);
    const tokens = 24;
    const harness = await start(tokens, {
      maxRows: 16,
      blocks: 300,
      floatStartBlocks: 40,
      maxBatchTokens: 48,
    });
    const jobs: { prompt: number[]; draws: number; done: Promise<unknown>; ids: number[] }[] = [];
    for (let i = 0; i < 150; i++) {
      const prompt = randomPrompt(random, 1 + Math.floor(random() * 60));
      const draws = 1 + Math.floor(random() * 40);
      const { answers, done } = harness.add(prompt, { maxTokens: draws });
      jobs.push({ prompt, draws, done, ids: answers[0]!.ids });
      await harness.turns(Math.floor(random() * 6));
      while (harness.core.stats().queued > 40) await harness.turns(1);
    }
    for (const { prompt, draws, done, ids } of jobs) {
      await done;
      expect(ids).toEqual(expected(prompt, draws, tokens));
    }
    const mixed = harness.device.log.filter((step) => {
      const old = step.sequences.filter(({ position }) => position >= tokens).length;
      return old > 0 && old < step.sequences.length;
    });
    expect(mixed.length).toBeGreaterThan(100);
    expect(harness.core.stats().conversions).toBeGreaterThan(50);
    await settle(harness);
  });

  for (const [name, blocks, floatStartBlocks] of [
    ['blocks of the main pool', 12, 40],
    ['float-start blocks', 60, 4],
    ['both', 10, 4],
  ] as const) {
    it(`rows that give way for want of ${name} are floatStart again and end the same`, async () => {
      const random = seeded(blocks);
      const tokens = 30;
      const harness = await start(tokens, {
        maxRows: 6,
        blocks,
        floatStartBlocks,
        maxBatchTokens: 40,
        maxContext: 150,
      });
      const prompts = Array.from({ length: 24 }, (_, i) => randomPrompt(random, 1 + ((i * 17) % 60)));
      const answers = await Promise.all(prompts.map((prompt) => harness.ask(prompt, { maxTokens: 80 })));
      answers.forEach((answer, i) => {
        expect(answer.ids).toEqual(expected(prompts[i]!, 80, tokens));
      });
      if (blocks < 20) expect(harness.core.stats().preemptions).toBeGreaterThan(0);
      await settle(harness);
    });
  }

  it('cancels at any moment give every block back', async () => {
    const random = seeded(3);
    const harness = await start(20, { maxRows: 4, blocks: 40, floatStartBlocks: 9, maxBatchTokens: 16 });
    for (let i = 0; i < 200; i++) {
      const { id, done } = harness.add(randomPrompt(random, 1 + Math.floor(random() * 50)), {
        maxTokens: 30,
      });
      await harness.turns(Math.floor(random() * 12));
      if (random() < 0.8) harness.core.cancel(id);
      else await done;
    }
    await settle(harness);
  });

  it('a conversion that fails ends its sequence and no other', async () => {
    const error = new KvantError('internal', 'The kernel was not found.');
    const harness = await start(10, { maxRows: 2 });
    const prompt = randomPrompt(seeded(5), 4);
    harness.device.failConvert = [error];
    const first = harness.ask(prompt, { maxTokens: 20 });
    await harness.turns(3);
    const second = harness.ask(prompt.slice(1), { maxTokens: 20 });
    expect(await first).toMatchObject({ finish: 'error', error });
    // What it had when it came of age was right.
    expect((await first).ids).toEqual(expected(prompt, 20, 10).slice(0, (await first).ids.length));
    expect((await second).ids).toEqual(expected(prompt.slice(1), 20, 10));
    await settle(harness);
  });

  it('a device that is lost while it converts ends everything, and nothing is held', async () => {
    const harness = await start(10, { maxRows: 2 });
    const asked = harness.ask(randomPrompt(seeded(5), 9), { maxTokens: 20 });
    while (harness.core.stats().conversions === 0) await harness.turns(1);
    expect(harness.core.stats().floatStartBlocksUsed).toBeGreaterThan(0);
    harness.device.lose();
    expect(await asked).toMatchObject({ finish: 'error', error: { code: 'device-lost' } });
    await settle(harness);
  });

  it('closing waits for a conversion under way', async () => {
    for (const drain of [true, false]) {
      const harness = await start(10, { maxRows: 2 });
      const asked = harness.ask(randomPrompt(seeded(5), 9), { maxTokens: 20 });
      while (harness.core.stats().conversions === 0) await harness.turns(1);
      // Throws if a block is still held.
      await harness.core.close({ drain });
      expect((await asked).finish).toBe(drain ? 'length' : 'cancelled');
    }
  });

  it('float-start blocks are free again only when the device has converted them', async () => {
    const harness = await start(16, { blockTokens: 16, maxRows: 2, floatStartBlocks: 1 });
    const first = harness.ask(randomPrompt(seeded(5), 16), { maxTokens: 40 });
    const second = harness.ask(randomPrompt(seeded(6), 10), { maxTokens: 20 });
    let seen = 0;
    while (harness.core.stats().conversions === 0) await harness.turns(1);
    // Converting, yet not done: the second prompt cannot have the block.
    while (harness.core.stats().floatStartBlocksUsed === 1 && harness.core.stats().queued === 1) {
      seen++;
      await harness.turns(1);
    }
    expect(seen).toBeGreaterThan(0);
    expect((await first).ids).toEqual(expected(randomPrompt(seeded(5), 16), 40, 16));
    expect((await second).ids).toEqual(expected(randomPrompt(seeded(6), 10), 20, 16));
    await settle(harness);
  });

  it('no step is wasted on it', async () => {
    const harness = await start(8, { maxRows: 1 });
    await harness.ask(randomPrompt(seeded(1), 3), { maxTokens: 30 });
    expect(harness.device.submitted).toBe(30);
    await settle(harness);
  });
});
