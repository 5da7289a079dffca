/**
 * WGSL that turns the words of a stored vector into pairs of numbers, for the decode kernels: as few operations as there
 * can be, for an attention kernel on a GPU has about four for each stored element.
 *
 * A pair is an `H`: two halves where the device has f16, else two f32; `halves_` makes one of a word that holds two f16.
 * Codes become halves without a conversion: 0x6400 is 1024 as f16, and the ten bits below count from there. So codes
 * are masked into both halves of a word, 0x6400 is put on top, and 1024 is taken off again together with the middle of
 * the range: centred numbers are smaller, and so are their sums' errors.
 *
 * TurboQuant's codes of up to 4 bits become bytes first (attend-planes.ts); of 8 bits they are looked up in workgroup
 * memory, with copies of the table so that few lanes want one bank.
 */

import type { KvFormat } from '../../kv.js';
import { isFloatKv } from '../../kv.js';
import { bytesText, codeField, hasBytes, OPAQUE_MASKS, sixteenCentroids } from './attend-planes.js';
import { count } from './attend-words.js';
import { hasNorm, hasScales } from './kv-formats/list.js';
import { TRANSPOSED_POSITIONS } from './kv-formats/turbo-layout.js';

export interface Pair {
  /** Expression of an `H`, or of two f32. */
  readonly value: string;
  /** The dims it holds. */
  readonly dims: readonly [number, number];
}

/** What is added to a code, times the scale, to undo its being centred. */
export function centreOf(format: KvFormat): number {
  return hasScales(format) ? 2 ** (format.bits - 1) : 0;
}

/** Entries of the table of TurboQuant's centroids of 8 bits, f32; 0 without. */
export function bookEntries(format: KvFormat): number {
  return hasNorm(format) && format.bits === 8 ? 256 : 0;
}

/** Copies of a table: one for every few lanes. */
export function bookCopies(lanes: number): number {
  return Math.min(lanes, 8);
}

/** Statements that fill `NAME_book`, entry e of lane l at `e · copies + l`. `centroid(i)` is an f32 expression. */
export function fillBook(
  name: string,
  format: KvFormat,
  copies: number,
  threads: number,
  centroid: (i: string) => string,
): string {
  const entries = bookEntries(format);
  if (entries === 0) return '';
  return `  for (var e = lid; e < ${entries}u; e += ${threads}u) {
    let entry = ${centroid('e')};
    for (var c = 0u; c < ${copies}u; c++) { ${name}_book[e * ${copies}u + c] = entry; }
  }`;
}

/**
 * The pairs of `dims` consecutive elements that lie in words `word(0)`, `word(1)`, …, and statements before them; `half` as
 * for `bytesText`.
 */
export function unpackPairs(
  name: string,
  format: KvFormat,
  headDim: number,
  dims: number,
  copies: number,
  word: (i: number) => string,
  half = '0u',
): { readonly text: string; readonly pairs: Pair[] } {
  const out: Pair[] = [];
  const pairs = { text: '', pairs: out };
  if (isFloatKv(format)) {
    for (const p of count(dims / 2)) {
      const value =
        format.dtype === 'f16'
          ? `unpack2x16float(${word(p)})`
          : `bitcast<vec2<f32>>(vec2<u32>(${word(2 * p)}, ${word(2 * p + 1)}))`;
      out.push({ value, dims: [2 * p, 2 * p + 1] });
    }
    return pairs;
  }
  /** A field of `width` bits at `bit`, moved to `to`, unmasked. */
  const moved = (w: string, bit: number, to: number): string =>
    bit === to ? w : bit > to ? `(${w} >> ${bit - to}u)` : `(${w} << ${to - bit}u)`;
  if (hasNorm(format)) {
    if (hasBytes(format)) {
      const { text, words } = bytesText(format, headDim, dims, name, word, half, OPAQUE_MASKS.mask);
      for (const w of words)
        for (const i of [0, 1] as const)
          out.push({ value: bytePair(w.name, i), dims: [w.dims[i]!, w.dims[i + 2]!] });
      return { text, pairs: out };
    }
    const log = Math.log2(copies);
    const lookup = (w: string, bit: number): string =>
      `${name}_book[(${moved(w, bit, log)} & ${255 << log}u) | copy]`;
    for (const p of count(dims / 2)) {
      const w = word(p >> 1);
      const at = (p & 1) * 16;
      out.push({ value: `vec2<f32>(${lookup(w, at)}, ${lookup(w, at + 8)})`, dims: [2 * p, 2 * p + 1] });
    }
    return pairs;
  }
  const { bits } = format;
  const centre = centreOf(format);
  /** `w` holds 1024 + code · step in both halves. */
  const counted = (w: string, step: number): string =>
    step === 1
      ? `(halves_(${w}) - H(${1024 + centre}.0))`
      : `fma(halves_(${w}), H(${1 / step}), H(-${1024 / step + centre}.0))`;
  switch (bits) {
    case 8:
      for (const w of count(dims / 4))
        for (const i of [0, 1])
          out.push({
            value: counted(`((${moved(word(w), 8 * i, 0)} & 0x00ff00ffu) | 0x64006400u)`, 1),
            dims: [4 * w + i, 4 * w + i + 2],
          });
      return pairs;
    case 4:
      for (const w of count(dims / 8))
        for (const i of count(4)) {
          const high = i & 1;
          const masked = `${moved(word(w), (i >> 1) * 8, 0)} & ${high ? '0x00f000f0u' : '0x000f000fu'}`;
          out.push({
            value: counted(`((${masked}) | 0x64006400u)`, high ? 16 : 1),
            dims: [8 * w + i, 8 * w + i + 4],
          });
        }
      return pairs;
    case 2:
      for (const w of count(dims / 16))
        for (const i of count(8)) {
          const shift = i < 5 ? 0 : 10;
          const step = 4 ** (i < 5 ? i : i - 5);
          const mask = `0x${(3 * step * 0x10001).toString(16)}u`;
          out.push({
            value: counted(`((${moved(word(w), shift, 0)} & ${mask}) | 0x64006400u)`, step),
            dims: [16 * w + i, 16 * w + i + 8],
          });
        }
      return pairs;
    default: {
      // Two codes at a time, from wherever they are.
      for (const p of count(dims / 2))
        out.push({
          value: counted(
            `(${codeField(bits, 2 * p, word)} | (${codeField(bits, 2 * p + 1, word)} << 16u) | 0x64006400u)`,
            1,
          ),
          dims: [2 * p, 2 * p + 1],
        });
      return pairs;
    }
  }
}

/** Bytes i and i + 2 of a word of four signed ones, as an `H`. */
function bytePair(word: string, i: 0 | 1): string {
  const centred = `(${word} ^ 0x80808080u)`;
  const low = i === 0 ? centred : `(${centred} >> 8u)`;
  return `(halves_((${low} & 0x00ff00ffu) | 0x64006400u) - H(1152.0))`;
}

/** Dims of a word of transposed values (kv-layout.ts). */
export const TRANSPOSED_DIMS = 2;

export interface TransposedPair {
  /** Expression of an `H`. */
  readonly value: string;
  readonly dim: number;
  /** The positions it holds, from the word's first on. */
  readonly positions: readonly [number, number];
}

/** As `unpackPairs`, of so many words of transposed values: a pair is two positions of one dim. */
export function transposedPairs(
  name: string,
  words: number,
  word: (i: number) => string,
): { readonly text: string; readonly pairs: TransposedPair[] } {
  const own = count(words).map((w) => `${name}s${w}_`);
  return {
    text: own.map((made, w) => sixteenCentroids(made, word(w), OPAQUE_MASKS.mask)).join('\n'),
    pairs: own.flatMap((made, w) =>
      count(TRANSPOSED_DIMS).flatMap((high) =>
        ([0, 1] as const).map((i) => ({
          value: bytePair(`${made}${high}`, i),
          dim: TRANSPOSED_DIMS * w + high,
          positions: [TRANSPOSED_POSITIONS[i], TRANSPOSED_POSITIONS[i + 2]!] as const,
        })),
      ),
    ),
  };
}
