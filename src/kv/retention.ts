/**
 * What of its KV a row keeps. All layers of a row share one block table, so a block is given back when no layer reads it any
 * more: where all layers slide, behind the widest window; where one sees everything, never.
 */

/** Tokens that the widest window shows, itself included; 0 where a layer sees all, or none caches anything. */
export function widestWindow(windows: readonly (number | null)[]): number {
  let widest = 0;
  for (const window of windows) {
    if (window === null) return 0;
    widest = Math.max(widest, window);
  }
  return widest;
}

/** Blocks that a row of unbounded length may hold at most, for want of windows. */
export const ALL_BLOCKS = 0x3fffffff;

/** Least tokens of a chunk that a row with windows has room for beside its window. */
const LEAST_CHUNK = 256;

/**
 * Most blocks that a row holds at once: its window, and twice a chunk, for while one step runs the next one is
 * planned. `maxBatchTokens` is the most a chunk can have; more than half a window gains little.
 */
export function rowBlocks(window: number, blockTokens: number, maxBatchTokens: number): number {
  if (window === 0) return ALL_BLOCKS;
  const chunk = Math.min(maxBatchTokens, Math.max(LEAST_CHUNK, Math.ceil(window / 2)));
  return Math.ceil((window - 1 + 2 * chunk) / blockTokens) + 1;
}
