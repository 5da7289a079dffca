import { expect, it } from 'vitest';
import { PairTable } from './pair-table.js';
import { WordCache } from './word-cache.js';

it('PairTable holds what a map holds, beyond its expected size too', () => {
  const table = new PairTable(10);
  const map = new Map<string, number>();
  for (let i = 0; i < 5000; i++) {
    const [a, b] = [Math.imul(i, 7919) % 97, i % 211];
    const [left, right] = [Math.abs(a), b];
    table.set(left, right, i);
    map.set(`${left} ${right}`, i);
  }
  for (let a = 0; a < 97; a++) {
    for (let b = 0; b < 211; b++) expect(table.get(a, b)).toBe(map.get(`${a} ${b}`) ?? -1);
  }
});

it('WordCache keeps what was asked for lately, and forgets the rest', () => {
  const cache = new WordCache();
  cache.put('kept', [1]);
  cache.put('lost', [2]);
  for (let i = 0; i < 30_000; i++) {
    cache.put(`word ${i}`, []);
    if (i % 100 === 0) expect(cache.get('kept')).toEqual([1]);
  }
  expect(cache.get('lost')).toBeUndefined();
  cache.put('x'.repeat(1000), [3]);
  expect(cache.get('x'.repeat(1000))).toBeUndefined();
});
