import { describe, expect, it } from 'vitest';
import { operationsIn, runBitStatements } from '../../../../test/setup/bit-statements.js';
import { turboCodebook } from '../../turboquant/codebooks.js';
import { count } from './attend-words.js';
import { operationsOf } from './bit-functions.js';
import { centroidRows, centroidUnit, codeNumbers } from './plane-codes.js';

const CASES = [64, 72, 80, 96, 112, 128, 192, 256].flatMap((headDim) =>
  ([2, 4] as const).map((bits) => ({ headDim, bits })),
);

describe('codes as planes of bits', () => {
  it.each(CASES)('have numbers, each of one code: $bits bits × $headDim', ({ headDim, bits }) => {
    const numbers = codeNumbers(headDim, bits, 'key');
    expect([...numbers].sort((a, b) => a - b)).toEqual(numbers.map((_, i) => i));
  });

  it.each(CASES)('make the centroids of all numbers at once: $bits bits × $headDim', ({ headDim, bits }) => {
    const numbers = codeNumbers(headDim, bits, 'key');
    const { centroids } = turboCodebook(headDim, bits, 'key');
    // Bit n of plane b is bit b of number n.
    const planes = Array.from({ length: bits }, (_, b) =>
      numbers.reduce((word, number) => (((number >> b) & 1) === 1 ? (word | (1 << number)) >>> 0 : word), 0),
    );
    const { text, rows } = centroidRows(headDim, bits, 'row', (b) => `plane${b}`);
    const values = runBitStatements(text, Object.fromEntries(planes.map((word, b) => [`plane${b}`, word])));
    const unit = centroidUnit(headDim, bits, 'key');
    numbers.forEach((number, code) => {
      const byte = rows.reduce((sum, row, b) => sum | (((values.get(row)! >>> number) & 1) << b), 0);
      const integer = byte > 127 ? byte - 256 : byte;
      expect(Math.abs(integer * unit - centroids[code]!)).toBeLessThan(1e-6);
    });
  });

  it.each(CASES)(
    'take no more operations than in ascending order: $bits bits × $headDim',
    ({ headDim, bits }) => {
      const unit = centroidUnit(headDim, bits, 'key');
      const bytes = Array.from(
        turboCodebook(headDim, bits, 'key').centroids,
        (c) => Math.round(c / unit) & 255,
      );
      const ascending = count(8).reduce(
        (sum, b) => sum + operationsOf(bytes.map((byte) => ((byte >> b) & 1) === 1)),
        0,
      );
      const own = operationsIn(centroidRows(headDim, bits, 'row', (b) => `plane${b}`).text);
      if (bits < 4) expect(own).toBeLessThanOrEqual(ascending);
      else expect(own).toBeLessThan(ascending);
      // The figures of docs/lab/2026-11-24-attention-over-quantised-kv.md.
      if (headDim === 128 && bits > 2) expect([own, ascending]).toEqual([9, 15]);
    },
  );
});
