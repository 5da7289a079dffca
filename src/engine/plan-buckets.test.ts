import { describe, expect, it } from 'vitest';
import { planBuckets } from './plan-buckets.js';

describe('planBuckets', () => {
  it('covers every step: some bucket is at least as large and less than twice as large', () => {
    for (const [maxTokens, maxRows] of [
      [1, 1],
      [256, 16],
      [100, 7],
      [4, 16],
    ] as const) {
      const buckets = planBuckets(maxTokens, maxRows);
      for (let tokens = 1; tokens <= maxTokens; tokens++) {
        for (let outputs = 1; outputs <= Math.min(tokens, maxRows); outputs++) {
          const fits = buckets.some(
            (b) =>
              b.tokens >= tokens && b.outputs >= outputs && b.tokens < 2 * tokens && b.outputs < 2 * outputs,
          );
          expect(fits).toBe(true);
        }
      }
      expect(buckets).toContainEqual({ tokens: maxTokens, outputs: 0 });
      expect(buckets.every((b) => b.tokens <= maxTokens && b.outputs <= maxRows)).toBe(true);
    }
  });
});
