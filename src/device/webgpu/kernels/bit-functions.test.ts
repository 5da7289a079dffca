import { describe, expect, it } from 'vitest';
import { operationsIn, runBitStatements } from '../../../../test/setup/bit-statements.js';
import { count } from './attend-words.js';
import { functionText, operationsOf } from './bit-functions.js';

/** Function `index` of so many bits: its values are the bits of `index`. */
const tableOf = (bits: number, index: number): boolean[] =>
  count(2 ** bits).map((number) => ((index >> number) & 1) === 1);

describe('functions of the bits of words', () => {
  // All of two and three bits, and some of four, over all of them.
  it.each([
    [2, 1],
    [3, 1],
    [4, 37],
  ])('are what their text makes: %i bits, every %ith', (bits, step) => {
    const names = ['a', 'b', 'c', 'd'].slice(0, bits);
    // Bit n of a word is that bit of number n.
    const words = Object.fromEntries(
      names.map((name, b) => [name, count(2 ** bits).reduce((sum, n) => sum + ((n >> b) & 1) * 2 ** n, 0)]),
    );
    const used = new Set<number>();
    for (let index = 0; index < 2 ** (2 ** bits); index += step) {
      const table = tableOf(bits, index);
      const text = functionText(table, 'f', names);
      const got = runBitStatements(text, words).get('f')!;
      expect(
        count(2 ** bits).map((n) => ((got >>> n) & 1) === 1),
        text,
      ).toEqual(table);
      const operations = operationsOf(table);
      used.add(operations);
      // What takes three is one statement.
      expect(operationsIn(text), text).toBe(operations === 3 ? 1 : operations);
    }
    expect([...used].sort()).toEqual(bits === 4 ? [0, 1, 2, 3] : [0, 1]);
  });

  it('of one bit are that bit or its complement, and of none are constants', () => {
    const text = (values: readonly boolean[]): string => functionText(values, 'f', ['a', 'b', 'c']);
    const of = (value: (number: number) => boolean): string => text(count(8).map(value));
    expect(of((n) => (n & 2) !== 0)).toBe('let f = b;');
    expect(of((n) => (n & 4) === 0)).toBe('let f = ~c;');
    expect(of(() => false)).toBe('let f = 0u;');
    expect(of(() => true)).toBe('let f = 0xffffffffu;');
  });

  it('of three bits have no complement in front of what stands in another expression', () => {
    for (let index = 0; index < 256; index++)
      expect(functionText(tableOf(3, index), 'f', ['a', 'b', 'c'])).not.toContain('~(');
  });
});
