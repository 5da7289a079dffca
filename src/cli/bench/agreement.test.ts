import { describe, expect, it } from 'vitest';
import { agreedReading, bestRate } from './agreement.js';

const readings = (...values: number[]): (() => Promise<number>) => {
  const left = [...values];
  return async () => left.shift() ?? Number.NaN;
};

describe('agreedReading', () => {
  it('takes the larger of two that agree, whatever stands beside them', async () => {
    // A GPU that had idled, and a clock that started late.
    expect(await agreedReading(readings(1957, 4527, 4530))).toBe(4530);
    expect(await agreedReading(readings(67_000, 226, 231))).toBe(231);
    expect(await agreedReading(readings(226, 37_000, 220))).toBe(226);
  });

  it('is null where none agree, and where there is nothing to read', async () => {
    expect(await agreedReading(readings(1, 2, 4, 8, 16, 32, 32))).toBeNull();
    expect(await agreedReading(readings(0, 5, 5))).toBeNull();
    expect(await agreedReading(readings(Number.NaN))).toBeNull();
    expect(await agreedReading(readings(Number.POSITIVE_INFINITY, 1, 1))).toBeNull();
  });
});

describe('bestRate', () => {
  const rates = (...values: number[]) =>
    values.map((operationsPerSecond, i) => ({ operationsPerSecond, size: 256 << i }));

  it('is the best of all sizes', () => {
    expect(bestRate(rates(10, 60, 200, 190))).toEqual({ operationsPerSecond: 200, size: 1024 });
    expect(bestRate(rates(10))).toEqual({ operationsPerSecond: 10, size: 256 });
  });

  it('leaves out two neighbours of which one cannot be', () => {
    expect(bestRate(rates(100, 180, 220, 37_000))).toEqual({ operationsPerSecond: 180, size: 512 });
    expect(bestRate(rates(1, 180))).toBeNull();
    expect(bestRate([])).toBeNull();
  });
});
