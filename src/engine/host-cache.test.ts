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
});
