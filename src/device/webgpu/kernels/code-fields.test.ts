import { describe, expect, it } from 'vitest';
import { runBitStatements } from '../../../../test/setup/bit-statements.js';
import { turboCodebook } from '../../turboquant/codebooks.js';
import { count } from './attend-words.js';
import {
  CHOICE_MASK,
  fieldCentroid,
  fieldNumbers,
  fieldWords,
  SIXTEEN_MASK,
  sixteenWords,
} from './code-fields.js';
import { centroidUnit, codeNumbers } from './plane-codes.js';

const masks = new Map([
  [1, '0x55555555u'],
  [2, '0x33333333u'],
]);
const mixed = (a: string, b: string, mask: string): string => `((${a} & ${mask}) | (${b} & ~${mask}))`;

describe('codes in fields of four bits', () => {
  it('have numbers, each of one code, of ascending centroids', () => {
    for (const [bits, wanted] of [
      [3, [-111, -69, -39, -13, 13, 39, 69, 111]],
      [4, [-87, -66, -50, -39, -29, -21, -12, -4, 3, 11, 20, 28, 38, 49, 65, 86]],
    ] as const) {
      expect([...fieldNumbers(bits)].sort((a, b) => a - b)).toEqual(count(2 ** bits));
      expect(fieldNumbers(bits).map((n) => fieldCentroid(bits, n))).toEqual(wanted);
    }
  });

  it.each([
    [3, 16],
    [3, 64],
    [3, 80],
    [3, 128],
    [3, 256],
    [4, 128],
  ])('are those of the codebook: %i bits × %i', (bits, headDim) => {
    const { centroids } = turboCodebook(headDim, bits, 'value');
    const unit = centroidUnit(headDim, bits, 'value');
    codeNumbers(headDim, bits, 'value').forEach((number, code) => {
      expect(Math.abs(fieldCentroid(bits, number) * unit - centroids[code]!)).toBeLessThan(1e-7);
    });
  });

  it('make the centroids of a word of sixteen, of whatever lies beside them', () => {
    const text = sixteenWords('x', 'w', (a) => `(${a} & ${SIXTEEN_MASK})`);
    for (const other of count(16))
      for (const step of [1, 3, 5, 7]) {
        const numbers = count(8).map((i) => (other + i * step) % 16);
        const word = numbers.reduce((sum, number, i) => sum + number * 2 ** ((i & 3) * 8 + (i >> 2) * 4), 0);
        const values = runBitStatements(text, { w: word });
        expect(count(8).map((i) => ((values.get(`x${i >> 2}`)! >>> (8 * (i & 3))) << 24) >> 24)).toEqual(
          numbers.map((n) => fieldCentroid(4, n)),
        );
      }
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
          count(4).map((e) => fieldCentroid(3, numbers[4 * k + e]!)),
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
