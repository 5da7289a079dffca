/**
 * WGSL that turns the words of a stored vector into pairs of numbers, for the decode kernels: as few operations as there
 * can be, for an attention kernel on a GPU has about four for each stored element.
 *
 * A pair is an `H`: two halves where the device has f16, else two f32; `halves_` makes one of a word that holds two f16.
 * Codes become halves without a conversion: 0x6400 is 1024 as f16, and the ten bits below count from there. So codes
 * are masked into both halves of a word, 0x6400 is put on top, and 1024 is taken off again together with the middle of
 * the range: centred numbers are smaller, and so are their sums' errors.
 *
 * Affine keys need not become floats at all: `unpackBytes` spreads them over bytes, for products of four at once.
 *
 * TurboQuant's pairs are looked up in workgroup memory, two codes at once, with copies of the table so that few lanes
 * want one bank.
 */

import type { AffineKv, KvFormat } from '../../kv.js';
import { turboCodebook } from '../../turboquant/codebooks.js';
import { signedCodes } from './kv-layout.js';

export interface Pair {
  /** Expression of an `H`, or of two f32. */
  readonly value: string;
  /** The dims it holds. */
  readonly dims: readonly [number, number];
}

/** What is added to a code, times the scale, to undo its being centred. */
export function centreOf(format: KvFormat): number {
  return format.kind === 'affine' ? 2 ** (format.bits - 1) : 0;
}

/** As much for codes as bytes, which are signed. */
export function byteCentre(format: KvFormat): number {
  return format.kind === 'affine' && format.bits === 8 ? 128 : 0;
}

export interface Bytes {
  /** Expression of a u32 of four bytes, signed. */
  readonly value: string;
  readonly dims: readonly [number, number, number, number];
}

/** The codes of `dims` consecutive elements, four to a word: of 8 bits less 128, of fewer as they are. */
export function unpackBytes(format: AffineKv, dims: number, word: (i: number) => string): Bytes[] {
  const count = (length: number): number[] => Array.from({ length }, (_, i) => i);
  const { bits } = format;
  if (bits === 8)
    return count(dims / 4).map((w) => ({
      value: `(${word(w)} ^ 0x80808080u)`,
      dims: [4 * w, 4 * w + 1, 4 * w + 2, 4 * w + 3],
    }));
  if (bits === 4 || bits === 2) {
    const fields = 8 / bits;
    const mask = `0x${((2 ** bits - 1) * 0x01010101).toString(16)}u`;
    return count(dims / 4).map((b) => {
      const first = Math.floor(b / fields) * fields * 4 + (b % fields);
      return {
        value: `((${word(Math.floor(b / fields))} >> ${(b % fields) * bits}u) & ${mask})`,
        dims: [first, first + fields, first + 2 * fields, first + 3 * fields],
      };
    });
  }
  return count(dims / 4).map((b) => ({
    value: `(${count(4)
      .map((i) => `(${codeField(bits, 4 * b + i, word)} << ${8 * i}u)`)
      .join(' | ')})`,
    dims: [4 * b, 4 * b + 1, 4 * b + 2, 4 * b + 3],
  }));
}

/** One code of 3, 5 or 6 bits, from wherever it is. */
function codeField(bits: number, d: number, word: (i: number) => string): string {
  if (bits === 3) {
    const p = (d >> 1) % 16;
    const first = Math.floor(d / 32) * 3;
    const bit = (d & 1) * 3;
    if (p < 15) return `((${word(first + Math.floor(p / 5))} >> ${(p % 5) * 6 + bit}u) & 7u)`;
    const tops = [0, 1, 2].map((j) => `((${word(first + j)} >> 30u) << ${2 * j}u)`).join(' | ');
    return `(((${tops}) >> ${bit}u) & 7u)`;
  }
  const at = d * bits;
  const shift = at % 32;
  const low = `(${word(at >> 5)} >> ${shift}u)`;
  const whole = shift + bits <= 32 ? low : `(${low} | (${word((at >> 5) + 1)} << ${32 - shift}u))`;
  return `(${whole} & ${2 ** bits - 1}u)`;
}

const scales = new Map<string, number>();

/**
 * What centroids are multiplied with in a table of halves: the factor between 1 and 2 with which their rounding errors
 * are least. 1 for formats without a table of halves.
 */
export function bookScale(format: KvFormat, headDim: number): number {
  if (format.kind !== 'turboquant' || format.bits === 8) return 1;
  const name = `${headDim} ${format.bits}`;
  let best = scales.get(name);
  if (best === undefined) {
    const { centroids } = turboCodebook(headDim, format.bits);
    let least = Number.POSITIVE_INFINITY;
    best = 1;
    for (let i = 0; i < 1024; i++) {
      const scale = 1 + i / 1024;
      let error = 0;
      for (const c of centroids) error += (roundHalf(c * scale) / scale - c) ** 2;
      if (error < least) {
        least = error;
        best = scale;
      }
    }
    scales.set(name, best);
  }
  return best;
}

/** To eleven bits, as an f16 that is not tiny. */
function roundHalf(x: number): number {
  if (x === 0) return 0;
  const step = 2 ** (Math.floor(Math.log2(Math.abs(x))) - 10);
  return Math.round(x / step) * step;
}

/** Entries of the table of pairs, or of single f32 at 8 bits; 0 without. */
export function bookEntries(format: KvFormat): number {
  if (format.kind !== 'turboquant') return 0;
  if (format.bits === 8) return 256;
  return format.bits === 2 ? 16 : 64;
}

/** Copies of a table: one for each lane, or as many as there is room for. */
export function bookCopies(format: KvFormat, lanes: number): number {
  return Math.min(lanes, format.kind === 'turboquant' && format.bits === 8 ? 8 : 16);
}

/** Statements that fill `NAME_pairs`, entry e of lane l at `e · copies + l`. `centroid(i)` is an f32 expression. */
export function fillBook(
  name: string,
  format: KvFormat,
  copies: number,
  threads: number,
  centroid: (i: string) => string,
): string {
  if (format.kind !== 'turboquant') return '';
  const entries = bookEntries(format);
  const codes = format.bits === 8 ? '' : signedCodes(format) ? '8u + ' : '';
  const width = Math.min(3, format.bits);
  const mask = (1 << width) - 1;
  const value =
    format.bits === 8
      ? `bitcast<u32>(${centroid('e')})`
      : `pack2x16float(vec2<f32>(${centroid(`${codes}(e & ${mask}u)`)}, ${centroid(`${codes}(e >> ${width}u)`)}))`;
  // A thread makes an entry once and writes several copies of it.
  const runs = Math.max(1, Math.min(copies, Math.floor(threads / entries)));
  const each = copies / runs;
  return `  for (var i = lid; i < ${entries * runs}u; i += ${threads}u) {
    let e = i / ${runs}u;
    let pair = ${value};
    let at = e * ${copies}u + i % ${runs}u * ${each}u;
    for (var c = 0u; c < ${each}u; c++) { ${name}_pairs[at + c] = pair; }
  }`;
}
/** The pairs of `dims` consecutive elements that lie in words `word(0)`, `word(1)`, … */
export function unpackPairs(
  name: string,
  format: KvFormat,
  dims: number,
  copies: number,
  word: (i: number) => string,
): Pair[] {
  const out: Pair[] = [];
  const count = (length: number): number[] => Array.from({ length }, (_, i) => i);
  if (format.kind === 'float') {
    for (const p of count(dims / 2)) {
      const value =
        format.dtype === 'f16'
          ? `unpack2x16float(${word(p)})`
          : `bitcast<vec2<f32>>(vec2<u32>(${word(2 * p)}, ${word(2 * p + 1)}))`;
      out.push({ value, dims: [2 * p, 2 * p + 1] });
    }
    return out;
  }
  /** A field of `width` bits at `bit`, moved to `to`, unmasked. */
  const moved = (w: string, bit: number, to: number): string =>
    bit === to ? w : bit > to ? `(${w} >> ${bit - to}u)` : `(${w} << ${to - bit}u)`;
  const lookup = (w: string, bit: number, width: number): string => {
    const log = Math.log2(copies);
    return `${name}_pairs[(${moved(w, bit, log)} & ${((1 << width) - 1) << log}u) | copy]`;
  };
  if (format.kind === 'turboquant') {
    switch (format.bits) {
      case 2:
        for (const p of count(dims / 2)) {
          out.push({ value: `halves_(${lookup(word(p >> 3), (p & 7) * 4, 4)})`, dims: [2 * p, 2 * p + 1] });
        }
        return out;
      case 3:
        for (const p of count(dims / 2)) {
          const first = Math.floor(p / 16) * 3;
          const i = p % 16;
          const top = (j: number): string => `(${word(first + j)} >> 30u)`;
          const value =
            i < 15
              ? lookup(word(first + Math.floor(i / 5)), (i % 5) * 6, 6)
              : `${name}_pairs[((${top(0)} | (${top(1)} << 2u) | (${top(2)} << 4u)) << ${Math.log2(copies)}u) | copy]`;
          out.push({ value: `halves_(${value})`, dims: [2 * p, 2 * p + 1] });
        }
        return out;
      case 4:
        for (const p of count(dims / 2)) {
          const w = word(p >> 2);
          const i = p & 3;
          const six = lookup(w, (i >> 1) * 16 + (i & 1) * 6, 6);
          const sign = i === 0 ? w : `(${w} << ${i}u)`;
          out.push({ value: `halves_(${six} ^ (${sign} & 0x80008000u))`, dims: [2 * p, 2 * p + 1] });
        }
        return out;
      case 8:
        for (const p of count(dims / 2)) {
          const w = word(p >> 1);
          const low = lookup(w, (p & 1) * 16, 8);
          const high = lookup(w, (p & 1) * 16 + 8, 8);
          out.push({
            value: `vec2<f32>(bitcast<f32>(${low}), bitcast<f32>(${high}))`,
            dims: [2 * p, 2 * p + 1],
          });
        }
        return out;
    }
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
      return out;
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
      return out;
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
      return out;
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
      return out;
    }
  }
}
