import { describe, expect, it } from 'vitest';
import { CPU_KV_CODECS, codecOf, codedKinds, packingNumber, packingsOf } from '../cpu/kv-formats/list.js';
import {
  FORMAT_A2,
  FORMAT_A3,
  FORMAT_A4,
  FORMAT_A5,
  FORMAT_A6,
  FORMAT_A8,
  FORMAT_T2,
  FORMAT_T3,
  FORMAT_T4,
  KIND_CODES,
  KIND_F16,
  KIND_F32,
} from '../cpu/kv-layout.js';
import { kvCodeBytes, kvMetaBytes } from '../kv.js';
import { WEBGPU_KV_CODECS } from '../webgpu/kernels/kv-formats/list.js';
import { kvLayout } from '../webgpu/kernels/kv-layout.js';
import { KV_FORMATS } from './list.js';

describe('the lists of KV codecs', () => {
  it('have a codec on each device for every kind, each kind once', () => {
    const kinds = KV_FORMATS.map(({ kind }) => kind);
    expect(new Set(kinds).size).toBe(kinds.length);
    expect(CPU_KV_CODECS.map(({ kind }) => kind)).toEqual(kinds);
    expect(WEBGPU_KV_CODECS.map(({ kind }) => kind)).toEqual(kinds);
  });

  it('number packings as the kernels do', () => {
    const numbers = {
      A8: FORMAT_A8,
      A4: FORMAT_A4,
      A2: FORMAT_A2,
      A6: FORMAT_A6,
      A3: FORMAT_A3,
      A5: FORMAT_A5,
      T4: FORMAT_T4,
      T3: FORMAT_T3,
      T2: FORMAT_T2,
    };
    expect(Object.keys(packingsOf())).toEqual(Object.keys(numbers));
    for (const [name, number] of Object.entries(numbers)) expect(packingNumber(name), name).toBe(number);
  });

  it('number the kinds that have codes behind the floats', () => {
    expect(codedKinds().map(({ kind, number }) => [kind, number])).toEqual([
      ['affine', KIND_CODES],
      ['turboquant', KIND_CODES + 1],
    ]);
    expect(KIND_CODES).toBeGreaterThan(Math.max(KIND_F16, KIND_F32));
  });

  it('refuse a kind that is in none of them', () => {
    expect(() => codecOf({ kind: 'nibbles' })).toThrow(/no kind "nibbles"/);
  });

  it('lay out on a GPU as many bytes as are counted', () => {
    const place = { headDim: 64, kvHeads: 4, blockTokens: 16, blocks: 3 };
    for (const kind of KV_FORMATS)
      for (const name of ['f16', 'f32', 'affine3', 'affine4-g32', 'affine8', 'turbo2', 'turbo3', 'turbo8']) {
        const format = kind.parse(name) as Parameters<typeof kvLayout>[0] | undefined;
        if (format === undefined) continue;
        const { words, groups, metaHeads } = kvLayout(format, place);
        expect(words * 4, name).toBe(kvCodeBytes(format, place.headDim));
        expect(groups * metaHeads * 4, name).toBe(kvMetaBytes(format, place.headDim, place.kvHeads));
      }
  });
});
