/**
 * What rows keep of their KV. Each cache group (groups.ts) gives back what its layers do not read any more: a sliding one the
 * blocks behind its window, a full one none.
 */

/** Blocks that a row of unbounded length may hold at most, for want of windows. */
export const ALL_BLOCKS = 0x3fffffff;

/** Least tokens of a chunk that a row with windows has room for beside its window. */
const LEAST_CHUNK = 256;

/** Blocks of a float head of so many tokens, for sequences of up to `maxContext`. */
export function headBlocks(tokens: number, maxContext: number, blockTokens: number): number {
  return Math.ceil(Math.min(tokens, maxContext) / blockTokens);
}

/**
 * Most blocks that a row holds of a group at once: all of a full one (`window` null); of a sliding one its window, and twice a chunk, for while one step runs the next one is
 * planned. `maxBatchTokens` is the most a chunk can have; more than half a window gains little.
 */
export function rowBlocks(window: number | null, blockTokens: number, maxBatchTokens: number): number {
  if (window === null) return ALL_BLOCKS;
  const chunk = Math.min(maxBatchTokens, Math.max(LEAST_CHUNK, Math.ceil(window / 2)));
  return Math.ceil((window - 1 + 2 * chunk) / blockTokens) + 1;
}
