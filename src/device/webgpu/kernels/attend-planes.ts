/**
 * Stored codes as bytes, four to a word, for products of integers; no tables, and a word for every four elements.
 *
 * Affine codes lie in their words already, shifted. TurboQuant's codes of 3 bits are numbers of which centroids are computed, four
 * at once (code-fields.ts). Those of 2 and 4 bits are stored as bit planes (kv-layout.ts; values of 4 at head_dim 128 are not), for then 32 of them turn into 32 integer
 * centroids at once: every bit of a centroid is a function of the bits of its code (plane-codes.ts), so eight functions make
 * eight planes of bits, and three rounds of exchanges between words make bytes of those. Measured on an H200 against codes in words and centroids in tables: together with fetching a tile
 * ahead, prefill on TurboQuant 3.5 is 0.93 of that on f16 in place of 0.80, and single rows take what they took.
 */

import type { AffineKv, KvFormat, TurboKv } from '../../kv.js';
import type { KvSide } from '../../turboquant/rotation.js';
import { count } from './attend-words.js';
import { CHOICE_MASK, FIELD_BITS, fieldWords, SIXTEEN_MASK, sixteenWords } from './code-fields.js';
import { hasNorm, hasScales } from './kv-formats/list.js';
import { centroidRows, centroidUnit } from './plane-codes.js';

export interface ByteWord {
  /** Name of a u32 of four signed bytes. */
  readonly name: string;
  readonly dims: readonly [number, number, number, number];
}

/** Elements of a run of planes. */
export const PLANE_DIMS = 32;

/** Whether the format's elements are integers of 8 bits, up to scale and bias. */
export function hasBytes(format: KvFormat): format is AffineKv | TurboKv {
  return hasScales(format) || (hasNorm(format) && format.bits <= 4);
}

/** As much for codes as bytes, which are signed. */
export function byteCentre(format: KvFormat): number {
  return hasScales(format) && format.bits === 8 ? 128 : 0;
}

/** What a byte of 1 stands for, before scale or norm. */
export function byteUnit(format: KvFormat, headDim: number, side: KvSide): number {
  return hasNorm(format) && format.bits <= 4 ? centroidUnit(headDim, format.bits, side) : 1;
}

/**
 * Statements that make `NAME_0` … of the words of `dims` consecutive elements, and what those hold; not of values that lie transposed. Of TurboQuant's codes a
 * lane may make half of a run, 16 dims, of all its words: `half`, 0 or 1, says which.
 */
export function bytesText(
  format: AffineKv | TurboKv,
  headDim: number,
  dims: number,
  name: string,
  word: (i: number) => string,
  half = '0u',
  mask: Masks = literalMask,
): { readonly text: string; readonly words: ByteWord[] } {
  if (hasScales(format)) {
    const bytes = unpackBytes(format, dims, word);
    return {
      text: bytes.map(({ value }, i) => `let ${name}_${i} = ${value};`).join('\n'),
      words: bytes.map(({ dims: d }, i) => ({ name: `${name}_${i}`, dims: d })),
    };
  }
  const lines: string[] = [];
  const words: ByteWord[] = [];
  const halved = dims < PLANE_DIMS;
  const own = halved ? 4 : 8;
  for (let chunk = 0; chunk * PLANE_DIMS < dims; chunk++) {
    if (format.bits === FIELD_BITS) {
      const made = fieldWords(
        `${name}f${chunk}`,
        (i) => word(chunk * format.bits + i),
        (a, b, field) => mixed(a, b, mask(field)),
        (a, b) => mixed(a, b, mask('choice')),
        halved ? half : undefined,
      );
      lines.push(made.text);
      made.words.forEach((own, k) => {
        const d = chunk * PLANE_DIMS + 4 * k;
        words.push({ name: own, dims: [d, d + 1, d + 2, d + 3] });
      });
      continue;
    }
    const made = centroidRows(headDim, format.bits, `${name}p${chunk}`, (b) => word(chunk * format.bits + b));
    lines.push(made.text);
    let rows = made.rows;
    if (halved) {
      // The rounds may come in any order: the one that leaves a lane half of the rows goes first.
      lines.push(`let ${name}h${chunk} = select(0u, 4u, ${half} != 0u);`);
      const kept = count(4).map((b) => `${name}k${chunk}_${b}`);
      for (const b of count(4))
        lines.push(
          `let ${kept[b]} = ${mixed(`(${rows[b]} >> ${name}h${chunk})`, `(${rows[b + 4]} << (4u - ${name}h${chunk}))`, mask(4))};`,
        );
      rows = kept;
    }
    for (const round of [1, 2, 4] as const) {
      if (round >= own) break;
      const next = rows.map((_, b) => `${name}r${chunk}_${round}_${b}`);
      for (const b of count(own)) {
        if (b & round) continue;
        const [x, y] = [rows[b]!, rows[b + round]!];
        lines.push(`let ${next[b]} = ${mixed(x, `(${y} << ${round}u)`, mask(round))};`);
        lines.push(`let ${next[b + round]} = ${mixed(`(${x} >> ${round}u)`, y, mask(round))};`);
      }
      rows = next;
    }
    rows.forEach((row, k) => {
      const d = chunk * PLANE_DIMS + 4 * k;
      words.push({ name: row, dims: [d, d + 1, d + 2, d + 3] });
    });
  }
  return { text: lines.join('\n'), words };
}

/** Of 4 bits in fields: words `NAME0` and `NAME1` of the lower and the upper codes of a word. */
export function sixteenCentroids(name: string, word: string, mask: Masks = literalMask): string {
  return sixteenWords(name, word, (a) => `(${a} & ${mask('sixteen')})`);
}

interface Bytes {
  /** Expression of a u32 of four bytes, signed. */
  readonly value: string;
  readonly dims: readonly [number, number, number, number];
}

/** The codes of `dims` consecutive elements, four to a word: of 8 bits less 128, of fewer as they are. */
function unpackBytes(format: AffineKv, dims: number, word: (i: number) => string): Bytes[] {
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
export function codeField(bits: number, d: number, word: (i: number) => string): string {
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

/**
 * Statements that make, of the words of four tokens `a` to `d`, words of one byte of each: `NAME0` … `NAME3` for bytes
 * 0 to 3.
 */
export function turnBytes(
  name: string,
  [a, b, c, d]: readonly [string, string, string, string],
  mask: Masks = literalMask,
): string {
  return [pairBytes(`${name}t`, a, b, mask), pairBytes(`${name}u`, c, d, mask), joinBytes(name, mask)].join(
    '\n',
  );
}

/** The half of it that two tokens make: their bytes 0 and 2 in `NAME0`, 1 and 3 in `NAME1`. */
export function pairBytes(name: string, a: string, b: string, mask: Masks = literalMask): string {
  return `let ${name}0 = ${mixed(a, `(${b} << 8u)`, mask(8))};
let ${name}1 = ${mixed(`(${a} >> 8u)`, b, mask(8))};`;
}

/** And what joins the pairs `NAMEt` and `NAMEu`. */
export function joinBytes(name: string, mask: Masks = literalMask): string {
  const join = (low: string, high: string): string => mixed(low, high, mask(16));
  return `let ${name}0 = ${join(`${name}t0`, `(${name}u0 << 16u)`)};
let ${name}1 = ${join(`${name}t1`, `(${name}u1 << 16u)`)};
let ${name}2 = ${join(`(${name}t0 >> 16u)`, `${name}u0`)};
let ${name}3 = ${join(`(${name}t1 >> 16u)`, `${name}u1`)};`;
}

/**
 * Expression of the mask of every other field of so many bits, the lowest among them; or of that which chooses bits of a centroid
 * (code-fields.ts).
 */
export type Masks = (bits: number | 'choice' | 'sixteen') => string;

/** Bits of a where a mask has them, else of b. */
export const mixed = (a: string, b: string, mask: string): string => `((${a} & ${mask}) | (${b} & ~${mask}))`;

/** Written as it is. */
export const literalMask: Masks = (bits) =>
  bits === 'choice' ? CHOICE_MASK : bits === 'sixteen' ? SIXTEEN_MASK : `0x${fieldMask(bits).toString(16)}u`;

/** Every other field of so many bits of a word. */
function fieldMask(bits: number): number {
  return Math.floor(0xffffffff / (2 ** bits + 1));
}

/** Fields that bytes are exchanged by. */
const FIELDS = [1, 2, 4, 8, 16, 'choice', 'sixteen'] as const;

/**
 * Masks that no compiler knows, as variables, and the statements that declare them, for which `groups` (rolled.ts) is in scope:
 * with these two words are mixed in one operation of three words, where NVIDIA's compiler takes two if it knows the mask.
 */
export const OPAQUE_MASKS: { readonly text: string; readonly mask: Masks } = {
  text: FIELDS.map((bits) => `let fields${bits} = ${literalMask(bits)} * min(groups.z, 1u);`).join('\n'),
  mask: (bits) => `fields${bits}`,
};
