import { describe, expect, it } from 'vitest';
import { bitsOf, evaluateFlushed, f32Of } from '../../../../test/setup/flush-to-zero.js';
import { scalesText } from './linear-bytes.js';

const LARGEST = f32Of(0x7f7fffff);
const MOST = { 1: 127, 2: 32512 } as const;
/** Of every exponent the least number, the largest, and some between. */
const SIZES = Array.from({ length: 254 }, (_, e) =>
  [0, 1, 0x2aaaaa, 0x400000, 0x7e0000, 0x7fffff].map((fraction) => f32Of(((e + 1) << 23) | fraction)),
).flat();

/** Of the texts before: `inverse_scale` of the largest of a piece. */
const inverseBy = (text: string, largest: number): number =>
  evaluateFlushed(`let inverse_scale = ${text};`, { largest }).get('inverse_scale')!;

describe.each([1, 2] as const)('scales of %i bytes where results that are not normal are zeros', (planes) => {
  const most = MOST[planes];
  const scalesOf = (largest: number): [scale: number, inverse: number] => {
    const names = evaluateFlushed(scalesText(planes), { largest });
    return [names.get('scale')!, names.get('inverse_scale')!];
  };

  it('are those of float64, up to the largest number', () => {
    expect(SIZES.at(-1)).toBe(LARGEST);
    for (const largest of SIZES) {
      const [scale, inverse] = scalesOf(largest);
      if (largest <= 1e-30) {
        expect([scale, inverse], `${largest}`).toEqual([0, 0]);
        continue;
      }
      expect(Math.abs((scale * most) / largest - 1), `scale of ${largest}`).toBeLessThan(2 ** -22);
      expect(Math.abs((inverse * largest) / most - 1), `inverse of ${largest}`).toBeLessThan(2 ** -22);
      expect(Math.round(Math.fround(largest * inverse))).toBe(most);
    }
  });

  it('are zeros of zeros', () => {
    expect(scalesOf(0)).toEqual([0, 0]);
  });
});

describe('what the simulation is for', () => {
  it('takes zero for the quotient of a number next to the largest, on both sides scaled or not', () => {
    for (const text of ['127.0 / largest', '7.9375 / (largest * 0.0625)']) {
      expect(inverseBy(text, 3e38)).toBe(0);
      expect(inverseBy(text, 3e37)).toBeCloseTo(127 / 3e37, 40);
      expect(inverseBy(text, 3)).toBe(Math.fround(127 * Math.fround(1 / 3)));
    }
    expect(bitsOf(f32Of(0x12345678))).toBe(0x12345678);
  });
});
