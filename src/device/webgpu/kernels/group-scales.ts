/**
 * Scale and bias of the groups of a quantised row, `w = scale · code + bias`: one text for each layout, that all kernels read. It comes in
 * two parts, for a kernel may fetch the words of a group long before it makes numbers of them.
 *
 * Of tables the scale is that of their numbers times {@link TABLE_NUMBERS}`.times`, which are whole; the bias is that of their bytes,
 * `times · number + centre`. Who reads the numbers themselves needs none.
 *
 * Measured: docs/lab/2026-11-26-gguf-products.md.
 */

import { hasMinima, kQuantGroup, type Lut4Table, lut4Group } from '../../weights.js';
import type { ShardLayout } from '../weights-layout.js';

export type QuantisedLayout = Exclude<ShardLayout, { kind: 'float' }>;

/** Numbers of a table, times `times`, are whole; plus `centre`, bytes. */
export const TABLE_NUMBERS: Record<Lut4Table, { readonly times: number; readonly centre: number }> = {
  e2m1: { times: 2, centre: 12 },
  iq4: { times: 1, centre: 128 },
};

/** Of units of some columns, at most 32 of a group or two. */
export interface GroupScales {
  /** Parts of a unit, of equal width, that have scale and bias of their own: 1 or 2. */
  readonly runs: number;
  /** Where the words of unit `at` stand among the metas of a row: u32 expressions. */
  words(at: string): string[];
  /** `let` lines that make `<into>0`, `<into>1`, … of them, each a vec2<f32> of scale and bias. */
  lines(words: readonly string[], at: string, into: string): string[];
  /** Of symmetric groups: the scale of unit `at` as it lies, an f16. */
  half?(word: string, at: string): string;
}

/** Columns of a group. */
export function groupCols(layout: QuantisedLayout): number {
  if (layout.kind === 'affine') return layout.groupSize;
  if (layout.kind === 'symmetric') return 32;
  return layout.kind === 'lut4' ? lut4Group(layout) : kQuantGroup(layout.bits);
}

/** Words of metas of a unit. */
export function scaleWords(layout: QuantisedLayout): 1 | 2 {
  if (layout.kind === 'affine') return layout.meta === 'f32' ? 2 : 1;
  if (layout.kind === 'symmetric') return 1;
  return layout.kind === 'k-quant' || layout.scale === 'f16-i8' || layout.scale === 'f32-e4m3' ? 2 : 1;
}

/** `pieces`: the 32 columns that a row has, as a u32 expression. `cols`: of a unit, 8, 16 or 32. */
export function groupScales(layout: QuantisedLayout, pieces: string, cols = 32): GroupScales {
  const piece = (at: string): string => (cols === 32 ? at : `(${at}) / ${32 / cols}u`);
  const runs = Math.max(1, cols / groupCols(layout));
  const of = { piece, pieces, runs, half: halfOf(cols) };
  switch (layout.kind) {
    case 'affine':
      return affineScales(layout, cols);
    case 'symmetric':
      return symmetricScales(layout.bits, of);
    case 'k-quant':
      return hasMinima(layout.bits) ? withMinima(layout.bits, of) : aboutMiddle(layout.bits, of);
    case 'lut4':
      return layout.scale === 'f32-e4m3' ? floatBytes(layout.table, of) : tableScale(layout, of);
  }
}

interface Unit {
  piece(at: string): string;
  readonly pieces: string;
  readonly runs: number;
  /** Bits to shift 16 bits of a piece down for the first of its runs that a unit has: its own where units are halves of pieces. */
  half(at: string): string;
}

const halfOf =
  (cols: number) =>
  (at: string): string =>
    cols === 32 ? '0u' : `((${at}) / ${16 / cols}u % 2u * 8u)`;

/** A byte as f32, without a conversion, which takes a GPU four times as long. */
function byteText(word: string): string {
  return `(bitcast<f32>((${word} & 255u) | 0x4b000000u) - 8388608.0)`;
}

/** A signed byte as f32. */
function signedText(word: string): string {
  return `(bitcast<f32>(((${word} & 255u) ^ 128u) | 0x4b000000u) - 8388736.0)`;
}

function affineScales(layout: Extract<ShardLayout, { kind: 'affine' }>, cols: number): GroupScales {
  const { groupSize, meta } = layout;
  const group = (at: string): string => (cols <= groupSize ? `(${at}) / ${groupSize / cols}u` : at);
  return {
    runs: 1,
    words: (at) => (meta === 'f32' ? [`2u * (${group(at)})`, `2u * (${group(at)}) + 1u`] : [group(at)]),
    lines: ([first, second], _, into) => {
      if (meta === 'f16') return [`let ${into}0 = unpack2x16float(${first});`];
      const pair = meta === 'f32' ? `${first}, ${second}` : `${first} << 16u, ${first} & 0xffff0000u`;
      return [`let ${into}0 = bitcast<vec2<f32>>(vec2<u32>(${pair}));`];
    },
  };
}

/** A half for 32 columns; what it implies for a bias is exact. */
function symmetricScales(bits: number, { piece }: Unit): GroupScales {
  return {
    runs: 1,
    words: (at) => [`${piece(at)} / 2u`],
    half: (word, at) => `bitcast<vec2<f16>>(${word} >> (${piece(at)} % 2u * 16u)).x`,
    lines: ([word], at, into) => [
      `let ${into}_s = unpack2x16float(${word} >> (${piece(at)} % 2u * 16u)).x;`,
      `let ${into}0 = vec2<f32>(${into}_s, ${-(2 ** (bits - 1))}.0 * ${into}_s);`,
    ],
  };
}

/** The 16 bits of a piece are the lower ones of `<into>_sub`. */
function subLine(word: string, at: string, into: string, { piece, half }: Unit): string {
  return `let ${into}_sub = (${word} >> (${piece(at)} % 2u * 16u)) >> ${half(at)};`;
}

/** K-quants with minima; products are exact. */
function withMinima(bits: number, of: Unit): GroupScales {
  const { piece, pieces, runs } = of;
  const whole = bits !== 2;
  return {
    runs: whole ? 1 : runs,
    words: (at) => [`${piece(at)} / 2u`, `${pieces} / 2u + ${piece(at)} / 8u`],
    lines: ([sub, head], at, into) => {
      const d = `${into}_d`;
      const lines = [
        subLine(sub!, at, into, whole ? { ...of, half: () => '0u' } : of),
        `let ${d} = unpack2x16float(${head}) * vec2<f32>(1.0, -1.0);`,
      ];
      if (whole)
        lines.push(
          `let ${into}0 = ${d} * vec2<f32>(${byteText(`${into}_sub`)}, ${byteText(`(${into}_sub >> 8u)`)});`,
        );
      else
        for (let run = 0; run < runs; run++) {
          const nibble = (shift: number): string => byteText(`((${into}_sub >> ${8 * run + shift}u) & 15u)`);
          lines.push(`let ${into}${run} = ${d} * vec2<f32>(${nibble(0)}, ${nibble(4)});`);
        }
      return lines;
    },
  };
}

/** K-quants whose codes count from the middle. */
function aboutMiddle(bits: number, of: Unit): GroupScales {
  const { piece, pieces, runs } = of;
  return {
    runs,
    words: (at) => [`${piece(at)} / 2u`, `${pieces} / 2u + ${piece(at)} / 16u`],
    lines: ([sub, head], at, into) => {
      const lines = [
        subLine(sub!, at, into, of),
        `let ${into}_d = unpack2x16float(${head} >> (${piece(at)} / 8u % 2u * 16u)).x;`,
      ];
      for (let run = 0; run < runs; run++) {
        const s = `${into}_s${run}`;
        lines.push(`let ${s} = ${into}_d * ${signedText(`(${into}_sub >> ${8 * run}u)`)};`);
        lines.push(`let ${into}${run} = vec2<f32>(${s}, ${-(2 ** (bits - 1))}.0 * ${s});`);
      }
      return lines;
    },
  };
}

/** A scale for 32 columns: a half, a byte of exponent, or a byte times the half of a superblock. */
function tableScale(
  { table, scale }: Extract<ShardLayout, { kind: 'lut4' }>,
  { piece, pieces }: Unit,
): GroupScales {
  const { times, centre } = TABLE_NUMBERS[table];
  const made = (s: string, into: string): string => `let ${into}0 = vec2<f32>(${s}, ${-centre}.0 * ${s});`;
  if (scale === 'f16')
    return {
      runs: 1,
      words: (at) => [`${piece(at)} / 2u`],
      lines: ([word], at, into) => [
        `let ${into}_s = unpack2x16float(${word} >> (${piece(at)} % 2u * 16u)).x / ${times}.0;`,
        made(`${into}_s`, into),
      ],
    };
  const byte = (word: string, at: string): string => `(${word} >> (${piece(at)} % 4u * 8u))`;
  if (scale === 'f16-i8')
    return {
      runs: 1,
      words: (at) => [`${piece(at)} / 4u`, `${pieces} / 4u + ${piece(at)} / 16u`],
      lines: ([word, head], at, into) => [
        `let ${into}_d = unpack2x16float(${head} >> (${piece(at)} / 8u % 2u * 16u)).x / ${times}.0;`,
        `let ${into}_s = ${into}_d * ${signedText(byte(word!, at))};`,
        made(`${into}_s`, into),
      ],
    };
  // 2^(e − 127), or half of that: no normal number where e is 0 or 1.
  const less = times - 1;
  return {
    runs: 1,
    words: (at) => [`${piece(at)} / 4u`],
    lines: ([word], at, into) => [
      `let ${into}_e = ${byte(word!, at)} & 255u;`,
      `let ${into}_s = bitcast<f32>(select((max(${into}_e, ${less}u) - ${less}u) << 23u, ${0x400000 >> less}u << ${into}_e, ${into}_e <= ${less}u));`,
      made(`${into}_s`, into),
    ],
  };
}

/**
 * Floats of 8 bits, two to a piece, times the number of the row. Read under the exponent of a float, those without one of their own are
 * `(1 + m / 8) / 128`, and `m / 8 / 64` is twice that less 1/64: of all others that is the larger one.
 */
function floatBytes(table: Lut4Table, of: Unit): GroupScales {
  const { times, centre } = TABLE_NUMBERS[table];
  const { piece, pieces, runs } = of;
  return {
    runs,
    words: (at) => [`${piece(at)} / 2u`, `(${pieces} + 1u) / 2u`],
    lines: ([sub, whole], at, into) => {
      const lines = [subLine(sub!, at, into, of), `let ${into}_whole = bitcast<f32>(${whole}) / ${times}.0;`];
      for (let run = 0; run < runs; run++) {
        const [n, s] = [`${into}_n${run}`, `${into}_s${run}`];
        const byte = `(${into}_sub >> ${8 * run}u)`;
        lines.push(
          `let ${n} = bitcast<f32>(((${byte} & 127u) << 20u) + ${120 << 23}u);`,
          `let ${s} = select(${into}_whole, -${into}_whole, (${byte} & 128u) != 0u) * min(${n}, 2.0 * ${n} - 0.015625);`,
          `let ${into}${run} = vec2<f32>(${s}, ${-centre}.0 * ${s});`,
        );
      }
      return lines;
    },
  };
}
