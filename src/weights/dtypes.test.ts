import { describe, expect, it } from 'vitest';
import { decodeFloats, encodeFloats, f16ToNumber, numberToBf16, numberToF16 } from './dtypes.js';

/** The nearest half by search over all of them: slow and plainly right. Ties go to the even code. */
function nearest(value: number, codes: readonly number[], decode: (code: number) => number): number {
  let best = codes[0]!;
  for (const code of codes) {
    const d = Math.abs(decode(code) - value);
    const e = Math.abs(decode(best) - value);
    if (d < e || (d === e && code % 2 === 0 && best % 2 !== 0)) best = code;
  }
  return best;
}

describe('binary16', () => {
  it('decodes the values the standard names', () => {
    expect(f16ToNumber(0x3c00)).toBe(1);
    expect(f16ToNumber(0xc000)).toBe(-2);
    expect(f16ToNumber(0x7bff)).toBe(65504);
    expect(f16ToNumber(0x0001)).toBe(2 ** -24);
    expect(f16ToNumber(0x0400)).toBe(2 ** -14);
    expect(f16ToNumber(0x3555)).toBe(0x555 / 2 ** 12);
    expect(f16ToNumber(0x7c00)).toBe(Infinity);
    expect(f16ToNumber(0xfc00)).toBe(-Infinity);
    expect(f16ToNumber(0x7c01)).toBeNaN();
    expect(Object.is(f16ToNumber(0x8000), -0)).toBe(true);
  });

  it('encodes back every code', () => {
    for (let code = 0; code < 65536; code++) {
      const value = f16ToNumber(code);
      if (Number.isNaN(value)) expect(f16ToNumber(numberToF16(value))).toBeNaN();
      else expect(numberToF16(value)).toBe(code);
    }
  });

  it('rounds to the nearest, ties to even', () => {
    const codes = Array.from({ length: 0x7c00 }, (_, i) => i);
    for (const value of [
      1e-8,
      2 ** -25,
      3 * 2 ** -25,
      5.1e-5,
      6.1e-5,
      0.1,
      1 + 2 ** -11,
      1 + 3 * 2 ** -11,
      2047.5,
      65503,
    ]) {
      const v = Math.fround(value);
      expect(numberToF16(v), String(v)).toBe(nearest(v, codes, f16ToNumber));
      expect(numberToF16(-v)).toBe(nearest(v, codes, f16ToNumber) | 0x8000);
    }
    expect(numberToF16(65519)).toBe(0x7bff);
    expect(numberToF16(65520)).toBe(0x7c00);
    expect(numberToF16(1e30)).toBe(0x7c00);
  });
});

describe('bfloat16', () => {
  const decode = (code: number) => new Float32Array(Uint32Array.of(code << 16).buffer)[0]!;
  it('encodes back every code and rounds ties to even', () => {
    for (let code = 0; code < 65536; code++) {
      const value = decode(code);
      if (Number.isNaN(value)) expect(decode(numberToBf16(value))).toBeNaN();
      else expect(numberToBf16(value)).toBe(code);
    }
    expect(numberToBf16(1 + 2 ** -8)).toBe(0x3f80);
    expect(numberToBf16(1 + 3 * 2 ** -8)).toBe(0x3f82);
    expect(numberToBf16(Math.fround(3.4e38))).toBe(0x7f80);
  });
});

describe('decodeFloats and encodeFloats', () => {
  const values = Float32Array.of(0, -0, 1.5, -2.25, 65504, 2 ** -24, Infinity);
  it.each(['f32', 'f16', 'bf16'] as const)('carry %s there and back, aligned or not', (dtype) => {
    const size = dtype === 'f32' ? 4 : 2;
    for (const shift of [0, 1]) {
      const bytes = new Uint8Array(values.length * size + shift).subarray(shift);
      encodeFloats(values, dtype, bytes);
      const back = new Float32Array(values.length);
      decodeFloats(bytes, dtype, back);
      if (dtype === 'bf16') expect([...back]).toEqual([0, -0, 1.5, -2.25, 65536, 2 ** -24, Infinity]);
      else expect([...back]).toEqual([...values]);
    }
  });
});
