import { describe, expect, it } from 'vitest';
import type { ModelDefinition } from '../../models/family.js';
import { schedulerConfig } from '../host-options.js';
import { tokensWithin, wholeChunk } from '../scheduling/blocks.js';
import { roomForPicture } from './whole-pictures.js';

const limits = { maxBatchTokens: 4096, maxContext: 8192, targetItlMs: 0 };

describe('pictures whose tokens see each other', () => {
  it.each([
    [1024, 32, 560, 560],
    [1024, 32, 1120, 1026],
    [512, 64, 1120, 514],
    [16, 16, 280, 280],
  ])(
    'window %i, blocks of %i: of %i tokens %i have room wherever a row stands',
    (window, blockTokens, most, room) => {
      const groups = [
        { window: null, layers: [1] },
        { window, layers: [0] },
      ];
      const config = schedulerConfig(limits, 'cpu', blockTokens, 0, groups);
      const model = { vision: { ahead: { layers: 'sliding', most } } } as unknown as ModelDefinition;
      const ahead = roomForPicture(model, config)!;
      expect(ahead).toBe(room);
      for (let computed = 3000; computed < 3000 + 2 * blockTokens; computed++) {
        const front = Math.floor((computed - (window - 1)) / blockTokens);
        const row = {
          length: 8000,
          computed,
          blocks: [0, Math.ceil(computed / blockTokens)],
          front: [0, front],
        };
        const until = tokensWithin(row, 1000, config, 1);
        expect(wholeChunk({ computed, uncut: [computed, computed + ahead] }, 64, until)).toBe(ahead);
      }
    },
  );
});
