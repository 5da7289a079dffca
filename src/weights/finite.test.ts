import { describe, expect, it } from 'vitest';
import { firstNotFinite } from './finite.js';

const f32 = (...values: number[]): Uint8Array => new Uint8Array(Float32Array.from(values).buffer);
const words = (...values: number[]): Uint8Array => new Uint8Array(Uint16Array.from(values).buffer);

describe('firstNotFinite', () => {
  const f16 = {
    largest: 0x7bff,
    negative: 0xfbff,
    infinity: 0x7c00,
    minus: 0xfc00,
    nan: 0x7e01,
    quiet: 0xffff,
  };
  const bf16 = {
    largest: 0x7f7f,
    negative: 0xff7f,
    infinity: 0x7f80,
    minus: 0xff80,
    nan: 0x7fc0,
    quiet: 0xffff,
  };

  it.each([
    ['f16', f16],
    ['bf16', bf16],
  ] as const)('finds every kind in %s, at every place and alignment, and nothing else', (dtype, kinds) => {
    const { largest, negative, ...bad } = kinds;
    const fine = [0, 0x8000, 1, 0x8001, largest, negative, 0x3c00, 0x0080, largest, negative, 0x8000];
    for (let length = 0; length <= fine.length; length++) {
      expect(firstNotFinite(words(...fine.slice(0, length)), dtype)).toBe(-1);
      for (const value of Object.values(bad)) {
        for (let at = 0; at < length; at++) {
          const list = fine.slice(0, length).with(at, value);
          expect(firstNotFinite(words(...list), dtype)).toBe(at);
          // A view that begins in the middle of a word.
          expect(firstNotFinite(words(0, ...list).subarray(2), dtype)).toBe(at);
        }
      }
    }
  });

  it('tells every pattern of 16 bits as arithmetic does', () => {
    for (const [dtype, exponent] of [
      ['f16', 0x7c00],
      ['bf16', 0x7f80],
    ] as const) {
      for (let bits = 0; bits < 0x10000; bits++) {
        const expected = (bits & exponent) === exponent ? 1 : -1;
        if (firstNotFinite(words(0, bits, 0), dtype) !== expected)
          expect.fail(`${dtype} ${bits.toString(16)}`);
      }
    }
  });

  it('finds them in f32', () => {
    const fine = [0, -0, 3.4028234663852886e38, -3.4028234663852886e38, 1e-45, -1e-45, 1];
    expect(firstNotFinite(f32(...fine), 'f32')).toBe(-1);
    for (const bad of [Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY])
      for (let at = 0; at < fine.length; at++)
        expect(firstNotFinite(f32(...fine.with(at, bad)), 'f32')).toBe(at);
  });

  it('names the first of several', () => {
    expect(firstNotFinite(f32(1, Number.NaN, 2, Number.NaN), 'f32')).toBe(1);
  });
});
