import { describe, expect, it } from 'vitest';
import { affine, F16, turbo } from '../../../../test/devices/kv-cases.js';
import { LARGE } from '../../../../test/devices/large-gpu.js';
import type { KvFormat } from '../../kv.js';
import type { Capabilities, StepFacts } from '../kernel.js';
import { WIDE_SPLITS } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import { fastItems, wideItemsFrom } from './attend-fast.js';
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
function dispatched(capabilities: Capabilities, shape: AttendShape, items: number, itemSplits = 1): string[] {
  const variant = fastItems.find((v) => v.supports(capabilities, shape))!;
  const facts = { items, itemSplits, tiles: 0, tileParts: 1 } as StepFacts;
  return variant.build(capabilities, shape).stages.flatMap(({ label, workgroups }) => {
    const out: [number, number, number] = [0, 0, 0];
    workgroups(facts, out);
    return out[0] > 0 ? [label] : [];
  });
}

const bytesFrom = (capabilities: Capabilities, shape: AttendShape): number | null => {
  for (let items = 1; items <= 1024; items++)
    if (dispatched(capabilities, shape, items)[0]!.startsWith('attend bytes')) return items;
  return null;
};

describe('attention of single-token rows on a large GPU', () => {
  it.each([
    ['f16', F16, F16],
    ['affine 8', affine(8), affine(8)],
    ['affine 4', affine(4), affine(4)],
    ['TurboQuant 3.5', turbo(3), turbo(4)],
  ] as const)('%s: one kernel for any number of items, and any width', (_, key, value) => {
    const shape = shapeOf(key, value);
    const widths = wideItemsFrom(LARGE, shape) === Number.POSITIVE_INFINITY ? [1] : [1, WIDE_SPLITS];
    for (const splits of widths)
      for (let items = 1; items <= 1024; items++)
        expect(dispatched(LARGE, shape, items, splits), `${items} of ${splits}`).toHaveLength(1);
  });

  it('many items of up to 4 bits go to matrices of bytes, and are never wide', () => {
    for (const [key, value] of [
      [affine(4), affine(4)],
      [affine(3), affine(2)],
    ] as const) {
      expect(bytesFrom(LARGE, shapeOf(key, value))).toBe(150);
      expect(wideItemsFrom(LARGE, shapeOf(key, value))).toBe(Number.POSITIVE_INFINITY);
    }
    for (const [key, value] of [
      [affine(8), affine(4)],
      [affine(4), affine(5)],
      [turbo(3), turbo(4)],
      [F16, affine(4)],
    ] as const) {
      expect(bytesFrom(LARGE, shapeOf(key, value))).toBe(null);
      expect(wideItemsFrom(LARGE, shapeOf(key, value))).toBe(250);
    }
  });

  it('and not without those matrices, or without room for the scores', () => {
    const shape = shapeOf(affine(4), affine(4));
    const matrices = LARGE.matrices.filter(({ component }) => component !== 'i8');
    expect(bytesFrom({ ...LARGE, matrices }, shape)).toBe(null);
    expect(bytesFrom({ ...LARGE, bindingBytes: 2 ** 25 - 1 }, shape)).toBe(null);
    expect(bytesFrom({ ...LARGE, bindingBytes: 2 ** 25 }, shape)).toBe(150);
  });
});
