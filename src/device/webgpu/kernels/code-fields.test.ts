import { describe, expect, it } from 'vitest';
import { runBitStatements } from '../../../../test/setup/bit-statements.js';
import { turboCodebook } from '../../turboquant/codebooks.js';
import { count } from './attend-words.js';
import { CHOICE_MASK, FIELD_NUMBERS, fieldCentroid, fieldWords } from './code-fields.js';
import { centroidUnit, codeNumbers } from './plane-codes.js';

const masks = new Map([
  [1, '0x55555555u'],
  [2, '0x33333333u'],
]);
const mixed = (a: string, b: string, mask: string): string => `((${a} & ${mask}) | (${b} & ~${mask}))`;

describe('codes in fields of four bits', () => {
  it('have numbers, each of one code, of ascending centroids', () => {
    expect([...FIELD_NUMBERS].sort((a, b) => a - b)).toEqual(count(8));
    expect(FIELD_NUMBERS.map(fieldCentroid)).toEqual([-111, -69, -39, -13, 13, 39, 69, 111]);
  });

  it.each([16, 64, 80, 128, 256])('are those of the codebook: head_dim %i', (headDim) => {
    const { centroids } = turboCodebook(headDim, 3);
    const unit = centroidUnit(headDim, 3);
    codeNumbers(headDim, 3).forEach((number, code) => {
      expect(Math.abs(fieldCentroid(number) * unit - centroids[code]!)).toBeLessThan(1e-7);
    });
  });

  it('make the centroids of a run of 32', () => {
    for (let round = 0; round < 20; round++) {
      const numbers = count(32).map((d) => (d * 5 + round * 7 + (d >> 2) * round) % 8);
      const words = [0, 1, 2].map((w) => {
        let word = 0;
        numbers.forEach((number, d) => {
          const field = (d & 3) * 8 + ((d >> 2) & 1) * 4;
          if (d >> 3 === w) word |= number << field;
          if (d >= 24) word |= ((number >> w) & 1) << (field + 3);
        });
        return word >>> 0;
      });
      const made = fieldWords(
        'x',
        (i) => `w${i}`,
        (a, b, field) => mixed(a, b, masks.get(field)!),
        (a, b) => mixed(a, b, CHOICE_MASK),
      );
      const values = runBitStatements(made.text, Object.fromEntries(words.map((w, i) => [`w${i}`, w])));
      made.words.forEach((name, k) => {
        const word = values.get(name)!;
        expect(count(4).map((e) => ((word >>> (8 * e)) << 24) >> 24)).toEqual(
          count(4).map((e) => fieldCentroid(numbers[4 * k + e]!)),
        );
      });
      for (const half of [0, 1]) {
        const own = fieldWords(
          'y',
          (i) => `w${i}`,
          (a, b, field) => mixed(a, b, masks.get(field)!),
          (a, b) => mixed(a, b, CHOICE_MASK),
          'half',
        );
        const text = own.text.replaceAll(/select\((\w+), (\w+), half != 0u\)/g, half === 0 ? '$1' : '$2');
        const halves = runBitStatements(text, Object.fromEntries(words.map((w, i) => [`w${i}`, w])));
        expect(own.words.map((name) => halves.get(name))).toEqual(
          made.words.slice(4 * half, 4 * half + 4).map((name) => values.get(name)),
        );
      }
    }
  });
});
