import { describe, expect, it } from 'vitest';
import { kvBlockBytes } from '../device/kv.js';
import { KvantError } from '../errors.js';
import { readKvOptions } from './options.js';
import { planKvLayers } from './policy.js';
import { ALL_BLOCKS } from './retention.js';
import { type KvSizingRequest, kvSequenceBytes, sizeKvCache, sizeKvPool } from './sizing.js';

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
      floatStartBlocks: 0,
      floatStartPerSequence: 0,
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

describe('sizeKvPool where rows give blocks back', () => {
  const sliding = { ...base, rowBlocks: 12 };

  it('has room for any length as soon as one row has what it holds at once', () => {
    expect(sizeKvPool({ ...sliding, kvMemory: 12 * 16 * 1024, maxContext: 1000 })).toMatchObject({
      blocks: 12,
      maxContext: 1000,
      blocksPerSequence: 63,
      limitedBy: 'kv-memory',
    });
    expect(() => sizeKvPool({ ...sliding, kvMemory: 11 * 16 * 1024, maxContext: 1000 })).toThrow(
      /1000 tokens needs 196608 bytes/,
    );
    // Short ones fit whole.
    expect(sizeKvPool({ ...sliding, kvMemory: 11 * 16 * 1024, maxContext: 170 }).maxContext).toBe(170);
    expect(sizeKvPool({ ...sliding, kvMemory: 11 * 16 * 1024 }).maxContext).toBe(176);
  });

  it('keeps rows from nothing with what each holds, and has more for prefixes where there is more', () => {
    expect(sizeKvPool({ ...sliding, kvMemory: 48 * 16 * 1024 })).toMatchObject({
      blocks: 48,
      limitedBy: 'nothing',
    });
    expect(sizeKvPool({ ...sliding, kvMemory: 200 * 16 * 1024 }).blocks).toBe(200);
    expect(sizeKvPool(sliding).blocks).toBe(63 * 4);
  });

  it('counts a sequence by what it holds at once', () => {
    expect(kvSequenceBytes([{ layers, rowBlocks: 12 }], 16, 1000)).toBe(12 * 16 * 1024);
    expect(kvSequenceBytes([{ layers, rowBlocks: 12 }], 16, 100)).toBe(7 * 16 * 1024);
  });
});

describe('sizeKvPool with float-start blocks', () => {
  // Two layers at 8 bits: 2 · (2 vectors · 2 heads · (64 + 4 bytes)) = 544 bytes a token; as floats 1024.
  const plan = planKvLayers([shape, shape], readKvOptions({ kvBits: 8, quantizedKvStart: 100 }), f16);
  const request = { ...base, layers: plan.layers, floatStart: plan.floatStart };
  const [old, floatStart] = [16 * 544, 16 * 1024];

  it('has both kinds for every row, and counts both', () => {
    expect(sizeKvPool(request)).toEqual({
      blocks: 63 * 4,
      floatStartBlocks: 7 * 4,
      floatStartPerSequence: 7,
      bytes: 63 * 4 * old + 28 * floatStart,
      maxContext: 1000,
      blocksPerSequence: 63,
      limitedBy: 'nothing',
    });
  });

  it('cuts both alike where memory ends, and keeps one float-start sequence', () => {
    const whole = 63 * 4 * old + 28 * floatStart;
    for (const memory of [whole / 2, whole / 3, whole / 3.9]) {
      const sizing = sizeKvPool({ ...request, kvMemory: Math.floor(memory) });
      expect(sizing.limitedBy).toBe('kv-memory');
      expect(sizing.bytes).toBeLessThanOrEqual(memory);
      expect(sizing.bytes).toBeGreaterThan(memory - old - floatStart);
      expect(sizing.floatStartBlocks).toBeGreaterThanOrEqual(7);
      expect(sizing.floatStartBlocks / 28).toBeCloseTo(memory / whole, 1);
    }
    const one = sizeKvPool({ ...request, kvMemory: 10 * old + 7 * floatStart });
    expect(one).toMatchObject({ blocks: 10, floatStartBlocks: 7, maxContext: 160 });
  });

  it('wants room for one sequence of either kind, and for one that comes of age', () => {
    expect(() => sizeKvPool({ ...request, maxContext: 200, kvMemory: 12 * old + 7 * floatStart })).toThrow(
      new RegExp(`200 tokens needs ${13 * old + 7 * floatStart} bytes.*the 100 it keeps as floats`),
    );
    // Seven blocks are 112 tokens, more than 100; six are not.
    expect(sizeKvPool({ ...request, kvMemory: 7 * old + 7 * floatStart }).maxContext).toBe(112);
    expect(() => sizeKvPool({ ...request, kvMemory: 6 * old + 7 * floatStart })).toThrow(/101 tokens needs/);
  });

  it('binds no more of a layer at once than the device can', () => {
    // One layer's keys: 136 bytes a token, as floats 256.
    const plane = 16 * (100 * 136 + 20 * 256);
    const { blocks, floatStartBlocks } = sizeKvPool({ ...request, maxPlaneBytes: plane });
    expect(16 * (blocks * 136 + floatStartBlocks * 256)).toBeLessThanOrEqual(plane);
    expect(blocks).toBeGreaterThan(90);
  });

  it('is what a sequence is said to need', () => {
    expect(kvSequenceBytes([{ layers: plan.layers, rowBlocks: ALL_BLOCKS }], 16, 1000, plan.floatStart)).toBe(
      63 * old + 7 * floatStart,
    );
    expect(kvSequenceBytes([{ layers: plan.layers, rowBlocks: ALL_BLOCKS }], 16, 1000)).toBe(63 * old);
  });
});

describe('sizeKvCache', () => {
  // A full layer of 512 bytes a token, and two sliding ones of 1024 together, of which a row holds 12 blocks.
  const full = { layers: layers.slice(0, 1), rowBlocks: ALL_BLOCKS };
  const sliding = { layers, rowBlocks: 12 };
  const { layers: _, ...rest } = base;
  const request = { ...rest, groups: [full, sliding] };
  const [a, b] = [16 * 512, 16 * 1024];

  it('is that of one pool where there is one group', () => {
    const { blocks, ...one } = sizeKvPool({ ...base, kvMemory: 1_000_000 });
    const sizing = sizeKvCache({ ...rest, kvMemory: 1_000_000, groups: [{ layers, rowBlocks: ALL_BLOCKS }] });
    expect(sizing).toEqual({ ...one, blocks: [blocks] });
  });

  it('gives every row what it holds of the windows, and the full group whole sequences', () => {
    expect(sizeKvCache(request)).toMatchObject({
      blocks: [63 * 4, 12 * 4],
      bytes: 63 * 4 * a + 12 * 4 * b,
      maxContext: 1000,
      limitedBy: 'nothing',
    });
    expect(kvSequenceBytes(request.groups, 16, 1000)).toBe(63 * a + 12 * b);
  });

  it('leaves the full group what the windows do not take, and at least half', () => {
    const memory = 48 * b + 100 * a + 5;
    expect(sizeKvCache({ ...request, kvMemory: memory })).toMatchObject({
      blocks: [100, 48],
      limitedBy: 'kv-memory',
      bytes: 48 * b + 100 * a,
    });
    const short = sizeKvCache({ ...request, kvMemory: 60 * b });
    expect(short.blocks[1]).toBe(30);
    expect(short.blocks[0]).toBe(60);
    expect(short.bytes).toBeLessThanOrEqual(60 * b);
  });

  it('gives the windows more than half where the full group has no use for it', () => {
    // Contexts that end within the window: of the 12 blocks that a row may hold it holds 4.
    const memory = 16 * a + 16 * b;
    expect(sizeKvCache({ ...request, maxContext: 64, kvMemory: memory })).toMatchObject({
      blocks: [16, 16],
      bytes: memory,
      limitedBy: 'nothing',
    });
  });

  it('gives every row a slot of state, whatever a short context leaves the full group', () => {
    const state = {
      layers: [{ ...layers[0]!, state: { conv: null, matrix: { heads: 4, rows: 64, cols: 64 } } }],
      rowBlocks: 1,
      snapshotBytes: 0,
    };
    const slot = kvBlockBytes(state.layers, 16);
    const short = { ...rest, groups: [full, state], maxContext: 64 };
    for (const snapshots of [0, 1]) {
      const groups = [full, { ...state, snapshotBytes: snapshots * slot }];
      const memory = 16 * a + (4 + snapshots) * slot;
      expect(sizeKvCache({ ...short, groups, kvMemory: memory })).toMatchObject({
        blocks: [16, 4 + snapshots],
      });
    }
    // Less than all can use: half for the states and a quarter for snapshots, as ever.
    const scarce = sizeKvCache({ ...short, groups: [full, state], kvMemory: 8 * a + 3 * slot });
    expect(scarce.blocks[0]! * a + scarce.blocks[1]! * slot).toBeLessThanOrEqual(8 * a + 3 * slot);
    expect(scarce.blocks[1]).toBeLessThan(4);
  });

  it('has room for a sequence of the context that was asked for before more rows and snapshots', () => {
    const state = {
      layers: [{ ...layers[0]!, state: { conv: null, matrix: { heads: 4, rows: 64, cols: 64 } } }],
      rowBlocks: 1,
      snapshotBytes: 1e9,
    };
    const slot = kvBlockBytes(state.layers, 16);
    const asked = { ...rest, groups: [full, state, sliding], maxContext: 1000 };
    const need = 63 * a + slot + 12 * b;
    for (let kvMemory = need; kvMemory < 3 * need; kvMemory += slot / 2) {
      const { blocks, bytes, maxContext } = sizeKvCache({ ...asked, kvMemory });
      expect(maxContext).toBe(1000);
      expect(blocks[0]).toBeGreaterThanOrEqual(63);
      expect(bytes).toBeLessThanOrEqual(kvMemory);
    }
    for (const kvMemory of [need - 1, need / 2, 10])
      expect(() => sizeKvCache({ ...asked, kvMemory })).toThrow(new RegExp(`needs ${need} bytes`));
  });

  it('says what a sequence needs of both', () => {
    expect(() => sizeKvCache({ ...request, maxContext: 1000, kvMemory: 12 * b + 10 * a })).toThrow(
      new RegExp(`1000 tokens needs ${63 * a + 12 * b} bytes.*there are ${12 * b + 10 * a}`),
    );
  });
});

describe('the least memory that serves one request', () => {
  // Three layers that keep all, slide and recur: what stands beside the first group is there for one row in any case.
  const state = { conv: null, matrix: { heads: 4, rows: 64, cols: 64 } };
  const bits = planKvLayers([shape, shape], readKvOptions({ kvBits: 8, kvSkipLayers: [] }), f16).layers;
  const start = { start: 40, dtype: 'f16' } as const;
  const full = { layers, rowBlocks: ALL_BLOCKS };
  const sliding = { layers: layers.slice(0, 1), rowBlocks: 12 };
  const head = { layers: bits, rowBlocks: 2, head: true };
  const tail = { layers: bits, rowBlocks: 6, tail: true };
  const recurrent = (snapshotBytes: number) => ({
    layers: [{ ...layers[0]!, kvHeads: 0, headDim: 0, state }],
    rowBlocks: 1,
    snapshotBytes,
  });
  const KINDS = {
    full: { groups: [full] },
    sliding: { groups: [sliding] },
    'full and sliding': { groups: [full, sliding] },
    'full and recurrent, no snapshots': { groups: [full, recurrent(0)] },
    'full and recurrent, many snapshots': { groups: [full, recurrent(2 ** 30)] },
    'full, sliding and recurrent': { groups: [full, sliding, recurrent(2 ** 20)] },
    'floats at first': { groups: [{ layers: bits, rowBlocks: ALL_BLOCKS }], floatStart: start },
    'floats at first, and recurrent': {
      groups: [{ layers: bits, rowBlocks: ALL_BLOCKS }, recurrent(2 ** 20)],
      floatStart: start,
    },
    'a float head': { groups: [{ layers: bits, rowBlocks: ALL_BLOCKS }, head] },
    'a float tail, sliding and recurrent': {
      groups: [{ layers: bits, rowBlocks: ALL_BLOCKS }, tail, sliding, recurrent(2 ** 20)],
    },
  } as const;

  // A sequence that is never longer than it is float has no other blocks (policy.ts).
  for (const [kind, { groups, ...more }] of Object.entries(KINDS))
    for (const maxContext of 'floatStart' in more
      ? [undefined, 41, 160, 1000]
      : [undefined, 1, 16, 17, 160, 1000])
      for (const maxRows of [1, 16])
        it(`is what is named: ${kind}, ${maxContext ?? 'any'} tokens, ${maxRows} rows`, () => {
          const asked = (kvMemory: number) =>
            sizeKvCache({ ...base, ...more, groups, maxContext, maxRows, kvMemory });
          const refused = (kvMemory: number): { need: number; has: number } | null => {
            try {
              const { blocks, bytes, maxContext: reached, floatStartBlocks } = asked(kvMemory);
              // No more than was given, and one request of the context that is promised has all it holds.
              expect(bytes).toBeLessThanOrEqual(kvMemory);
              groups.forEach(({ rowBlocks }, group) => {
                const holds = Math.min(Math.ceil(reached / 16), rowBlocks);
                expect(blocks[group]).toBeGreaterThanOrEqual(holds);
              });
              expect(reached).toBeGreaterThanOrEqual(maxContext ?? 1);
              if ('floatStart' in more) expect(floatStartBlocks).toBeGreaterThanOrEqual(3);
              return null;
            } catch (error) {
              if (!(error instanceof KvantError)) throw error;
              expect(error.code).toBe('kv-memory-too-small');
              const [need, has] = /needs (\d+) bytes.*there are (\d+)\.$/
                .exec(error.message)!
                .slice(1)
                .map(Number);
              expect(error.fix).toContain(`at least ${need} bytes`);
              expect(error.fix?.includes('shorter context')).toBe(maxContext !== undefined);
              return { need: need!, has: has! };
            }
          };
          const { need } = refused(1)!;
          for (const bytes of [0, 1, need >> 2, need >> 1, need - 16, need - 1])
            expect(refused(bytes), `${bytes} of ${need}`).toEqual({ need, has: bytes });
          for (const bytes of [need, need + 1, need + 5000, 2 * need, 3 * need, 100 * need])
            expect(refused(bytes), `${bytes} of ${need}`).toBeNull();
        });
});
