import { describe, expect, it } from 'vitest';
import { WindowHolder } from './prefix/holders.js';
import { ALL_BLOCKS, rowBlocks } from './retention.js';

describe('what rows keep', () => {
  it('is everything of a full group', () => {
    expect(rowBlocks(null, 16, 256)).toBe(ALL_BLOCKS);
  });

  it('has room for the window of one step and the chunks of two, wherever blocks begin', () => {
    for (const [window, batch, chunk] of [
      [64, 32, 32],
      [64, 512, 256],
      [4096, 2048, 2048],
      [4096, 8192, 2048],
      [1, 7, 7],
    ] as const)
      for (const blockTokens of [16, 32, 64]) {
        const most = rowBlocks(window, blockTokens, batch);
        const holder = new WindowHolder(window, blockTokens);
        for (let tokens = 10_000; tokens < 10_000 + blockTokens; tokens++) {
          const end = Math.ceil((tokens + 2 * chunk) / blockTokens);
          expect(end - holder.firstHeld(tokens)).toBeLessThanOrEqual(most);
          expect(end - holder.firstHeld(tokens)).toBeGreaterThanOrEqual(most - 2);
        }
      }
  });
});
