import { describe, expect, it } from 'vitest';
import { Params, spread, type Workgroups } from './kernel.js';
import { f32Literal } from './kernels/f32-literal.js';

describe('f32Literal', () => {
  it('reads back as the very number', () => {
    const values = [
      0,
      1,
      -1,
      0.1,
      1e-6,
      1 / 3,
      3.4e38,
      1.1754943508222875e-38,
      16777216,
      255.5,
      1e21,
      -2.5e-7,
    ];
    for (const value of values) {
      const text = f32Literal(value);
      expect(text).toMatch(/^-?(\d+\.\d*|\d*\.\d+|\d+)(e[+-]?\d+)?f$/);
      expect(text, 'an integer without a point is no f32').toMatch(/[.e]/);
      expect(Math.fround(Number(text.slice(0, -1)))).toBe(Math.fround(value));
    }
  });
});

describe('spread', () => {
  it('covers every workgroup with at most 65,535 in a dimension, and nothing for nothing', () => {
    const out: Workgroups = [0, 0, 0];
    for (const count of [1, 2, 65535, 65536, 65537, 131071, 262144, 4_000_000]) {
      spread(count, out, 3);
      expect(out[0] * out[1]).toBeGreaterThanOrEqual(count);
      expect(out[0] * (out[1] - 1)).toBeLessThan(count);
      expect(Math.max(...out)).toBeLessThanOrEqual(65535);
      expect(out[2]).toBe(3);
    }
    spread(0, out);
    expect(out[0] * out[1] * out[2]).toBe(0);
  });
});

describe('Params', () => {
  it('hands out words in order, as numbers of their type', () => {
    const params = new Params();
    expect([params.u32(7), params.f32(1), params.u32(0), params.u32(1), params.u32(9)]).toEqual([
      'params[0].x',
      'bitcast<f32>(params[0].y)',
      'params[0].z',
      'params[0].w',
      'params[1].x',
    ]);
    expect([...params.words]).toEqual([7, 0x3f800000, 0, 1, 9, 0, 0, 0]);
    expect(params.binding.type).toBe('array<vec4<u32>, 2>');
  });
});
