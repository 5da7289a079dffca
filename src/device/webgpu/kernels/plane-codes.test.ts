import { describe, expect, it } from 'vitest';
import { turboCodebook } from '../../turboquant/codebooks.js';
import { centroidRows, centroidUnit, codeNumbers } from './plane-codes.js';

/** What statements of `let NAME = EXPRESSION;` on words of bits leave in their variables. */
function run(text: string, planes: readonly number[]): Map<string, number> {
  const values = new Map(planes.map((word, b) => [`plane${b}`, word]));
  for (const [, name, expression] of text.matchAll(/let (\w+) = (.*);/g)) {
    const body = expression!.replace(/\b(0x[0-9a-f]+|0)u\b/g, '$1');
    const result = new Function(...values.keys(), `return (${body}) >>> 0;`)(...values.values()) as number;
    values.set(name!, result);
  }
  return values;
}

/** Operations of at most three words that text asks for at least: one for every statement of two or more words. */
const statements = (text: string): number =>
  [...text.matchAll(/let \w+ = (.*);/g)].filter(([, expression]) => /~| [&|^] /.test(expression!)).length;

const CASES = [64, 72, 80, 96, 112, 128, 192, 256].flatMap((headDim) =>
  ([2, 3, 4] as const).map((bits) => ({ headDim, bits })),
);

describe('codes as planes of bits', () => {
  it.each(CASES)('have numbers, each of one code: $bits bits × $headDim', ({ headDim, bits }) => {
    const numbers = codeNumbers(headDim, bits);
    expect([...numbers].sort((a, b) => a - b)).toEqual(numbers.map((_, i) => i));
  });

  it.each(CASES)('make the centroids of all numbers at once: $bits bits × $headDim', ({ headDim, bits }) => {
    const numbers = codeNumbers(headDim, bits);
    const { centroids } = turboCodebook(headDim, bits);
    // Bit n of plane b is bit b of number n.
    const planes = Array.from({ length: bits }, (_, b) =>
      numbers.reduce((word, number) => (((number >> b) & 1) === 1 ? (word | (1 << number)) >>> 0 : word), 0),
    );
    const { text, rows } = centroidRows(headDim, bits, 'row', (b) => `plane${b}`);
    const values = run(text, planes);
    const unit = centroidUnit(headDim, bits);
    numbers.forEach((number, code) => {
      const byte = rows.reduce((sum, row, b) => sum | (((values.get(row)! >>> number) & 1) << b), 0);
      const integer = byte > 127 ? byte - 256 : byte;
      expect(Math.abs(integer * unit - centroids[code]!)).toBeLessThan(1e-6);
    });
  });

  it('take fewer operations than codes in ascending order would', () => {
    // Counted for the functions in ascending order, at two or three of at most three bits for one of four: 6 and 15.
    expect(statements(centroidRows(128, 3, 'row', (b) => `plane${b}`).text)).toBeLessThanOrEqual(5);
    expect(statements(centroidRows(128, 4, 'row', (b) => `plane${b}`).text)).toBeLessThanOrEqual(9);
  });
});
