import { expect, it } from 'vitest';
import type { KvPoolSpec } from '../../device/kv.js';
import { type PrefixLimits, prefixBlockBytes, prefixLimits } from './prefix-limits.js';

const float = { kind: 'float', dtype: 'f16' } as const;
const coded = { kind: 'affine', bits: 8, groupSize: 64 } as const;
const layer = { kvHeads: 2, headDim: 64, group: 0 };
const spec: KvPoolSpec = {
  layers: [
    { ...layer, key: coded, value: float },
    { ...layer, key: float, value: float },
  ],
  blocks: 100,
  blockTokens: 16,
  slots: 1,
  maxBlocksPerSlot: 4,
  floatStart: { blocks: 20, dtype: 'f32' },
};

it('counts what a block takes as it is stored', () => {
  // A token of two heads of 64: f16 256 bytes, 8 bits with scale and bias 136, f32 512; two layers of K and V.
  expect(prefixBlockBytes(spec)).toEqual({ blocks: 16 * (136 + 3 * 256), floatStart: 16 * 4 * 512 });
  expect(prefixBlockBytes({ ...spec, floatStart: null }).floatStart).toBe(0);
});

it('keeps within the bytes, both kinds in proportion', () => {
  const all = 100 * 16 * 904 + 20 * 16 * 2048;
  expect(prefixLimits([spec], all)).toEqual([{ blocks: 100, floatStart: 20 }]);
  expect(prefixLimits([spec], 2 * all)).toEqual([{ blocks: 100, floatStart: 20 }]);
  expect(prefixLimits([spec], all / 2)).toEqual([{ blocks: 50, floatStart: 10 }]);
  expect(prefixLimits([spec], 0)).toEqual([{ blocks: 0, floatStart: 0 }]);
  const [{ blocks, floatStart }] = prefixLimits([spec], 123_456) as [PrefixLimits];
  expect(blocks * 16 * 904 + floatStart * 16 * 2048).toBeLessThanOrEqual(123_456);
  expect(prefixLimits([{ ...spec, floatStart: null }], 16 * 904 * 7 + 1)).toEqual([
    { blocks: 7, floatStart: 0 },
  ]);
  // A second group of half the bytes a block, and as many blocks: two thirds and one third.
  const half: KvPoolSpec = { ...spec, floatStart: null, layers: [spec.layers[1]!] };
  const bytes = 100 * 16 * 904 + 100 * 16 * 512;
  expect(prefixLimits([{ ...spec, floatStart: null }, half], bytes / 4)).toEqual([
    { blocks: 25, floatStart: 0 },
    { blocks: 25, floatStart: 0 },
  ]);
});
