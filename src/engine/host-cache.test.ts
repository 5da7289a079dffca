import { describe, expect, it } from 'vitest';
import type { ModelFacts } from '../models/facts.js';
import { defaultCache } from './host-cache.js';

const layers = Array.from({ length: 4 }, () => ({ kvHeads: 8, headDim: 128, window: null, group: 0 }));
const model = { maxPositions: 8192 } as ModelFacts;

describe('the cache of an engine', () => {
  it.each([0, 32, 64])('has room for all rows at the context asked for, with a head of %i tokens', (head) => {
    const options = { maxRows: 8, maxContext: 4160, kvFormat: 'turbo4', kvFloatHead: head };
    const { kvTokens, maxContext } = defaultCache(
      options,
      model,
      layers,
      { kind: 'webgpu', memoryBytes: undefined },
      0,
    );
    expect([kvTokens, maxContext]).toEqual([8 * 4160, 4160]);
  });

  it('has room for the tails of all rows beside', () => {
    const options = { maxRows: 8, maxContext: 4160, kvFormat: 'turbo4', kvFloatTail: 128 };
    const cache = defaultCache(options, model, layers, { kind: 'cpu', memoryBytes: 2 ** 40 }, 0);
    expect([cache.kvTokens, cache.maxContext]).toEqual([8 * 4160, 4160]);
    // A row has its window and two chunks of 256; a sixteenth of the memory is less than four times that. The last layer is float.
    const row = (Math.ceil((127 + 2 * 256) / 16) + 1) * 16;
    expect(cache.groupBytes[1]).toBe(8 * row * 3 * 2 * 8 * 128 * 2);
    expect(cache.kvBytes).toBe(cache.groupBytes[0]! + cache.groupBytes[1]!);
    const gpu = { kind: 'webgpu', memoryBytes: undefined } as const;
    expect(defaultCache(options, model, layers, gpu, 0).groupBytes[1]).toBeGreaterThan(0);
    expect(() => defaultCache({ ...options, kvFloatTail: 257 }, model, layers, gpu, 0)).toThrow(
      expect.objectContaining({ code: 'kv-tail-unsupported', fix: expect.stringContaining('256') }),
    );
  });
});
