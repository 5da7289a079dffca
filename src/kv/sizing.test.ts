import { describe, expect, it } from 'vitest';
import { readKvOptions } from './options.js';
import { planKvLayers } from './policy.js';
import { type KvSizingRequest, sizeKvPool } from './sizing.js';

// Two layers, 2 KV heads of 64, f16: 2 · (2 vectors · 2 heads · 64 · 2 bytes) = 1024 bytes a token.
const shape = { kvHeads: 2, headDim: 64, window: null, group: 0 };
const f16 = { kind: 'float', dtype: 'f16' } as const;
const { layers } = planKvLayers([shape, shape], readKvOptions({}), f16);
const base: KvSizingRequest = {
  layers,
  blockTokens: 16,
  modelContext: 1000,
  maxContext: undefined,
  maxRows: 4,
  kvMemory: undefined,
  available: undefined,
};

describe('sizeKvPool', () => {
  it('holds every row at full length if memory allows', () => {
    expect(sizeKvPool(base)).toEqual({
      blocks: 63 * 4,
      bytes: 63 * 4 * 16 * 1024,
      maxContext: 1000,
      blocksPerSequence: 63,
      limitedBy: 'nothing',
    });
    expect(sizeKvPool({ ...base, maxContext: 160 }).blocks).toBe(40);
  });

  it('stops at the bytes given, or at what the device has', () => {
    const given = sizeKvPool({ ...base, kvMemory: 100 * 16 * 1024 + 5, available: 1 });
    expect(given).toMatchObject({ blocks: 100, limitedBy: 'kv-memory', maxContext: 1000 });
    const had = sizeKvPool({ ...base, available: 70 * 16 * 1024 });
    expect(had).toMatchObject({ blocks: 70, limitedBy: 'device-memory', maxContext: 1000 });
    // One layer's keys: 256 bytes a token.
    expect(sizeKvPool({ ...base, maxPlaneBytes: 80 * 16 * 256 }).blocks).toBe(80);
  });

  it('shortens a context nobody asked for, refuses one somebody did', () => {
    const short = sizeKvPool({ ...base, kvMemory: 10 * 16 * 1024 });
    expect(short).toMatchObject({ blocks: 10, maxContext: 160, blocksPerSequence: 10 });
    expect(() => sizeKvPool({ ...base, maxContext: 200, kvMemory: 10 * 16 * 1024 })).toThrow(
      /200 tokens needs 212992 bytes/,
    );
    expect(() => sizeKvPool({ ...base, kvMemory: 100 })).toThrow(/there are 100/);
    expect(() => sizeKvPool({ ...base, maxContext: 1001 })).toThrow(/made for 1000/);
  });
});
