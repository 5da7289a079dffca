/** The scheduler over its small state space: every order of arrivals, stops and retirements that a few requests can have. */
import { describe, expect, it } from 'vitest';
import { LATENCY } from '../../../test/engine/scheduler-views.js';
import { explore, walked } from '../../../test/engine/scheduler-world.js';
import { casesOf } from '../../../test/setup/every-case.js';
import { ALL_BLOCKS } from '../../kv/retention.js';

describe('schedule, over its small state space', () => {
  const shapes = [
    [1, 5],
    [2, 2],
    [5, 1],
    [3, 4],
  ] as const;
  for (const maxBatchTokens of [1, 2, 3, 6]) {
    for (const maxRows of [1, 2, 3]) {
      it(`budget ${maxBatchTokens}, ${maxRows} rows: keeps its limits and every request ends`, () => {
        let states = 0;
        walked.victims = 0;
        for (const [blocks, depth] of [
          [3, 2],
          [4, 2],
        ] as const) {
          for (const a of shapes) {
            for (const b of shapes) {
              for (const c of shapes) {
                const setup = { maxBatchTokens, maxRows, blocks: [blocks], depth, blockTokens: 2 };
                const none = { floatStartTokens: 0, floatStartBlocks: 0 };
                states += explore({ ...setup, ...none, ...LATENCY, prefillReserve: 1, minChunk: 1 }, [
                  a,
                  b,
                  c,
                ]);
              }
            }
          }
        }
        expect(states).toBeGreaterThan(1000);
        if (maxRows > 1) expect(walked.victims).toBeGreaterThan(100);
      });
    }
  }
});

describe('schedule with priorities and a target, over its small state space', () => {
  const shapes = [
    [1, 5, 1],
    [2, 2, 0],
    [7, 1, 0],
    [6, 3, 2],
  ] as const;
  const costs = { fixed: 3, row: 0, chunk: 1, token: 1, depth: 0 };
  for (const targetItl of [1, 4, 6]) {
    it(`target ${targetItl}: keeps its limits, and every request ends`, () => {
      let states = 0;
      walked.victims = 0;
      for (const maxRows of [2, 3]) {
        for (const a of shapes) {
          for (const b of shapes) {
            for (const c of maxRows === 3 ? shapes.slice(2) : shapes) {
              const setup = { maxBatchTokens: 6, maxRows, blocks: [5], depth: 2, blockTokens: 2, costs };
              const rest = {
                ...LATENCY,
                floatStartTokens: 0,
                floatStartBlocks: 0,
                prefillReserve: 1,
                minChunk: 1,
                chunkTokens: 3,
              };
              states += explore({ ...setup, ...rest, ageingMs: 2000, targetItl }, [a, b, c]);
            }
          }
        }
      }
      expect(states).toBeGreaterThan(1000);
      expect(walked.victims).toBeGreaterThan(100);
    });
  }
});

describe('schedule with windows, over its small state space', () => {
  const shapes = [
    [1, 5],
    [3, 2],
    [7, 1],
    [9, 3],
  ] as const;
  // Blocks of 2 tokens. A window of 3 spans at most 2 of them, and the one that the next token goes to.
  for (const [window, rowBlocks] of [
    [3, 4],
    [3, 6],
    [1, 3],
    [5, 5],
  ] as const) {
    it(`window ${window}, ${rowBlocks} blocks a row: keeps its limits, and every request ends`, () => {
      let states = 0;
      walked.victims = 0;
      for (const blocks of [rowBlocks, rowBlocks + 2]) {
        for (const maxBatchTokens of [2, 5]) {
          for (const maxRows of [2, 3]) {
            for (const a of shapes) {
              for (const b of shapes) {
                const setup = { maxBatchTokens, maxRows, blocks: [blocks], depth: 2, blockTokens: 2 };
                const rest = { floatStartTokens: 0, floatStartBlocks: 0, prefillReserve: 1, minChunk: 1 };
                const requests = maxRows === 3 ? [a, b, [4, 2] as const] : [a, b];
                states += explore(
                  { ...setup, ...rest, ...LATENCY, groups: [{ window, rowBlocks }] },
                  requests,
                );
              }
            }
          }
        }
      }
      expect(states).toBeGreaterThan(1000);
      if (window === 5) expect(walked.victims).toBeGreaterThan(0);
    });
  }
});

describe('schedule with several cache groups, over its small state space', () => {
  const shapes = [
    [1, 5],
    [3, 4],
    [7, 1],
    [5, 3],
  ] as const;
  const full = { window: 0, rowBlocks: ALL_BLOCKS };
  const recurrent = { window: 0, rowBlocks: 1, state: true };
  const none = { floatStartTokens: 0, floatStartBlocks: 0 };
  // Blocks of 2 tokens; sequences of up to 8. What is scarce has room for one row of full length and little more.
  for (const [name, groups, blocks, floatStart, victims] of [
    ['full scarce, sliding plentiful', [full, { window: 3, rowBlocks: 4 }], [5, 20], none, true],
    ['full plentiful, sliding scarce', [full, { window: 5, rowBlocks: 5 }], [20, 5], none, true],
    ['both scarce', [full, { window: 3, rowBlocks: 4 }], [5, 5], none, true],
    [
      'two windows, the narrow one scarce',
      [full, { window: 1, rowBlocks: 3 }, { window: 5, rowBlocks: 5 }],
      [20, 3, 20],
      none,
      false,
    ],
    [
      'two windows, the wide one scarce',
      [full, { window: 1, rowBlocks: 3 }, { window: 5, rowBlocks: 5 }],
      [20, 20, 5],
      none,
      true,
    ],
    ['full scarce, state plentiful', [full, recurrent], [5, 20], none, true],
    ['full plentiful, state scarce', [full, recurrent], [20, 1], none, false],
    [
      'full scarce, sliding and state plentiful',
      [full, { window: 3, rowBlocks: 4 }, recurrent],
      [5, 20, 20],
      none,
      true,
    ],
    [
      'sliding scarce, full and state plentiful',
      [full, { window: 5, rowBlocks: 5 }, recurrent],
      [20, 5, 20],
      none,
      true,
    ],
    [
      'state scarce, full and sliding plentiful',
      [full, { window: 5, rowBlocks: 5 }, recurrent],
      [20, 20, 2],
      none,
      false,
    ],
    [
      'float-start blocks, state scarce',
      [full, recurrent],
      [20, 1],
      { floatStartTokens: 3, floatStartBlocks: 6 },
      false,
    ],
    [
      'float-start blocks, sliding scarce',
      [full, { window: 3, rowBlocks: 4 }],
      [20, 5],
      { floatStartTokens: 3, floatStartBlocks: 6 },
      false,
    ],
    [
      'float-start blocks scarce beside a sliding group',
      [full, { window: 3, rowBlocks: 4 }],
      [5, 20],
      { floatStartTokens: 3, floatStartBlocks: 2 },
      false,
    ],
  ] as const) {
    it(`${name}: keeps its limits, and every request ends`, () => {
      let states = 0;
      walked.victims = 0;
      for (const [maxBatchTokens, maxRows] of [
        [5, 2],
        [2, 3],
      ] as const) {
        for (const a of shapes) {
          for (const b of shapes) {
            const setup = { maxBatchTokens, maxRows, blocks, depth: 2, blockTokens: 2, ...floatStart };
            const requests = maxRows === 3 ? [a, b, [4, 2] as const] : [a, b];
            states += explore({ ...setup, ...LATENCY, groups, prefillReserve: 1, minChunk: 1 }, requests);
          }
        }
      }
      expect(states).toBeGreaterThan(1000);
      if (victims) expect(walked.victims).toBeGreaterThan(0);
    });
  }
});

describe('schedule with float-start blocks, over its small state space', () => {
  const shapes = [
    [1, 6],
    [2, 2],
    [6, 1],
    [3, 4],
  ] as const;
  // Where the conversion falls on the edge of a block and where it does not; more float-start blocks than needed, and few.
  for (const [floatStartTokens, floatStartBlocks, blocks] of [
    [1, 6, 3],
    [2, 6, 3],
    [3, 6, 3],
    [3, 2, 3],
    [4, 4, 4],
    [5, 3, 3],
  ] as const) {
    for (const maxBatchTokens of casesOf([1, 6], [3])) {
      it(`${floatStartTokens} floatStart tokens, budget ${maxBatchTokens}: converts at that length, and every request ends`, () => {
        let states = 0;
        walked.victims = 0;
        walked.conversions = 0;
        for (const maxRows of [1, 2, 3]) {
          for (const a of shapes) {
            for (const b of shapes) {
              for (const c of maxRows === 3 ? shapes : shapes.slice(0, 1)) {
                const setup = {
                  maxBatchTokens,
                  maxRows,
                  blocks: [blocks],
                  floatStartBlocks,
                  floatStartTokens,
                  depth: 2,
                };
                states += explore({ ...setup, blockTokens: 2, ...LATENCY, prefillReserve: 1, minChunk: 1 }, [
                  a,
                  b,
                  c,
                ]);
              }
            }
          }
        }
        expect(states).toBeGreaterThan(1000);
        expect(walked.conversions).toBeGreaterThan(1000);
        // From three on, a row that has been converted holds so much of the pool that no second one can be.
        if (floatStartTokens < 3) expect(walked.victims).toBeGreaterThan(0);
      });
    }
  }
});
