/**
 * Unpacking codes without an int → float conversion.
 *
 * GPUs convert integers at a quarter of their FMA rate or less, which alone would cap an int4 GEMV below the
 * memory bandwidth. Instead a code is moved into the upper mantissa bits of a float whose exponent makes one code
 * step weigh 1: `bits | exponent` reads as `offset + code`, with offset a small power of two. The offset is taken
 * out once for a whole group: `Σ (offset + code) · x − offset · Σ x`. It is at most 256, so f32 sums keep 16 bits
 * for the codes; codes that share a shift (two of 4 bits, four of 2) sit at different heights and have different
 * offsets.
 */

import type { AffineBits } from '../../weights.js';
import type { ShardLayout } from '../weights-layout.js';
import { lookUpCodes } from './table-numbers.js';

export interface UnpackedCode {
  /** WGSL f32 expression, `offset + code`. */
  readonly text: string;
  readonly offset: number;
}

export interface Unpacked {
  /** `let` lines the expressions refer to. */
  readonly lines: readonly string[];
  readonly codes: readonly UnpackedCode[];
}

/** The codes in consecutive u32 words of a row: `words.length · 32 / bits` of them. Names start with `prefix`. */
export function unpackCodes(bits: AffineBits, words: readonly string[], prefix: string): Unpacked {
  const lines: string[] = [];
  const codes: UnpackedCode[] = [];
  if (bits === 2 || bits === 4 || bits === 8) {
    const perByte = 8 / bits;
    words.forEach((word, w) => {
      for (let byte = 0; byte < 4; byte++) {
        const name = `${prefix}_${w}_${byte}`;
        lines.push(`let ${name} = ${shifted(word, byte * 8 - 15)};`);
        for (let i = 0; i < perByte; i++) {
          // The byte stands in bits 15 to 22: all the mantissa above 2^15.
          const low = 15 + i * bits;
          codes.push(placed(name, bits, low));
        }
      }
    });
    return { lines, codes };
  }
  const low = 23 - bits;
  const count = (words.length * 32) / bits;
  for (let c = 0; c < count; c++) {
    const at = c * bits;
    const word = at >> 5;
    const first = at & 31;
    const down = first - low;
    let text = shifted(words[word]!, down);
    if (first + bits > 32) text = `(${text} | ${shifted(words[word + 1]!, down - 32)})`;
    codes.push(placed(text, bits, low));
  }
  return { lines, codes };
}

/** What consecutive words of a row are made of: codes with their offsets, numbers of a table (which has to be there), or floats. */
export function codesOf(weight: ShardLayout, words: readonly string[], prefix: string): Unpacked {
  if (weight.kind === 'float') return floatCodes(weight, words);
  if (weight.kind === 'lut4') return { lines: [], codes: lookUpCodes(words) };
  return unpackCodes(weight.bits, words, prefix);
}

/** The numbers in consecutive words of a row that is not quantised. */
function floatCodes(weight: ShardLayout, words: readonly string[]): Unpacked {
  const codes: UnpackedCode[] = [];
  for (const word of words) {
    if (weight.kind === 'float' && weight.dtype === 'f32') {
      codes.push({ text: `bitcast<f32>(${word})`, offset: 0 });
    } else if (weight.kind === 'float' && weight.dtype === 'bf16') {
      codes.push({ text: `bitcast<f32>(${word} << 16u)`, offset: 0 });
      codes.push({ text: `bitcast<f32>(${word} & 0xffff0000u)`, offset: 0 });
    } else {
      codes.push({ text: `unpack2x16float(${word}).x`, offset: 0 });
      codes.push({ text: `unpack2x16float(${word}).y`, offset: 0 });
    }
  }
  return { lines: [], codes };
}

/** A code whose lowest bit is mantissa bit `low`, read as a float. */
function placed(word: string, bits: number, low: number): UnpackedCode {
  const exponent = 23 - low;
  const mask = (2 ** bits - 1) * 2 ** low;
  const magic = (127 + exponent) * 2 ** 23;
  return { text: `bitcast<f32>((${word} & ${hex(mask)}) | ${hex(magic)})`, offset: 2 ** exponent };
}

function shifted(word: string, right: number): string {
  if (right === 0) return word;
  return right > 0 ? `(${word} >> ${right}u)` : `(${word} << ${-right}u)`;
}

function hex(value: number): string {
  return `0x${value.toString(16).padStart(8, '0')}u`;
}

/** Whether a `let` line is named by one of the codes `first … first + run − 1`. */
export function usedIn(
  text: string,
  codes: readonly { readonly text: string }[],
  first: number,
  run: number,
): boolean {
  const name = text.split(' ')[1]!;
  return codes.slice(first, first + run).some((code) => code.text.includes(`(${name} `));
}
