import { expect, it } from 'vitest';
import { weigh } from './weigh.js';

it('counts characters, keys and parts', () => {
  expect(weigh('x'.repeat(100))).toBe(116);
  expect(weigh([])).toBe(16);
  expect(weigh({ role: 'user', content: 'hi' })).toBe(3 * 16 + 4 + 4 + 7 + 2);
  expect(weigh([null, 1, true, undefined, 7n])).toBe(6 * 16);
  expect(weigh(new Uint8Array(1000))).toBe(1016);
});

it('comes to an end, however large or deep', () => {
  let deep: unknown = 'x';
  for (let i = 0; i < 200_000; i++) deep = [deep];
  expect(weigh(deep)).toBeGreaterThan(1_000_000);
  const ring: unknown[] = [];
  ring.push(ring);
  expect(weigh(ring)).toBeGreaterThan(1_000_000);
  const many = Array(1_000_000).fill('x');
  expect(weigh(many)).toBeGreaterThan(16_000_000);
  expect(weigh(many, 100)).toBeGreaterThanOrEqual(100);
});
