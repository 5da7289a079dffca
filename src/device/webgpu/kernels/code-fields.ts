/**
 * TurboQuant's codes of 3 bits, and of values' 4 at head_dim 128, as numbers in fields of four bits, and integer centroids computed of
 * them, four to a word. Of a run of 32 codes of 3 bits three words have eight each, and the field's fourth bit is one of the last
 * eight's.
 *
 * A centroid is bits of one multiple of its number and bits of another, of 4 bits one multiple of two of its bits exclusive or
 * some bits of one of the others: a mask or two, two multiply-adds and a function of three words for four, where planes of bits
 * (plane-codes.ts) take half as many operations again. Multiples, mask and so the centroids were found by search, for the least
 * squared error (codebooks.ts).
 */

import { count } from './attend-words.js';

export const FIELD_BITS = 3;
/** Words of a run, and codes of a word. */
const WORDS = 3;
const CODES = 8;

/** Number n of a centroid: `(33 n + 12)` where the mask has bits, else `(10 n + 173)`, modulo 256. */
const TIMES = [33, 10] as const;
const PLUS = [12, 173] as const;
const CHOICE = 0xf4;

/** Of 4 bits: `(11 (n & 9) + 78) ⊕ ((244 − 27 (n & 6)) & 242)`. */
const SIXTEEN = { own: 9, times: 11, plus: 78, others: 6, less: 27, from: 244, mask: 242 } as const;

/** The integer centroid of number n of codes of so many bits. */
export function fieldCentroid(bits: number, n: number): number {
  const { own, times, plus, others, less, from, mask } = SIXTEEN;
  const [a, b] = [0, 1].map((i) => TIMES[i]! * n + PLUS[i]!) as [number, number];
  const byte =
    bits === FIELD_BITS
      ? (a & CHOICE) | (b & ~CHOICE & 255)
      : (times * (n & own) + plus) ^ ((from - less * (n & others)) & mask);
  return byte > 127 ? byte - 256 : byte;
}

/** The numbers of codes of so many bits, ascending by their centroids. */
export function fieldNumbers(bits: number): readonly number[] {
  return count(2 ** bits).sort((a, b) => fieldCentroid(bits, a) - fieldCentroid(bits, b));
}

/** As a byte of every code of a word. */
const everywhere = (byte: number): string => `0x${byte.toString(16).padStart(2, '0').repeat(4)}u`;

/** Bits that come of the first multiple; and those of the others' multiple that count, of 4 bits. */
export const CHOICE_MASK = everywhere(CHOICE);
export const SIXTEEN_MASK = everywhere(SIXTEEN.mask);

/**
 * Statements that make words `NAME0` and `NAME1` of integer centroids of the lower and the upper fields of a word of codes of 4
 * bits. `chosen`: the bits of a that count.
 */
export function sixteenWords(name: string, word: string, chosen: (a: string) => string): string {
  const { own, times, plus, others, less, from } = SIXTEEN;
  return [word, `(${word} >> 4u)`]
    .map(
      (field, i) => `let ${name}${i}n = ${field} & ${everywhere(own)};
let ${name}${i}m = ${field} & ${everywhere(others)};
let ${name}${i} = (${name}${i}n * ${times}u + ${everywhere(plus)}) ^ ${chosen(`(${everywhere(from)} - ${name}${i}m * ${less}u)`)};`,
    )
    .join('\n');
}

/**
 * Statements that make eight words `NAME_0` … of integer centroids of the run whose words are `word(0)` to `word(2)`: word k has
 * those of codes 4 k to 4 k + 3. Where there is a `half`, 0 or 1 as text, four of them, of that half of the run. `mixed(a, b,
 * field)`: bits of a in every other field of so many bits, else of b; `chosen`: bits of a where CHOICE_MASK has them, else of b.
 */
export function fieldWords(
  name: string,
  word: (i: number) => string,
  mixed: (a: string, b: string, field: number) => string,
  chosen: (a: string, b: string) => string,
  half?: string,
): { readonly text: string; readonly words: readonly string[] } {
  const last = `${name}_last`;
  const lines = [
    `let ${last} = ${mixed(mixed(`(${word(0)} >> 3u)`, `(${word(1)} >> 2u)`, 1), `(${word(2)} >> 1u)`, 2)};`,
  ];
  const all = [...count(WORDS).map(word), last];
  const ofHalf = (i: number): string => {
    lines.push(`let ${name}_half${i} = select(${all[i]}, ${all[i + 2]}, ${half} != 0u);`);
    return `${name}_half${i}`;
  };
  const fields = half === undefined ? all : [ofHalf(0), ofHalf(1)];
  const words = fields.flatMap((field, i) =>
    [0, 1].map((high) => {
      const own = `${name}_${2 * i + high}`;
      lines.push(`let ${own}n = ${high === 0 ? field : `(${field} >> 4u)`} & ${everywhere(CODES - 1)};
let ${own} = ${chosen(`(${own}n * ${TIMES[0]}u + ${everywhere(PLUS[0])})`, `(${own}n * ${TIMES[1]}u + ${everywhere(PLUS[1])})`)};`);
      return own;
    }),
  );
  return { text: lines.join('\n'), words };
}
