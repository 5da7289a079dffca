import { describe, expect, it } from 'vitest';
import { bf16ToF32, f32ToF16 } from './half.js';

/** The value of f16 bits, by the definition of the format. */
function value(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

describe('f32ToF16', () => {
  it('gives back every f16', () => {
    for (let bits = 0; bits < 65536; bits++) {
      const v = value(bits);
      if (Number.isNaN(v)) expect(value(f32ToF16(v))).toBeNaN();
      else expect(f32ToF16(v)).toBe(bits);
    }
  });

  it('rounds the middle between neighbours to the even one, and others to the nearer', () => {
    for (let bits = 0; bits < 0x7bff; bits++) {
      const [low, high] = [value(bits), value(bits + 1)];
      const middle = (low + high) / 2;
      expect(f32ToF16(middle)).toBe(bits % 2 === 0 ? bits : bits + 1);
      expect(f32ToF16(Math.fround(middle - (high - low) / 64))).toBe(bits);
      expect(f32ToF16(Math.fround(middle + (high - low) / 64))).toBe(bits + 1);
    }
    expect(f32ToF16(65519)).toBe(0x7bff);
    expect(f32ToF16(65520)).toBe(0x7c00);
    expect(f32ToF16(-1e9)).toBe(0xfc00);
  });
});

describe('bf16ToF32', () => {
  it('is the upper half of an f32', () => {
    expect(bf16ToF32(0x3f80)).toBe(1);
    expect(bf16ToF32(0xc049)).toBe(-3.140625);
    expect(bf16ToF32(0x0001)).toBe(2 ** -133);
    expect(bf16ToF32(0xff80)).toBe(Number.NEGATIVE_INFINITY);
  });
});
