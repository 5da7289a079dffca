/**
 * Weights as numbers that matrices are made of. Codes of 4 and 8 bits become pairs of halves without a conversion: a
 * code under the exponent of 1024 is the half `1024 + code` (or `1024 + 16 · code`, taken down again by a
 * multiplication), exact. Scale and bias round once, to a half.
 */

import type { ShardLayout } from '../weights-layout.js';
import { unpackCodes } from './linear-unpack.js';

export interface HalfPairs {
  /** `let` lines; they refer to `s` and `b`, scale and bias in both halves. */
  readonly prepare: readonly string[];
  /** Expressions of vec2<f16>, four for every eight columns; stagedOrder says which columns. */
  readonly pairs: readonly string[];
}

/** The columns of the four pairs of every eight. */
export function stagedOrder(bits: 4 | 8): readonly (readonly [number, number])[] {
  return bits === 4
    ? [
        [0, 4],
        [1, 5],
        [2, 6],
        [3, 7],
      ]
    : [
        [0, 2],
        [1, 3],
        [4, 6],
        [5, 7],
      ];
}

/** The codes of consecutive u32 words of a group. */
export function dequantiseWords(bits: 4 | 8, words: readonly string[]): HalfPairs {
  const prepare: string[] = [];
  const pairs: string[] = [];
  const low = (text: string, mask: string): string =>
    `fma(bitcast<vec2<f16>>((${text} & ${mask}) | 0x64006400u) - vec2<f16>(1024.0h), s, b)`;
  const high = (text: string): string =>
    `fma(fma(bitcast<vec2<f16>>((${text} & 0x00f000f0u) | 0x64006400u), vec2<f16>(0.0625h), vec2<f16>(-64.0h)), s, b)`;
  words.forEach((word, w) => {
    prepare.push(`let v${w} = ${word} >> 8u;`);
    const names =
      bits === 4
        ? [low(word, '0x000f000fu'), high(word), low(`v${w}`, '0x000f000fu'), high(`v${w}`)]
        : [low(word, '0x00ff00ffu'), low(`v${w}`, '0x00ff00ffu')];
    names.forEach((value, p) => {
      prepare.push(`let p${w}_${p} = ${value};`);
      pairs.push(`p${w}_${p}`);
    });
  });
  return { prepare, pairs };
}

/** What a thread fetches of a row at once: `cols` columns in `loads` loads of `vector` words. */
export interface WeightUnit {
  readonly cols: number;
  readonly loads: number;
  readonly vector: 1 | 2 | 4;
}

export function weightUnit(weight: ShardLayout): WeightUnit {
  if (weight.kind === 'float') return { cols: weight.dtype === 'f32' ? 4 : 8, loads: 1, vector: 4 };
  if (weight.bits === 4) return { cols: 32, loads: 1, vector: 4 };
  if (weight.bits === 8) return { cols: 16, loads: 1, vector: 4 };
  if (weight.bits === 2) return { cols: 32, loads: 1, vector: 2 };
  return { cols: 32, loads: weight.bits, vector: 1 };
}

/** The values of a unit of a row, in quads of the component type; `meta` names its scale and bias. */
export function dequantiseQuads(
  weight: ShardLayout,
  component: 'f16' | 'f32',
  words: readonly string[],
  meta: string,
): { prepare: string[]; quads: string[] } {
  const prepare: string[] = [];
  const quads: string[] = [];
  if (weight.kind === 'float') {
    if (weight.dtype === 'f16') {
      for (let w = 0; w < words.length; w += 2) {
        const half = `bitcast<vec4<f16>>(vec2<u32>(${words[w]}, ${words[w + 1]}))`;
        quads.push(component === 'f16' ? half : `vec4<f32>(${half})`);
      }
      return { prepare, quads };
    }
    const values = words.flatMap((word) =>
      weight.dtype === 'f32'
        ? [`bitcast<f32>(${word})`]
        : [`bitcast<f32>(${word} << 16u)`, `bitcast<f32>(${word} & 0xffff0000u)`],
    );
    for (let v = 0; v < values.length; v += 4) quads.push(convert(values.slice(v, v + 4), component));
    return { prepare, quads };
  }
  if (component === 'f16' && (weight.bits === 4 || weight.bits === 8)) {
    prepare.push(`let sb = bitcast<vec2<f16>>(${meta});`);
    prepare.push('let s = vec2<f16>(sb.x);', 'let b = vec2<f16>(sb.y);');
    const halves = dequantiseWords(weight.bits, words);
    const order = stagedOrder(weight.bits);
    prepare.push(...halves.prepare);
    for (let first = 0; first < halves.pairs.length; first += 4) {
      const values: string[] = [];
      order.forEach(([a, b], p) => {
        values[a] = `${halves.pairs[first + p]}.x`;
        values[b] = `${halves.pairs[first + p]}.y`;
      });
      for (const q of [0, 4]) quads.push(`vec4<f16>(${values.slice(q, q + 4).join(', ')})`);
    }
    return { prepare, quads };
  }
  prepare.push(`let sb = unpack2x16float(${meta});`);
  const { lines, codes } = unpackCodes(weight.bits, words, 't');
  prepare.push(...lines);
  const values = codes.map(({ text, offset }) => `fma(${text} - ${offset}.0, sb.x, sb.y)`);
  for (let v = 0; v < values.length; v += 4) quads.push(convert(values.slice(v, v + 4), component));
  return { prepare, quads };
}

function convert(values: readonly string[], component: 'f16' | 'f32'): string {
  const quad = `vec4<f32>(${values.join(', ')})`;
  return component === 'f32' ? quad : `vec4<f16>(clamp(${quad}, vec4<f32>(-65504.0), vec4<f32>(65504.0)))`;
}
