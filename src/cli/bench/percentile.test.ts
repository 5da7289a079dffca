import { expect, it } from 'vitest';
import { ascending, percentile, spread, spreadText } from './percentile.js';

it('percentiles lie between values in proportion', () => {
  const values = ascending([10, 1, 5]);
  expect(values).toEqual([1, 5, 10]);
  expect([0, 0.25, 0.5, 0.9, 1].map((part) => percentile(values, part))).toEqual([1, 3, 5, 9, 10]);
  expect(percentile([7], 0.99)).toBe(7);
  expect(percentile([], 0.5)).toBeNaN();
});

it('a spread is the median and both ends', () => {
  const ratios = spread([1.1, 0.9, 1, 0.95]);
  expect(ratios).toEqual({ median: 0.975, lowest: 0.9, highest: 1.1 });
  expect(spreadText(ratios)).toBe('0.975 (0.900–1.100)');
});
