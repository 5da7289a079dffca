/**
 * Rows of a model with a recurrent layer, on the oracle device: what it draws depends on all tokens as blocks have them and on a
 * state that took in each of them once. A position taken in twice or left out, a snapshot of the wrong border or of another
 * row, or a slot that two rows have gives other tokens.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Constrain } from '../../src/engine/constraint.js';
import { DiskTier } from '../../src/kv/disk/disk-tier.js';
import { Harness, type HarnessOptions, randomPrompt, seeded, VOCAB } from './core-harness.js';
import { oracle } from './oracle-model.js';

const model = { vocab: VOCAB, recurrent: true };

const start = (options: HarnessOptions = {}): Promise<Harness> =>
  Harness.start({ prefixes: {}, blocks: 256, states: 16, maxContext: 1000, ...options });

const computed = (harness: Harness): number => harness.device.log.reduce((sum, step) => sum + step.tokens, 0);

async function settle(harness: Harness): Promise<void> {
  await harness.untilIdle();
  await harness.core.close();
}

describe('a row with a recurrent layer', () => {
  for (const maxBatchTokens of [1, 7, 16, 33, 200])
    it(`draws the same in steps of ${maxBatchTokens} tokens, alone and in company`, async () => {
      for (const maxRows of [1, 5]) {
        const harness = await start({ maxBatchTokens, maxRows });
        const random = seeded(maxBatchTokens);
        const prompts = Array.from({ length: 7 }, () => randomPrompt(random, 1 + Math.floor(random() * 90)));
        const answers = await Promise.all(prompts.map((prompt) => harness.ask(prompt, { maxTokens: 25 })));
        answers.forEach(({ ids }, i) => {
          expect(ids).toEqual(oracle(prompts[i]!, 25, model));
        });
        await settle(harness);
      }
    });

  // A slot for each row and some to spare, as many as rows, and fewer: rows wait then.
  for (const [name, blocks, states, prefixes] of [
    ['blocks are scarce', 24, 24, {}],
    ['slots of state are scarce', 256, 2, {}],
    ['there is one slot', 256, 1, {}],
    ['both are scarce', 24, 3, {}],
    ['both are scarce and nothing is cached', 24, 3, undefined],
  ] as const)
    it(`comes to an end with the same tokens where ${name}`, async () => {
      const harness = await start({
        blocks,
        states,
        maxContext: 300,
        maxRows: 6,
        ...(prefixes === undefined ? { prefixes: undefined as never } : { prefixes: { snapshotEvery: 32 } }),
      });
      const random = seeded(9);
      const common = randomPrompt(random, 40);
      const prompts = Array.from({ length: 12 }, (_, i) => [
        ...(i % 2 === 0 ? common : []),
        ...randomPrompt(random, 10 + Math.floor(random() * 80)),
      ]);
      const answers = await Promise.all(prompts.map((prompt) => harness.ask(prompt, { maxTokens: 100 })));
      answers.forEach(({ ids, error }, i) => {
        expect(error).toBeNull();
        expect(ids).toEqual(oracle(prompts[i]!, 100, model));
      });
      if (blocks === 24 && states > 3) expect(harness.core.stats().preemptions).toBeGreaterThan(0);
      expect(harness.core.stats().cacheGroups.at(-1)!.blocksTotal).toBe(states);
      await settle(harness);
    });

  it('goes on from the snapshot at the end of a prompt, and from where requests diverge', async () => {
    const harness = await start();
    const common = randomPrompt(seeded(2), 100);
    const ask = async (tail: number[]): Promise<{ cached: number | null; taken: number }> => {
      const before = computed(harness);
      const prompt = [...common, ...tail];
      const { ids, cached } = await harness.ask(prompt, { maxTokens: 10 });
      expect(ids).toEqual(oracle(prompt, 10, model));
      await harness.untilIdle();
      return { cached, taken: computed(harness) - before };
    };
    // 160 tokens: a snapshot at 144.
    const first = randomPrompt(seeded(3), 60);
    expect((await ask(first)).cached).toBe(0);
    expect((await ask([...first, 1, 2, 3])).cached).toBe(144);
    // Its blocks are known for 96 tokens, its state nowhere there: it leaves one.
    expect((await ask(randomPrompt(seeded(4), 60))).cached).toBe(0);
    const third = await ask(randomPrompt(seeded(5), 60));
    expect(third.cached).toBe(96);
    expect(third.taken).toBeLessThan(160);
    await settle(harness);
  });

  it('leaves snapshots at every so many tokens, those of its answer as well', async () => {
    const harness = await start({ prefixes: { snapshotEvery: 32 } });
    const prompt = randomPrompt(seeded(6), 20);
    const { ids } = await harness.ask(prompt, { maxTokens: 60 });
    await harness.untilIdle();
    const next = [...prompt, ...ids, 5];
    const answer = await harness.ask(next, { maxTokens: 5 });
    expect(answer.cached).toBe(64);
    expect(answer.ids).toEqual(oracle(next, 5, model));
    await settle(harness);
  });

  it('leaves no snapshot with the token that was under way when it stopped', async () => {
    // Every border is one, so the overrun token's is too.
    for (let length = 10; length < 30; length += 3) {
      const prompt = randomPrompt(seeded(length), length);
      const wanted = oracle(prompt, 40, model);
      for (const stop of [3, 9, 20]) {
        const eos = wanted[stop]!;
        const end = wanted.indexOf(eos);
        const harness = await start({ prefixes: { snapshotEvery: 16 }, eosIds: [eos] });
        await harness.ask(prompt, { maxTokens: 40 });
        await harness.untilIdle();
        // What the model would have said next, and something else.
        for (const tail of [wanted.slice(0, end + 2), [...wanted.slice(0, end + 1), 1]]) {
          const next = [...prompt, ...tail, ...randomPrompt(seeded(1), 20)];
          const { ids } = await harness.ask(next, { maxTokens: 5, ignoreEos: true });
          expect(ids).toEqual(oracle(next, 5, model));
        }
        await settle(harness);
      }
    }
  });

  it('keeps no more snapshots than it may, the ones used last', async () => {
    const harness = await start({
      prefixes: {
        limits: [
          { blocks: 256, floatStart: 0 },
          { blocks: 2, floatStart: 0 },
        ],
      },
    });
    const prompts = [1, 2, 3].map((seed) => randomPrompt(seeded(seed), 50));
    for (const prompt of prompts) await harness.ask(prompt, { maxTokens: 2 });
    await harness.untilIdle();
    const again = async (i: number): Promise<number | null> => {
      const { cached, ids } = await harness.ask(prompts[i]!, { maxTokens: 8 });
      expect(ids).toEqual(oracle(prompts[i]!, 8, model));
      await harness.untilIdle();
      return cached;
    };
    expect(await again(1)).toBe(48);
    expect(await again(2)).toBe(48);
    expect(await again(0)).toBe(0);
    // The oldest of three gave way to it.
    expect(await again(1)).toBe(0);
    await settle(harness);
  });

  it('waits for a snapshot that another row is about to leave', async () => {
    const harness = await start({ maxRows: 4 });
    const common = randomPrompt(seeded(8), 170);
    const answers = await Promise.all([1, 2, 3].map((id) => harness.ask([...common, id], { maxTokens: 6 })));
    answers.forEach(({ ids }, i) => {
      expect(ids).toEqual(oracle([...common, i + 1], 6, model));
    });
    expect(answers.map(({ cached }) => cached)).toEqual([0, 160, 160]);
    await settle(harness);
  });

  it('brings snapshots back from disk after a restart', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'kvant-state-'));
    try {
      const prompt = randomPrompt(seeded(11), 150);
      const run = async (): Promise<{ cached: number | null; ids: readonly number[] }> => {
        const disk = await DiskTier.open({ folder, maxBytes: 1e8, signature: 'x' });
        const harness = await start({ prefixes: { disk } });
        const { cached, ids } = await harness.ask(prompt, { maxTokens: 12 });
        await settle(harness);
        return { cached, ids };
      };
      expect((await run()).cached).toBe(0);
      const again = await run();
      expect(again.cached).toBe(144);
      expect(again.ids).toEqual(oracle(prompt, 12, model));
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('sits a step out whose mask is late, and takes in no position twice', async () => {
    const harness = await start({ maxRows: 3 });
    const legal = new Uint32Array(Math.ceil(VOCAB / 32)).fill(0xffffffff);
    const late: Constrain = () => ({
      next: async () => {
        await harness.turns(7);
        return legal;
      },
    });
    const prompts = [4, 33, 60].map((length) => randomPrompt(seeded(length), length));
    const sampling = { temperature: 1, seed: 5, maxTokens: 20 };
    const alone = await start({ maxRows: 1 });
    const wanted: (readonly number[])[] = [];
    for (const prompt of prompts) {
      const [answer] = await alone.add(prompt, sampling, () => ({ next: () => legal })).done;
      wanted.push(answer!.ids);
    }
    await settle(alone);
    const asked = prompts.map((prompt, i) => harness.add(prompt, sampling, i === 1 ? null : late).done);
    const answers = await Promise.all(asked);
    answers.forEach(([answer], i) => {
      if (i !== 1) expect(answer!.ids).toEqual(wanted[i]);
      expect(answer!.ids).toHaveLength(20);
    });
    const seen = new Map<number, number>();
    for (const { sequences } of harness.device.log)
      for (const { slot, position, length } of sequences) {
        expect(position === 0 || position === seen.get(slot)).toBe(true);
        seen.set(slot, position + length);
      }
    await settle(harness);
  });

  it('goes on after a step that failed, and leaves nothing of it behind', async () => {
    const { KvantError } = await import('../../src/errors.js');
    const harness = await start({ prefixes: { snapshotEvery: 16 } });
    const prompt = randomPrompt(seeded(12), 60);
    harness.device.failNext.push(new KvantError('device-failed', 'A step failed.', { kind: 'device' }));
    expect((await harness.ask(prompt, { maxTokens: 5 })).finish).toBe('error');
    await harness.untilIdle();
    const answer = await harness.ask(prompt, { maxTokens: 5 });
    expect(answer.cached).toBe(0);
    expect(answer.ids).toEqual(oracle(prompt, 5, model));
    await settle(harness);
  });
});
