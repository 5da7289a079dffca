/**
 * Rows of a model with full and sliding layers, on the oracle device: what it draws depends on all tokens as the first group has
 * them and on a window as each other group has it, read back from blocks. A block of either that was given back too early, or
 * found where it does not belong, gives other tokens.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { DiskTier } from '../../src/kv/disk/disk-tier.js';
import { rowBlocks } from '../../src/kv/retention.js';
import { Harness, type HarnessOptions, randomPrompt, seeded, VOCAB } from './core-harness.js';
import { oracle } from './oracle-model.js';

const WINDOW = 40;
const model = { vocab: VOCAB, slides: [WINDOW] };

const start = (options: HarnessOptions = {}): Promise<Harness> =>
  Harness.start({
    prefixes: {},
    blocks: 256,
    slides: [{ window: WINDOW, blocks: 64 }],
    maxContext: 1000,
    ...options,
  });

const computed = (harness: Harness): number => harness.device.log.reduce((sum, step) => sum + step.tokens, 0);

async function settle(harness: Harness): Promise<void> {
  await harness.untilIdle();
  await harness.core.close();
}

describe('a row with full and sliding layers', () => {
  for (const prefixes of [{}, undefined])
    it(`gives back what slides and keeps the rest (${prefixes ? 'cached' : 'not cached'})`, async () => {
      const limit = rowBlocks(WINDOW, 16, 24);
      const most = [0, 0];
      const harness = await start({
        blocks: 63,
        slides: [{ window: WINDOW, blocks: limit }],
        maxBatchTokens: 24,
        maxRows: 1,
        ...(prefixes === undefined ? { prefixes: undefined as never } : { prefixes }),
        onStep: () => {
          harness.core.stats().cacheGroups.forEach(({ blocksUsed }, group) => {
            most[group] = Math.max(most[group]!, blocksUsed);
          });
        },
      });
      const prompt = randomPrompt(seeded(1), 500);
      const { ids } = await harness.ask(prompt, { maxTokens: 400 });
      expect(ids).toEqual(oracle(prompt, 400, model));
      expect(harness.core.stats().preemptions).toBe(0);
      expect(most[0]).toBe(Math.ceil(900 / 16));
      expect(most[1]).toBeLessThanOrEqual(limit);
      await settle(harness);
    });

  // What is scarce has room for little more than one row.
  for (const [name, blocks, sliding] of [
    ['the full group', 30, 64],
    ['the sliding group', 256, rowBlocks(WINDOW, 16, 32) + 2],
    ['both', 30, rowBlocks(WINDOW, 16, 32) + 2],
  ] as const)
    it(`is computed again after it gave way for want of ${name}, with the same tokens`, async () => {
      const harness = await start({
        blocks,
        slides: [{ window: WINDOW, blocks: sliding }],
        maxContext: 400,
        maxRows: 6,
      });
      const random = seeded(7);
      const prompts = Array.from({ length: 8 }, () => randomPrompt(random, 20 + Math.floor(random() * 150)));
      const answers = await Promise.all(prompts.map((prompt) => harness.ask(prompt, { maxTokens: 150 })));
      answers.forEach(({ ids }, i) => {
        expect(ids).toEqual(oracle(prompts[i]!, 150, model));
      });
      if (blocks === 30) expect(harness.core.stats().preemptions).toBeGreaterThan(0);
      await settle(harness);
    });

  it('goes on from what is cached at a border at which both groups agree', async () => {
    const harness = await start();
    const prompt = randomPrompt(seeded(2), 300);
    await harness.ask(prompt, { maxTokens: 5 });
    await harness.untilIdle();
    const before = computed(harness);
    const longer = [...prompt, ...randomPrompt(seeded(3), 50)];
    const answer = await harness.ask(longer, { maxTokens: 30 });
    expect(answer.ids).toEqual(oracle(longer, 30, model));
    // The border behind the prompt, whole blocks of it; what is computed is the rest, and one token for each draw.
    expect(answer.cached).toBe(288);
    // One token more may be under way when it ends.
    expect(computed(harness) - before).toBeLessThanOrEqual(62 + 30);
    // One that parts from it long before the window of the end finds nothing there: the sliding blocks were given back.
    const parted = [...prompt.slice(0, 100), ...randomPrompt(seeded(4), 20)];
    expect((await harness.ask(parted, { maxTokens: 5 })).ids).toEqual(oracle(parted, 5, model));
    await settle(harness);
  });

  it('shares what many rows begin with, in whatever order they come and go', async () => {
    const random = seeded(11);
    const stem = randomPrompt(random, 150);
    const harness = await start({ blocks: 90, slides: [{ window: WINDOW, blocks: 40 }], maxRows: 4 });
    const asked = Array.from({ length: 40 }, () => {
      const prompt = [
        ...stem.slice(0, Math.floor(random() * 150)),
        ...randomPrompt(random, 1 + Math.floor(random() * 60)),
      ];
      const draws = 1 + Math.floor(random() * 60);
      const { done } = harness.add(prompt, { maxTokens: draws });
      return { prompt, draws, done };
    });
    for (const { prompt, draws, done } of asked) {
      const [answer] = await done;
      expect(answer!.ids).toEqual(oracle(prompt, draws, model));
    }
    expect(harness.core.stats().prefixCache!.hits).toBeGreaterThan(0);
    await settle(harness);
  });

  it('starts float-start beside a group that slides, and is converted with the same tokens', async () => {
    const harness = await start({ floatStart: { tokens: 70, blocks: 12 } });
    const random = seeded(5);
    const prompts = Array.from({ length: 6 }, () => randomPrompt(random, 10 + Math.floor(random() * 200)));
    for (const again of [false, true]) {
      const answers = await Promise.all(prompts.map((prompt) => harness.ask(prompt, { maxTokens: 90 })));
      answers.forEach(({ ids, cached }, i) => {
        expect(ids).toEqual(oracle(prompts[i]!, 90, model, undefined, 0, [], 70));
        if (again && prompts[i]!.length > 100) expect(cached).toBeGreaterThan(0);
      });
    }
    expect(harness.core.stats().conversions).toBeGreaterThan(0);
    await settle(harness);
  });

  it('goes on from disk after a restart, reading each group from files of its own', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'kvant-groups-'));
    try {
      const tier = (): Promise<DiskTier> =>
        DiskTier.open({ folder, maxBytes: 2 ** 24, signature: 'oracle', onFault: () => {} });
      const prompt = randomPrompt(seeded(6), 400);
      const first = await start({ prefixes: { disk: await tier() } });
      await first.ask(prompt, { maxTokens: 5 });
      await settle(first);
      const second = await start({ prefixes: { disk: await tier() } });
      const longer = [...prompt, 1, 2, 3];
      const answer = await second.ask(longer, { maxTokens: 40 });
      expect(answer.ids).toEqual(oracle(longer, 40, model));
      expect(answer.cached).toBe(400);
      expect(second.core.stats().prefixCache!.disk!.restoredBlocks).toBeGreaterThan(0);
      await settle(second);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });

  it('keeps its books with three groups', async () => {
    const slides = [
      { window: 17, blocks: 24 },
      { window: 100, blocks: 48 },
    ];
    const harness = await start({ slides, blocks: 100, maxRows: 4 });
    const random = seeded(9);
    const prompts = Array.from({ length: 10 }, () => randomPrompt(random, 20 + Math.floor(random() * 250)));
    const answers = await Promise.all(prompts.map((prompt) => harness.ask(prompt, { maxTokens: 80 })));
    answers.forEach(({ ids }, i) => {
      expect(ids).toEqual(oracle(prompts[i]!, 80, { vocab: VOCAB, slides: [17, 100] }));
    });
    await settle(harness);
  });
});
