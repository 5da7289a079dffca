/**
 * Weights as numbers that matrices are made of. Codes of 4 and 8 bits become pairs of halves without a conversion: a
 * code under the exponent of 1024 is the half `1024 + code` (or `1024 + 16 · code`, taken down again by a
 * multiplication), exact. Scale and bias round once, to a half. Codes of e2m1 are made halves by their bits, those of the other table are
 * looked up.
 */

import type { Lut4Table } from '../../weights.js';
import type { ShardLayout } from '../weights-layout.js';
import type { GroupScales } from './group-scales.js';
import { codesOf } from './linear-unpack.js';
import { declareTable, HALF_NUMBERS, lookUp } from './table-numbers.js';

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

/** Scale and bias of a unit: the words that a thread has of them, and which unit it is. */
export interface UnitMeta {
  readonly words: readonly string[];
  readonly at: string;
  readonly scales: GroupScales;
  /** The first of the unit's words that are unpacked; 0 if omitted. */
  readonly firstWord?: number;
  /** A bool: words 2 and 3 come before words 0 and 1. */
  readonly swap?: string;
}

/** Whether codes become pairs of halves: those of 4 and of 8 bits. */
export function hasPairs(weight: ShardLayout): boolean {
  return weight.kind !== 'float' && (weight.bits === 4 || weight.bits === 8);
}

/** What a kernel declares that makes pairs of halves of a weight, or numbers of it; null where that needs no table. */
export function tableOf(weight: ShardLayout, component: 'f16' | 'f32'): string | null {
  if (weight.kind !== 'lut4' || (component === 'f16' && weight.table === 'e2m1')) return null;
  return declareTable(weight.table, component === 'f16' ? 'halves' : 'floats');
}

/** The codes of a weight that {@link hasPairs}, in consecutive words of a unit. */
export function dequantisePairs(weight: ShardLayout, words: readonly string[], meta: UnitMeta): HalfPairs {
  if (weight.kind === 'affine') {
    const { prepare, pairs } = dequantiseWords(weight.bits as 4 | 8, words);
    const sb = `let sb = bitcast<vec2<f16>>(${meta.words[0]});`;
    return { prepare: [sb, 'let s = vec2<f16>(sb.x);', 'let b = vec2<f16>(sb.y);', ...prepare], pairs };
  }
  if (weight.kind === 'symmetric') {
    const { bits } = weight;
    const made = dequantiseWords(bits as 4 | 8, words, 2 ** (bits - 1));
    return {
      prepare: [`let s = vec2<f16>(${meta.scales.half!(meta.words[0]!, meta.at)});`, ...made.prepare],
      pairs: made.pairs,
    };
  }
  const prepare = meta.scales.lines(meta.words, meta.at, 'sb');
  const half = (v: string): string => `vec2<f16>(vec2<f32>(clamp(${v}, -65504.0, 65504.0)))`;
  if (weight.kind === 'k-quant') {
    const made = dequantiseWords(4, words);
    prepare.push(`let s = ${half('sb0.x')};`, `let b = ${half('sb0.y')};`);
    return { prepare: [...prepare, ...made.prepare], pairs: made.pairs };
  }
  if (weight.kind !== 'lut4') throw new RangeError('no pairs of floats');
  const { table } = weight;
  const scale = (run: number): string => half(`sb${run}.x * ${HALF_NUMBERS[table]}.0`);
  const two = meta.scales.runs === 2;
  prepare.push(`let s0 = ${scale(0)};`);
  if (two) prepare.push(`let s1 = ${scale(1)};`);
  if (two && meta.swap !== undefined)
    prepare.push(
      `let first_s = select(s0, s1, ${meta.swap});`,
      `let second_s = select(s1, s0, ${meta.swap});`,
    );
  const [first, second] = meta.swap === undefined ? ['s0', 's1'] : ['first_s', 'second_s'];
  const pairs = words.flatMap((word, w) => {
    const s = !two ? 's0' : (meta.firstWord ?? 0) + w < 2 ? first : second;
    return tablePairs(table, word).map((pair, p) => {
      prepare.push(`let p${w}_${p} = ${pair} * ${s};`);
      return `p${w}_${p}`;
    });
  });
  return { prepare, pairs };
}

/**
 * The numbers of a word's codes over {@link HALF_NUMBERS}. Those of e2m1: exponent and mantissa of a code are the same of a half, but that
 * 0 and 1 have the leading one that subnormal numbers lack. `min(h, 2h − 1/4)` takes it from them, and nothing from the others.
 */
function tablePairs(table: Lut4Table, word: string): string[] {
  return [0, 1, 2, 3].map((p) => {
    if (table === 'iq4') return `bitcast<vec2<f16>>(${lookUp(word, p)} | (${lookUp(word, p + 4)} << 16u))`;
    const moved = (left: number): string =>
      left === 0 ? word : `(${word} ${left > 0 ? '<<' : '>>'} ${Math.abs(left)}u)`;
    const size = `bitcast<vec2<f16>>((${moved(9 - 4 * p)} & 0x0e000e00u) | 0x30003000u)`;
    const whole = `min(${size}, fma(${size}, vec2<f16>(2.0h), vec2<f16>(-0.25h)))`;
    return `bitcast<vec2<f16>>(bitcast<u32>(${whole}) | (${moved(12 - 4 * p)} & 0x80008000u))`;
  });
}

/**
 * The codes of consecutive u32 words of a group, times `s` and plus `b`. `middle`: what codes are counted from, instead of a bias; the bits are
 * those that a bias of `-middle * s` gives, for `code - middle` is exact.
 */
function dequantiseWords(bits: 4 | 8, words: readonly string[], middle: number | null = null): HalfPairs {
  const prepare: string[] = [];
  const pairs: string[] = [];
  const from = middle ?? 0;
  const scaled = (code: string): string => (middle === null ? `fma(${code}, s, b)` : `${code} * s`);
  const low = (text: string, mask: string): string =>
    scaled(`(bitcast<vec2<f16>>((${text} & ${mask}) | 0x64006400u) - vec2<f16>(${1024 + from}.0h))`);
  const high = (text: string): string =>
    scaled(
      `fma(bitcast<vec2<f16>>((${text} & 0x00f000f0u) | 0x64006400u), vec2<f16>(0.0625h), vec2<f16>(-${64 + from}.0h))`,
    );
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
  if (weight.bits === 6) return { cols: 32, loads: 3, vector: 2 };
  return { cols: 32, loads: weight.bits, vector: 1 };
}

/** The values of a unit of a row, in quads of the component type. `meta`: its scale and bias, if it is quantised. */
export function dequantiseQuads(
  weight: ShardLayout,
  component: 'f16' | 'f32',
  words: readonly string[],
  meta: UnitMeta | null,
): { prepare: string[]; quads: string[] } {
  const prepare: string[] = [];
  const quads: string[] = [];
  if (weight.kind === 'float' || meta === null) {
    if (weight.kind === 'float' && weight.dtype === 'f16') {
      for (let w = 0; w < words.length; w += 2) {
        const half = `bitcast<vec4<f16>>(vec2<u32>(${words[w]}, ${words[w + 1]}))`;
        quads.push(component === 'f16' ? half : `vec4<f32>(${half})`);
      }
      return { prepare, quads };
    }
    const values = words.flatMap((word) =>
      weight.kind === 'float' && weight.dtype === 'f32'
        ? [`bitcast<f32>(${word})`]
        : [`bitcast<f32>(${word} << 16u)`, `bitcast<f32>(${word} & 0xffff0000u)`],
    );
    for (let v = 0; v < values.length; v += 4) quads.push(convert(values.slice(v, v + 4), component));
    return { prepare, quads };
  }
  if (component === 'f16' && hasPairs(weight)) {
    const halves = dequantisePairs(weight, words, meta);
    const order = stagedOrder(weight.bits as 4 | 8);
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
  prepare.push(...meta.scales.lines(meta.words, meta.at, 'sb'));
  const { lines, codes } = codesOf(weight, words, 't');
  prepare.push(...lines);
  const from = ((meta.firstWord ?? 0) * 32) / weight.bits;
  const values = codes.map(({ text, offset }, i) => {
    const sb = `sb${meta.scales.runs === 2 && from + i >= 16 ? 1 : 0}`;
    return weight.kind === 'lut4' ? `${text} * ${sb}.x` : `fma(${text} - ${offset}.0, ${sb}.x, ${sb}.y)`;
  });
  for (let v = 0; v < values.length; v += 4) quads.push(convert(values.slice(v, v + 4), component));
  return { prepare, quads };
}

function convert(values: readonly string[], component: 'f16' | 'f32'): string {
  const quad = `vec4<f32>(${values.join(', ')})`;
  return component === 'f32' ? quad : `vec4<f16>(clamp(${quad}, vec4<f32>(-65504.0), vec4<f32>(65504.0)))`;
}
