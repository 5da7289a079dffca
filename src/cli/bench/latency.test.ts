import { describe, expect, it } from 'vitest';
import { abortRates, besideRates, stretchRate } from './latency.js';

/** Times of so many tokens that come every `gap` milliseconds. */
const every = (gap: number, count: number, from = 0): number[] =>
  Array.from({ length: count }, (_, i) => from + gap * i);

describe('stretchRate', () => {
  it('is tokens a second between the first that counts and the last', () => {
    expect(stretchRate(every(5, 100), 0, 64)).toBeCloseTo(200, 9);
    expect(stretchRate(every(5, 100), 32, 64)).toBeCloseTo(200, 9);
    // Whatever happens before the stretch, or in its first eighth, does not count.
    const late = [...every(1, 40), ...every(10, 100, 500)];
    expect(stretchRate(late, 32, 64)).toBeCloseTo(100, 9);
    expect(stretchRate(late, 31, 64)).toBeGreaterThan(0);
  });

  it('takes what there is of a stream that ended early, and is no number where there is nothing', () => {
    expect(stretchRate(every(4, 40), 0, 64)).toBeCloseTo(250, 9);
    expect(stretchRate(every(4, 8), 0, 64)).toBeNaN();
    expect(stretchRate([], 0, 64)).toBeNaN();
  });
});

it('abortRates compare the same tokens of both streams', () => {
  // 8 tokens of 10 ms, then 8 of 20 beside another, then 8 of 10 again; alone it slows down from 10 to 11 at the end.
  const alone = [...every(10, 16), ...every(11, 8, 161)];
  const stays = [...every(10, 8), ...every(20, 8, 90), ...every(12.5, 8, 250)];
  const { solo, of2, after, back } = abortRates(alone, stays, 8);
  expect([solo, of2, after]).toEqual([1000 / 11, 50, 80]);
  expect(back).toBeCloseTo(0.88, 9);
});

it('besideRates compare the same tokens of rows, alone and beside a prompt', () => {
  // Tokens of 5 ms, then of 10 while the prompt is computed, one of them of 30; alone 5 throughout.
  const beside = [...every(5, 21), ...every(10, 5, 110), ...every(10, 5, 180), 1000];
  const { rowsAlone, rowsBeside, rateKept, longestGapMs, longestGapAtMs } = besideRates(
    [beside, beside],
    [every(5, 40), every(5, 40)],
    101,
    225,
  );
  expect(rowsAlone).toBeCloseTo(400, 9);
  expect(rowsBeside).toBeCloseTo((2 * 9000) / 110, 9);
  expect(rateKept).toBeCloseTo(rowsBeside / 400, 9);
  expect([longestGapMs, longestGapAtMs]).toEqual([30, 49]);
});
