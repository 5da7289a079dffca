import { describe, expect, it } from 'vitest';
import { affine, F16, turbo } from '../../../../test/devices/kv-cases.js';
import { LARGE } from '../../../../test/devices/large-gpu.js';
import type { KvFormat } from '../../kv.js';
import type { Capabilities, StepFacts } from '../kernel.js';
import { WIDE_SPLITS } from '../step-buffer.js';
import { warmItems } from '../warm-steps.js';
import type { AttendShape } from './attend.js';
import { itemScoreBytes } from './attend-bytes-plan.js';
import { decodeBands, fastItems, wideItemsFrom } from './attend-fast.js';
import { allRows } from './kv-rows.js';

const shapeOf = (key: KvFormat, value: KvFormat, more: Partial<AttendShape> = {}): AttendShape => ({
  heads: 32,
  kvHeads: 8,
  headDim: 128,
  key,
  value,
  blockTokens: 16,
  maxBlocksPerSlot: 1280,
  scale: 0.1,
  window: null,
  softcap: null,
  maxItems: 1024,
  rows: allRows(5000),
  ...more,
});

/** What is dispatched for so many items, by label. */
function dispatcher(
  capabilities: Capabilities,
  shape: AttendShape,
): (items: number, itemSplits?: number) => string[] {
  const variant = fastItems.find((v) => v.supports(capabilities, shape))!;
  const { stages } = variant.build(capabilities, shape);
  return (items, itemSplits = 1) => {
    const facts = { items, itemSplits, tiles: 0, tileParts: 1 } as StepFacts;
    return stages.flatMap(({ label, workgroups }) => {
      const out: [number, number, number] = [0, 0, 0];
      workgroups(facts, out);
      return out[0] > 0 ? [label] : [];
    });
  };
}

/** Items from which on a kernel of that label runs. */
const itemsFrom = (label: string, capabilities: Capabilities, shape: AttendShape): number | null => {
  const dispatched = dispatcher(capabilities, shape);
  for (let items = 1; items <= 1024; items++)
    if (dispatched(items)[0]!.startsWith(`attend ${label}`)) return items;
  return null;
};
const bytesFrom = (capabilities: Capabilities, shape: AttendShape): number | null =>
  itemsFrom('bytes', capabilities, shape);

describe('attention of single-token rows on a large GPU', () => {
  it('takes heads of 512 of floats, with up to eight heads for one of keys', () => {
    const choose = (heads: number, format: KvFormat) =>
      decodeBands(LARGE, shapeOf(format, format, { heads, kvHeads: 1, headDim: 512 }), 1);
    for (const heads of [1, 4, 8]) expect(choose(heads, F16)).not.toEqual([]);
    expect(choose(16, F16)).toEqual([]);
  });

  it.each([
    ['f16', F16, F16],
    ['affine 8', affine(8), affine(8)],
    ['affine 4', affine(4), affine(4)],
    ['TurboQuant 3.5', turbo(3), turbo(4)],
  ] as const)('%s: one kernel for any number of items, and any width', (_, key, value) => {
    const shape = shapeOf(key, value);
    const dispatched = dispatcher(LARGE, shape);
    const widths = wideItemsFrom(LARGE, shape) === Number.POSITIVE_INFINITY ? [1] : [1, WIDE_SPLITS];
    for (const splits of widths)
      for (let items = 1; items <= 1024; items++)
        expect(dispatched(items, splits), `${items} of ${splits}`).toHaveLength(1);
  });

  it('many items go to matrices of bytes, of short codes earlier, else to quads of lanes, and are never wide', () => {
    for (const [label, key, value, items] of [
      ['bytes', affine(4), affine(4), 50],
      ['bytes', affine(3), affine(2), 50],
      ['bytes', turbo(3), turbo(4), 34],
      ['bytes', affine(4), turbo(2), 50],
      ['bytes', affine(8), affine(4), 150],
      ['bytes', affine(3), affine(6), 150],
      ['bytes', affine(4), affine(5), 150],
      ['bytes', affine(8), turbo(4), 150],
      ['quads', affine(8, 32), affine(8, 128), 150],
    ] as const) {
      expect(itemsFrom(label, LARGE, shapeOf(key, value))).toBe(items);
      expect(wideItemsFrom(LARGE, shapeOf(key, value))).toBe(Number.POSITIVE_INFINITY);
    }
    for (const [key, value] of [
      [affine(4, 32), affine(5)],
      [turbo(8), turbo(4)],
      [F16, affine(4)],
    ] as const) {
      for (const label of ['quads', 'bytes']) expect(itemsFrom(label, LARGE, shapeOf(key, value))).toBe(null);
      expect(wideItemsFrom(LARGE, shapeOf(key, value))).toBe(250);
    }
    for (const key of [affine(4), affine(8), turbo(4)])
      expect(bytesFrom(LARGE, shapeOf(key, key, { heads: 16 }))).toBe(150);
    expect(bytesFrom(LARGE, shapeOf(turbo(3), turbo(4), { heads: 24 }))).toBe(34);
    // Of 6 bits quads are faster until the matrices are full.
    expect(itemsFrom('quads', LARGE, shapeOf(affine(6), affine(6), { heads: 16 }))).toBe(150);
    expect(bytesFrom(LARGE, shapeOf(affine(6), affine(6), { heads: 24 }))).toBe(150);
  });

  it.each([
    ['f16', F16],
    ['affine 8', affine(8)],
    ['affine 4', affine(4)],
    ['TurboQuant 4', turbo(4)],
  ] as const)('%s: what a step may launch has run when load ends', (_, format) => {
    // Of 12 rows of 4,096 tokens there are 192 items: the kernel of 150 and more is none that 1, 2, 4, … 128 have.
    for (const maxItems of [1, 3, 49, 50, 51, 100, 149, 150, 192, 255, 256, 374, 375, 376, 1000]) {
      const dispatched = dispatcher(LARGE, shapeOf(format, format, { maxItems }));
      const all = Array.from({ length: maxItems }, (_, i) => dispatched(i + 1)[0]);
      const warm = warmItems(maxItems).map((items) => dispatched(items)[0]);
      expect(new Set(warm), `${maxItems}`).toEqual(new Set(all));
    }
  });

  it('are short: what runs from cold caches of instructions costs by its length', () => {
    // Characters, of GQA 4 and head_dim 128: a tenth above what they have. The second number is of many items' kernel.
    for (const [name, key, value, most, many] of [
      ['f16', F16, F16, 22_000, 0],
      ['affine 8', affine(8), affine(8), 44_000, 31_700],
      ['affine 4', affine(4), affine(4), 33_500, 29_200],
      ['TurboQuant 3.5', turbo(3), turbo(4), 49_300, 49_000],
    ] as const) {
      const shape = shapeOf(key, value);
      const { stages } = fastItems.find((v) => v.supports(LARGE, shape))!.build(LARGE, shape);
      for (const { label, wgsl } of stages.filter((stage) => /decode|quads|bytes/.test(stage.label)))
        expect(wgsl.length, `${name}, ${label}`).toBeLessThan(/quads|bytes/.test(label) ? many : most);
    }
  });

  it('what they take is nothing to tune', () => {
    const bands = (key: KvFormat, splits: number) =>
      decodeBands(LARGE, shapeOf(key, key), splits).map(({ below }) => below);
    for (const [format, own] of [
      [affine(4), [400]],
      [affine(8), [400, 1200]],
      [turbo(4), [400]],
    ] as const) {
      expect(bands(format, 1)).toEqual(own);
      expect(bands(format, WIDE_SPLITS)).toEqual([]);
    }
    expect(bands(turbo(8), 1)).toEqual([400, 1200, Number.POSITIVE_INFINITY]);
    expect(bands(turbo(8), WIDE_SPLITS)).toEqual([Number.POSITIVE_INFINITY]);
  });

  it('and not without those matrices, or without room for the scores', () => {
    const shape = shapeOf(affine(4), affine(4));
    const most = Math.floor((260 * 1024 * 1024) / itemScoreBytes(shape));
    expect(bytesFrom(LARGE, { ...shape, maxItems: most })).toBe(50);
    expect(bytesFrom(LARGE, { ...shape, maxItems: most + 1 })).toBe(null);
    const matrices = LARGE.matrices.filter(({ component }) => component !== 'i8');
    expect(bytesFrom({ ...LARGE, matrices }, shape)).toBe(null);
    const bytes = shape.maxItems * itemScoreBytes(shape);
    expect(bytesFrom({ ...LARGE, bindingBytes: bytes - 1 }, shape)).toBe(null);
    expect(bytesFrom({ ...LARGE, bindingBytes: bytes }, shape)).toBe(50);
    expect(bytesFrom({ ...LARGE, storageBuffers: 9 }, shape)).toBe(null);
  });

  it('write no products of packed bytes where WGSL has none', () => {
    const packed = (capabilities: Capabilities, key: KvFormat, value: KvFormat): boolean => {
      const shape = shapeOf(key, value);
      const variant = fastItems.find((v) => v.supports(capabilities, shape))!;
      return variant.build(capabilities, shape).stages.some(({ wgsl }) => /dot4|pack4x/.test(wgsl));
    };
    for (const [key, value] of [
      [affine(8), affine(8)],
      [affine(4), affine(4)],
      [affine(8), turbo(4)],
    ] as const) {
      expect(packed(LARGE, key, value)).toBe(true);
      expect(packed({ ...LARGE, packedDots: false }, key, value)).toBe(false);
    }
    expect(itemsFrom('quads', { ...LARGE, packedDots: false }, shapeOf(affine(6, 32), affine(8)))).toBe(null);
  });
});
