/**
 * Rows whose layers all slide, on the oracle device, which draws by the tokens of the window as read back from blocks: one that
 * was given back too early, or found where it does not belong, gives other tokens.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ORDINARY_PLACE } from '../../src/engine/scheduling/queue-place.js';
import { DiskTier } from '../../src/kv/disk/disk-tier.js';
import { rowBlocks } from '../../src/kv/retention.js';
import { Harness, type HarnessOptions, randomPrompt, seeded, VOCAB } from './core-harness.js';
import { oracle } from './oracle-model.js';

const WINDOW = 64;
const model = { vocab: VOCAB, window: WINDOW };

const start = (options: HarnessOptions = {}): Promise<Harness> =>
  Harness.start({ window: WINDOW, prefixes: {}, blocks: 256, maxContext: 1000, ...options });

const computed = (harness: Harness): number => harness.device.log.reduce((sum, step) => sum + step.tokens, 0);

async function settle(harness: Harness): Promise<void> {
  await harness.untilIdle();
  await harness.core.close();
}

/** The most blocks that were in use after any step. */
async function mostUsed(options: HarnessOptions, work: (harness: Harness) => Promise<void>): Promise<number> {
  let most = 0;
  const harness = await start({
    ...options,
    onStep: () => {
      most = Math.max(most, harness.core.stats().blocksUsed);
    },
  });
  await work(harness);
  await settle(harness);
  return most;
}

describe('a row whose layers all slide', () => {
  for (const blockTokens of [16, 32])
    for (const prefixes of [{}, undefined])
      it(`holds its window and two chunks, however long it gets (blocks of ${blockTokens}, ${prefixes ? 'cached' : 'not cached'})`, async () => {
        const limit = rowBlocks(WINDOW, blockTokens, 24);
        expect(limit).toBe(Math.ceil((63 + 48) / blockTokens) + 1);
        const most = await mostUsed(
          // No more than one row may hold.
          {
            blockTokens,
            blocks: limit,
            maxBatchTokens: 24,
            maxRows: 1,
            ...(prefixes === undefined ? { prefixes: undefined as never } : { prefixes }),
          },
          async (harness) => {
            const prompt = randomPrompt(seeded(1), 500);
            const { ids } = await harness.ask(prompt, { maxTokens: 400 });
            expect(ids).toEqual(oracle(prompt, 400, model));
            expect(harness.core.stats().preemptions).toBe(0);
          },
        );
        expect(most).toBeLessThanOrEqual(limit);
      });

  it('comes in where as much as it ever holds is free, and takes its prompt’s blocks as it goes', async () => {
    const limit = rowBlocks(WINDOW, 16, 32);
    const most = await mostUsed(
      { blocks: 3 * limit + 3, maxRows: 8, prefixes: { limits: [{ blocks: 0, floatStart: 0 }] } },
      async (harness) => {
        const prompts = [700, 650, 600, 550].map((length, i) => randomPrompt(seeded(i), length));
        const answers = await Promise.all(prompts.map((prompt) => harness.ask(prompt, { maxTokens: 60 })));
        answers.forEach(({ ids }, i) => {
          expect(ids).toEqual(oracle(prompts[i]!, 60, model));
        });
        // What prompts will take is left to them.
        expect(harness.core.stats().preemptions).toBe(0);
      },
    );
    expect(most).toBeGreaterThan(2 * limit - 4);
  });
});

describe('prefixes of sequences whose layers all slide', () => {
  it('are found at every border, whole, behind a lost front, and not where the window has a gap', async () => {
    const harness = await start({ blocks: 40, maxRows: 2 });
    const prompt = randomPrompt(seeded(3), 500);
    const cold = await harness.ask(prompt, { maxTokens: 4 });
    await harness.untilIdle();
    expect(cold.ids).toEqual(oracle(prompt, 4, model));
    // 504 tokens less the last one fill 31 blocks: all are there, none is held.
    const other = [...prompt.slice(0, 200), ...randomPrompt(seeded(4), 3)];
    const hit = await harness.ask(other, { maxTokens: 4 });
    // Twelve blocks, and what agrees of the next one, in a copy.
    expect(hit).toMatchObject({ cached: 200, ids: oracle(other, 4, model) });
    await harness.untilIdle();
    // Others take the place of the blocks that were given back first: the front of the chain.
    const evicting = randomPrompt(seeded(5), 200);
    await harness.ask(evicting, { maxTokens: 4 });
    await harness.untilIdle();
    expect(harness.core.stats().prefixCache!.evictions).toBeGreaterThan(3);
    const early = [...prompt.slice(0, 70), 1, 2, 3];
    expect(await harness.ask(early, { maxTokens: 4 })).toMatchObject({
      cached: 0,
      ids: oracle(early, 4, model),
    });
    await harness.untilIdle();
    const later = [...prompt, 5, 6, 7];
    const late = await harness.ask(later, { maxTokens: 4 });
    expect(late.ids).toEqual(oracle(later, 4, model));
    expect(late.cached).toBeGreaterThanOrEqual(496);
    await settle(harness);
  });

  it('a conversation goes on from its end, though its beginning is long gone', async () => {
    const limit = rowBlocks(WINDOW, 16, 32);
    const harness = await start({ blocks: limit + 2, maxRows: 1, maxContext: 4000 });
    const random = seeded(6);
    let history: number[] = [];
    for (let turn = 0; turn < 12; turn++) {
      const prompt = [...history, ...randomPrompt(random, 60)];
      const answer = await harness.ask(prompt, { maxTokens: 40 });
      expect(answer.ids).toEqual(oracle(prompt, 40, model));
      // All but the last token drawn was stored; of the last block, what fills a quarter at least.
      if (turn > 0) expect(answer.cached).toBeGreaterThanOrEqual(history.length - 1 - 16);
      history = [...prompt, ...answer.ids];
      await harness.untilIdle();
    }
    expect(history.length).toBe(1200);
    await settle(harness);
  });

  it('a turn goes on from where the history ends, though all that was thought behind it is left out', async () => {
    const limit = rowBlocks(WINDOW, 16, 32);
    // Room for a row, and for little more than one window.
    const harness = await start({ blocks: limit + 8, maxRows: 1, maxContext: 4000 });
    const random = seeded(20);
    let prompt = randomPrompt(random, 200);
    for (let turn = 0; turn < 5; turn++) {
      // Far more is thought than the pool can keep.
      const { ids } = await harness.ask(prompt, { maxTokens: 500 });
      expect(ids).toEqual(oracle(prompt, 500, model));
      await harness.untilIdle();
      // The next prompt leaves it out, and the last three tokens, which opened it.
      const history = prompt.slice(0, -3);
      prompt = [...history, ...randomPrompt(random, 40)];
      const { ids: next, cached } = await harness.ask(prompt, { maxTokens: 1 });
      expect(next).toEqual(oracle(prompt, 1, model));
      expect(cached).toBeGreaterThanOrEqual(Math.floor(history.length / 16) * 16);
      await harness.untilIdle();
    }
    await settle(harness);
  });

  it('requests that come together compute what they share once', async () => {
    const harness = await start({ maxRows: 8 });
    const shared = randomPrompt(seeded(7), 600);
    const prompts = Array.from({ length: 8 }, (_, i) => [...shared, i + 1, i + 2, i + 3]);
    const answers = await Promise.all(prompts.map((prompt) => harness.ask(prompt, { maxTokens: 10 })));
    answers.forEach(({ ids }, i) => {
      expect(ids).toEqual(oracle(prompts[i]!, 10, model));
    });
    expect(computed(harness)).toBeLessThan(600 + 8 * (3 + 16 + 10));
    await settle(harness);
  });

  for (const [window, blockTokens, maxRows, maxBatchTokens, blocks] of [
    [64, 16, 16, 48, 14],
    [17, 16, 16, 16, 14],
    [16, 16, 16, 16, 14],
    [2, 16, 16, 16, 12],
    [1, 16, 16, 16, 12],
    [100, 32, 16, 48, 11],
  ] as const)
    it(`300 random requests with aborts in a pool too small for them, window ${window}, blocks of ${blockTokens}`, async () => {
      const random = seeded(window);
      const systems = [300, 120, 40].map((length) => randomPrompt(random, length));
      const harness = await start({
        window,
        blockTokens,
        maxRows,
        blocks,
        maxContext: 600,
        maxBatchTokens,
        maxQueue: 400,
      });
      const own = { vocab: VOCAB, window };
      const jobs: { prompt: number[]; draws: number; job: ReturnType<Harness['add']> }[] = [];
      for (let i = 0; i < 300; i++) {
        const system = systems[Math.floor(random() * 4)] ?? [];
        const shared = system.slice(0, Math.floor(random() * 1.5 * system.length));
        const prompt = [...shared, ...randomPrompt(random, 1 + Math.floor(random() * 60))];
        const draws = 1 + Math.floor(random() * 150);
        const place = { ...ORDINARY_PLACE, priority: Math.floor(random() * 5) - 2, share: `key ${i % 3}` };
        const job = harness.add(prompt, { maxTokens: draws }, null, place);
        jobs.push({ prompt, draws, job });
        if (random() < 0.3)
          void harness.turns(Math.floor(random() * 400)).then(() => harness.core.cancel(job.id));
        await harness.turns(Math.floor(random() * 3));
      }
      let complete = 0;
      for (const { prompt, draws, job } of jobs) {
        const [answer] = await job.done;
        const ids = oracle(prompt, draws, own);
        if (answer!.finish === 'length') {
          complete++;
          expect(answer!.ids).toEqual(ids);
        } else expect(ids.slice(0, answer!.ids.length)).toEqual(answer!.ids);
      }
      expect(complete).toBeGreaterThan(180);
      const stats = harness.core.stats();
      // Rows with narrow windows hardly grow.
      if (window >= 64) expect(stats.preemptions).toBeGreaterThan(3);
      expect(stats.prefixCache!.hits).toBeGreaterThan(10);
      await settle(harness);
    });

  it('random requests beside a disk, over three starts, in a pool too small for them', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'kvant-sliding-'));
    const random = seeded(31);
    const systems = [300, 120, 90].map((length) => randomPrompt(random, length));
    try {
      for (let run = 0; run < 3; run++) {
        const disk = await DiskTier.open({ folder, maxBytes: 2 ** 30, signature: 'oracle' });
        const harness = await start({ blocks: 30, maxRows: 6, maxQueue: 200, prefixes: { disk } });
        const jobs = Array.from({ length: 60 }, () => {
          const system = systems[Math.floor(random() * 3)]!;
          const shared = system.slice(0, Math.floor(random() * 1.5 * system.length));
          const prompt = [...shared, ...randomPrompt(random, 1 + Math.floor(random() * 30))];
          const draws = 1 + Math.floor(random() * 60);
          return { prompt, draws, job: harness.add(prompt, { maxTokens: draws }) };
        });
        for (const { prompt, draws, job } of jobs) {
          const [answer] = await job.done;
          expect(answer!.ids).toEqual(oracle(prompt, draws, model));
        }
        const { restoredBlocks, corrupt } = harness.core.stats().prefixCache!.disk!;
        if (run > 0) expect(restoredBlocks).toBeGreaterThan(4);
        expect(corrupt).toBe(0);
        await settle(harness);
      }
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });

  it('come back from disk after a restart, though only the window is there', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'kvant-sliding-'));
    try {
      const open = async (): Promise<Harness> => {
        const disk = await DiskTier.open({ folder, maxBytes: 2 ** 30, signature: 'oracle' });
        return start({ blocks: 24, prefixes: { disk } });
      };
      const prompt = randomPrompt(seeded(8), 500);
      const first = await open();
      await first.ask(prompt, { maxTokens: 4 });
      await settle(first);
      const again = await open();
      const later = [...prompt, 7, 8, 9];
      const { ids, cached } = await again.ask(later, { maxTokens: 4 });
      expect(ids).toEqual(oracle(later, 4, model));
      expect(cached).toBe(496);
      // The window before the border, no more: positions 433 to 495.
      expect(again.core.stats().prefixCache!.disk!.restoredBlocks).toBe(4);
      await settle(again);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});
