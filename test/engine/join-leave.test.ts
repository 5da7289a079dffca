/**
 * Joining and leaving a batch, over a grid of lengths: rows decode, some leave, others come. With block tables nothing is
 * padded, moved or cut, so whoever stays or comes must answer as if alone, and hold the blocks of its own length.
 */
import { describe, expect, it } from 'vitest';
import { Harness, randomPrompt, seeded, VOCAB } from './core-harness.js';
import { oracle } from './oracle-model.js';

interface Grid {
  readonly name: string;
  /** Lengths of the prompts that decode first; which of them leave; lengths of those that come then. */
  readonly first: readonly number[];
  readonly leave: readonly number[];
  readonly join: readonly number[];
}

const GRIDS: readonly Grid[] = [
  { name: 'shorter ones join', first: [6, 7, 6], leave: [], join: [1, 4] },
  { name: 'longer ones join', first: [1, 4], leave: [], join: [60, 7, 33] },
  { name: 'lengths apart by less than a block', first: [505, 500], leave: [], join: [509] },
  {
    name: 'the longest leaves, lengths that end in mid-block stay',
    first: [505, 500, 17],
    leave: [0],
    join: [1],
  },
  { name: 'the shortest leaves', first: [5, 100, 40], leave: [0], join: [5, 99] },
  { name: 'one row is left', first: [16, 32, 48], leave: [0, 2], join: [] },
  { name: 'all leave, then others come', first: [20, 30], leave: [0, 1], join: [64, 1] },
  { name: 'nobody was there', first: [], leave: [], join: [15, 16, 17] },
  { name: 'on the edges of blocks', first: [15, 16, 17], leave: [1], join: [31, 32, 33] },
  { name: 'one token each', first: [1, 1, 1, 1], leave: [3, 0], join: [1, 1] },
];

const DRAWS = 60;

describe.each([0, 24])('quantised from token %i on', (start) => {
  it.each(GRIDS)('$name', async ({ first, leave, join }) => {
    const random = seeded(start + 1);
    const harness = await Harness.start({
      maxRows: 8,
      blocks: 400,
      maxContext: 640,
      maxBatchTokens: 64,
      ...(start > 0 ? { floatStart: { tokens: start, blocks: 32 } } : {}),
    });
    const ask = (length: number) => {
      const prompt = randomPrompt(random, length);
      return { prompt, ...harness.add(prompt, { maxTokens: DRAWS }) };
    };
    const early = first.map(ask);
    while (early.some(({ answers }) => answers[0]!.ids.length < 3)) await harness.turns(1);
    for (const index of leave) harness.core.cancel(early[index]!.id);
    const late = join.map(ask);
    await harness.turns(8);
    while (late.some(({ answers }) => answers[0]!.ids.length < 3)) await harness.turns(1);

    const stay = [...early.filter((_, index) => !leave.includes(index)), ...late];
    // What has left is given back by now; a row holds the blocks of its length, a token or two under way included.
    const lengths = stay.map(({ prompt, answers }) => prompt.length + answers[0]!.ids.length);
    const blocks = (extra: number) =>
      lengths.reduce((sum, length) => sum + Math.ceil((length + extra) / 16), 0);
    const { blocksUsed, floatStartBlocksUsed } = harness.core.stats();
    expect(blocksUsed + floatStartBlocksUsed).toBeGreaterThanOrEqual(blocks(-1));
    if (start === 0) expect(blocksUsed).toBeLessThanOrEqual(blocks(2));

    for (const { prompt, answers, done } of stay) {
      await done;
      const expected = oracle(prompt, DRAWS, { vocab: VOCAB }, { temperature: 0, seed: 0 }, 0, [], start);
      expect(answers[0]!.ids).toEqual(expected);
    }
    for (const index of leave) {
      const { prompt, answers } = early[index]!;
      const { ids, finish } = answers[0]!;
      expect(finish).toBe('cancelled');
      const expected = oracle(prompt, DRAWS, { vocab: VOCAB }, { temperature: 0, seed: 0 }, 0, [], start);
      expect(ids).toEqual(expected.slice(0, ids.length));
    }
    await harness.untilIdle();
    await harness.core.close();
  });
});
