/** What tests of the scheduler start from: nothing measured, steps of any time, a newcomer that nothing sets apart. */
import { ALL_BLOCKS } from '../../src/kv/retention.js';

export const UNMEASURED = { fixed: 0, row: 0, chunk: 0, token: 0, depth: 0 };

/** Steps may take any time. */
export const LATENCY = {
  ageingMs: 2000,
  chunkTokens: 1,
  targetItl: 0,
  groups: [{ window: 0, rowBlocks: ALL_BLOCKS }],
};

export const newcomer = (length: number) => ({
  length,
  computed: 0,
  blocks: [0],
  front: [0],
  floatStart: false,
  held: false,
  priority: 0,
  share: 0,
  arrival: 0,
  deadline: Number.POSITIVE_INFINITY,
});
