import { describe, expect, it } from 'vitest';
import { PALEY_ORDERS, paleyHadamard } from './hadamard.js';
import { type KvSide, rotate, turboRotation, unrotate } from './rotation.js';

const SIDES: readonly KvSide[] = ['key', 'value'];
const EVERY = Array.from({ length: 32 }, (_, i) => 8 * (i + 1));

describe('Hadamard matrices', () => {
  it.each(PALEY_ORDERS)('of order %i are orthogonal and of ±1', (order) => {
    const h = paleyHadamard(order);
    expect(h.every((x) => x === 1 || x === -1)).toBe(true);
    for (let i = 0; i < order; i++)
      for (let j = 0; j < order; j++) {
        let sum = 0;
        for (let k = 0; k < order; k++) sum += h[i * order + k]! * h[j * order + k]!;
        expect(sum).toBe(i === j ? order : 0);
      }
  });
});

describe('rotation', () => {
  it('is a Hadamard matrix of full width wherever one of the orders divides the width', () => {
    const shape = (dim: number) => {
      const { base, power, matrix, scale } = turboRotation(dim, 'key');
      expect(matrix.length).toBe(base * base);
      expect(scale).toBe(base === dim && matrix.some((x) => Math.abs(x) !== 1) ? 1 : 1 / Math.sqrt(dim));
      return [base, power];
    };
    expect([64, 128, 256, 8].map(shape)).toEqual([
      [1, 64],
      [1, 128],
      [1, 256],
      [1, 8],
    ]);
    expect([24, 48, 96, 192].map(shape)).toEqual([
      [12, 2],
      [12, 4],
      [12, 8],
      [12, 16],
    ]);
    expect([40, 80, 160].map(shape)).toEqual([
      [20, 2],
      [20, 4],
      [20, 8],
    ]);
    expect([56, 112, 224].map(shape)).toEqual([
      [28, 2],
      [28, 4],
      [28, 8],
    ]);
    expect([72, 88, 104, 120, 248].map(shape)).toEqual([
      [72, 1],
      [88, 1],
      [104, 1],
      [120, 1],
      [248, 1],
    ]);
  });

  it.each(EVERY)('of width %i is orthogonal: lengths stay, the inverse undoes it', (dim) => {
    for (const side of SIDES) {
      const rotation = turboRotation(dim, side);
      for (let k = 0; k < dim; k += 5) {
        const x = Float64Array.from({ length: dim }, (_, d) => (d === k ? 3 : Math.sin(d * 1.7 + k)));
        const y = rotate(rotation, x);
        const back = unrotate(rotation, y);
        const length = Math.hypot(...x);
        expect(Math.abs(Math.hypot(...y) / length - 1)).toBeLessThan(1e-6);
        for (let d = 0; d < dim; d++) expect(Math.abs(back[d]! - x[d]!)).toBeLessThan(1e-5);
      }
    }
  });

  it('is the matrix its fields say, entry by entry', () => {
    for (const dim of [16, 24, 72, 80]) {
      const rotation = turboRotation(dim, 'value');
      const { signs, base, power, matrix, scale } = rotation;
      for (let column = 0; column < dim; column++) {
        const unit = Float64Array.from({ length: dim }, (_, d) => (d === column ? 1 : 0));
        const y = rotate(rotation, unit);
        const [k, l] = [Math.floor(column / power), column % power];
        for (let row = 0; row < dim; row++) {
          const [i, j] = [Math.floor(row / power), row % power];
          const walsh = popcount(j & l) % 2 === 0 ? 1 : -1;
          expect(y[row]).toBeCloseTo(scale * matrix[i * base + k]! * walsh * signs[column]!, 12);
        }
      }
    }
  });

  it('never leaves a strong channel in a part of the vector', () => {
    for (const dim of [64, 80, 96, 112, 128, 256]) {
      const y = rotate(
        turboRotation(dim, 'key'),
        Float64Array.from({ length: dim }, (_, d) => (d === 5 ? 1 : 0)),
      );
      for (const value of y) expect(Math.abs(value)).toBeCloseTo(1 / Math.sqrt(dim), 6);
    }
  });

  it('keeps its signs: stored bytes mean the same in every version', () => {
    const word = (dim: number, side: KvSide) =>
      [...turboRotation(dim, side).signs.subarray(0, 16)].map((s) => (s < 0 ? '-' : '+')).join('');
    expect([word(64, 'key'), word(64, 'value'), word(128, 'key'), word(128, 'value')]).toEqual([
      '--+--++----+--+-',
      '++++++--+-----+-',
      '+-+-+----++--++-',
      '-+-+--+--+-+--++',
    ]);
    for (const side of SIDES) {
      const { signs } = turboRotation(128, side);
      const minus = signs.filter((s) => s === -1).length;
      expect(minus + signs.filter((s) => s === 1).length).toBe(128);
      expect(Math.abs(minus - 64)).toBeLessThan(24);
    }
  });

  it('refuses widths that make no sense', () => {
    for (const dim of [0, -8, 2.5, 4096]) expect(() => turboRotation(dim, 'key')).toThrow(/no rotation/);
  });
});

function popcount(x: number): number {
  let count = 0;
  for (let rest = x; rest !== 0; rest &= rest - 1) count++;
  return count;
}
