/**
 * How codes are packed on the CPU (assembly/kv-codes.ts), as the generator of attention's inner loops unpacks them
 * (scripts/generate-attend.mjs): text of AssemblyScript.
 */

/** Vector `i` of a unit, as text. */
export type Words = (i: number) => string;

/** Four values of a token as two vectors of 16-bit pairs; `whole` and `spare`: vectors that those name. */
export interface PackedPart {
  readonly spare?: string;
  readonly whole?: string;
  readonly pair: readonly [string, string];
}

export interface Packing {
  /** Values of a unit, and its vectors of 16 bytes for 4 tokens. */
  readonly dims: number;
  readonly vectors: number;
  /** Values `4 k …` of a unit, from its vectors. */
  readonly part: (k: number, w: Words) => PackedPart;
  /** Packing of the 16 values that end a vector of longer units. */
  readonly rest?: Packing;
  /** Tables of 16 bytes in which codes are looked up. */
  readonly lut?: 1 | 2;
}

const bytes = (n: number | string) => `i8x16.splat(${n})`;
const words = (n: number | string) => `i16x8.splat(${n})`;
const shr = (v: string, n: number): string => (n === 0 ? v : `i16x8.shr_u(${v}, ${n})`);
const and = (v: string, mask: string) => `v128.and(${v}, ${mask})`;
const or = (...v: string[]) => v.reduce((a, b) => `v128.or(${a}, ${b})`);
const swizzle = (table: string, v: string) => `swizzle(${table}, ${v})`;

const bytePair = (v: string): [string, string] => [and(v, words('0xff')), shr(v, 8)];
const nibblePair = (v: string, high: number, mask: number): [string, string] =>
  high
    ? [and(shr(v, 4), words(mask)), mask === 15 ? shr(v, 12) : and(shr(v, 12), words(mask))]
    : [and(v, words(mask)), and(shr(v, 8), words(mask))];
const threeSpare = (w: Words): string =>
  or(and(shr(w(0), 3), bytes('0x11')), and(shr(w(1), 2), bytes('0x22')), and(shr(w(2), 1), bytes('0x44')));

export const affine8: Packing = { dims: 16, vectors: 4, part: (k, w) => ({ pair: bytePair(w(k)) }) };
export const affine4: Packing = {
  dims: 16,
  vectors: 2,
  part: (k, w) => ({ pair: nibblePair(w(k >> 1), k & 1, 15) }),
};
export const affine2: Packing = {
  dims: 16,
  vectors: 1,
  part: (k, w) => ({
    pair: [and(shr(w(0), 2 * k), words(3)), k === 3 ? shr(w(0), 14) : and(shr(w(0), 8 + 2 * k), words(3))],
  }),
};
export const affine6: Packing = {
  dims: 16,
  vectors: 3,
  part: (k, w) => {
    if (k < 3) return { pair: [and(w(k), words(63)), and(shr(w(k), 8), words(63))] };
    const whole = or(and(shr(w(0), 6), bytes(3)), and(shr(w(1), 4), bytes(12)), and(shr(w(2), 2), bytes(48)));
    return { whole, pair: bytePair('whole') };
  },
};
export const affine3: Packing = {
  dims: 32,
  vectors: 3,
  rest: affine4,
  part: (k, w) =>
    k < 6
      ? { pair: nibblePair(w(k >> 1), k & 1, 7) }
      : { whole: threeSpare(w), pair: nibblePair('whole', k & 1, 7) },
};
export const affine5: Packing = {
  dims: 32,
  vectors: 5,
  rest: affine6,
  part: (k, w) => {
    if (k < 5) return { pair: [and(w(k), words(31)), and(shr(w(k), 8), words(31))] };
    const whole =
      k === 5
        ? or(and(shr(w(0), 5), bytes(7)), and(shr(w(1), 2), bytes(24)))
        : k === 6
          ? or(and(shr(w(2), 5), bytes(7)), and(shr(w(1), 4), bytes(8)), and(shr(w(3), 3), bytes(16)))
          : or(and(shr(w(4), 5), bytes(7)), and(shr(w(3), 2), bytes(24)));
    return { whole, pair: bytePair('whole') };
  },
};
const looked = (index: string, table = 'table'): PackedPart => ({
  whole: swizzle(table, index),
  pair: bytePair('whole'),
});
const nibble = (v: string, high: number): string => and(high ? shr(v, 4) : v, bytes(15));
export const turbo4: Packing = {
  dims: 16,
  vectors: 2,
  lut: 1,
  part: (k, w) => looked(nibble(w(k >> 1), k & 1)),
};
export const turbo3: Packing = {
  dims: 32,
  vectors: 3,
  lut: 1,
  rest: turbo4,
  // The table holds every centroid twice: bit 3 of an index may be anything.
  part: (k, w) =>
    k < 6 ? looked(nibble(w(k >> 1), k & 1)) : { spare: threeSpare(w), ...looked(nibble('spare', k & 1)) },
};
export const turbo2: Packing = {
  dims: 16,
  vectors: 1,
  lut: 2,
  // The second table goes by bits 2 and 3 of an index.
  part: (k, w) => looked(nibble(w(0), k >> 1), k & 1 ? 'table2' : 'table'),
};
