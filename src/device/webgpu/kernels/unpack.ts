/** WGSL that reads a *piece* of a weight row: some columns that are whole words, as vec4<f32> in order. */

import {
  hasMinima,
  type KQuantBits,
  kQuantGroup,
  LUT4_TABLES,
  type Lut4Table,
  lut4Group,
} from '../../weights.js';
import type { ShardLayout } from '../weights-layout.js';

export interface Piece {
  /** Columns of a piece: a multiple of 4. */
  readonly cols: number;
  readonly words: number;
}

export function pieceOf(layout: ShardLayout): Piece {
  if (layout.kind !== 'float') return { cols: 32, words: layout.bits };
  return layout.dtype === 'f32' ? { cols: 4, words: 4 } : { cols: 8, words: 4 };
}

/**
 * `let` lines that read piece `at` (a word index) of `codes: array<u32>` into `q0`, `q1`, … : the codes of an affine
 * layout (scale and bias not applied), the numbers of a float one.
 */
export function readPiece(layout: ShardLayout, at: string): string {
  const { cols, words } = pieceOf(layout);
  const lines = Array.from({ length: words }, (_, i) => `let w${i} = codes[${at} + ${i}u];`);
  for (let v = 0; v < cols / 4; v++) lines.push(`let q${v} = ${vector(layout, v)};`);
  return lines.join('\n');
}

function vector(layout: ShardLayout, v: number): string {
  if (layout.kind !== 'float') {
    const codes = [0, 1, 2, 3].map((i) => {
      const one = code(layout.bits, v * 4 + i);
      return layout.kind === 'lut4' ? lookedUp(layout.table, one) : one;
    });
    return `vec4<f32>(vec4<u32>(${codes.join(', ')}))`;
  }
  if (layout.dtype === 'f32') return 'bitcast<vec4<f32>>(vec4<u32>(w0, w1, w2, w3))';
  const [a, b] = [`w${v * 2}`, `w${v * 2 + 1}`];
  if (layout.dtype === 'f16') return `vec4<f32>(unpack2x16float(${a}), unpack2x16float(${b}))`;
  return `bitcast<vec4<f32>>(vec4<u32>(${a} << 16u, ${a} & 0xffff0000u, ${b} << 16u, ${b} & 0xffff0000u))`;
}

/** Code i of a little-endian bit stream over w0, w1, … */
function code(bits: number, i: number): string {
  const offset = i * bits;
  const [word, shift] = [offset >> 5, offset & 31];
  const mask = `${2 ** bits - 1}u`;
  const low = shift === 0 ? `w${word}` : `(w${word} >> ${shift}u)`;
  if (shift + bits === 32) return low;
  if (shift + bits < 32) return `(${low} & ${mask})`;
  return `((${low} | (w${word + 1} << ${32 - shift}u)) & ${mask})`;
}

/** Where a piece is, as WGSL: its row, its place in the row, the pieces of a row, and the words of metas of a row. */
export interface PiecePlace {
  readonly row: string;
  readonly piece: string;
  readonly pieces: string;
  readonly metaWords: string;
}

/** Runs of a piece that have scales and biases of their own. */
export function metaRuns(layout: ShardLayout): number {
  if (layout.kind === 'lut4') return 32 / lut4Group(layout);
  return layout.kind === 'k-quant' ? 32 / kQuantGroup(layout.bits) : 1;
}

/** What number v of a piece is, of `q` and `sb`: a vec4. Codes are made numbers. */
export function pieceValue(layout: ShardLayout, v: number): string {
  if (layout.kind === 'float') return `q${v}`;
  const sb = `sb${metaRuns(layout) === 2 && v >= 4 ? 1 : 0}`;
  return `fma(q${v}, vec4<f32>(${sb}.x), vec4<f32>(${sb}.y))`;
}

/** `let` lines of the sums of a piece of x, `x0`, `x1`, …, which biases multiply: `x_sum0` (and `x_sum1`). */
export function pieceSums(layout: ShardLayout): string {
  if (layout.kind === 'float') return '';
  const sums = runsOf(layout).map((run) => run.map((v) => `x${v}`).join(' + '));
  return sums.map((sum, run) => `let x_sum${run} = dot(${sum}, vec4<f32>(1.0));`).join('\n');
}

/** The product of a piece with that of x, of which {@link pieceSums} are known. */
export function pieceDot(layout: ShardLayout): string {
  const dots = runsOf(layout).map((run) => run.map((v) => `dot(q${v}, x${v})`).join(' + '));
  if (layout.kind === 'float') return dots.join(' + ');
  return dots.map((dot, run) => `fma(sb${run}.x, ${dot}, sb${run}.y * x_sum${run})`).join(' + ');
}

/** The vectors of each of {@link metaRuns}. */
function runsOf(layout: ShardLayout): number[][] {
  const runs = metaRuns(layout);
  const each = pieceOf(layout).cols / 4 / runs;
  return Array.from({ length: runs }, (_, run) => Array.from({ length: each }, (_, v) => run * each + v));
}

/** `let sb0 = vec2<f32>(scale, bias)` of a piece; of the second of two {@link metaRuns} `sb1`. */
export function readMeta(layout: ShardLayout, place: PiecePlace): string {
  const { row, piece, metaWords } = place;
  if (layout.kind === 'float') return '';
  if (layout.kind === 'k-quant') return readSubscales(layout.bits, place);
  if (layout.kind === 'lut4') return readTableScale(layout, place);
  const words = layout.meta === 'f32' ? `${metaWords} / 2u` : metaWords;
  const at = `${row} * (${words}) + ${piece} * 32u / ${layout.groupSize}u`;
  if (layout.meta === 'f16') return `let sb0 = unpack2x16float(metas[${at}]);`;
  if (layout.meta === 'bf16') {
    return `let packed = metas[${at}];
let sb0 = bitcast<vec2<f32>>(vec2<u32>(packed << 16u, packed & 0xffff0000u));`;
  }
  return `let sb0 = bitcast<vec2<f32>>(vec2<u32>(metas[2u * (${at})], metas[2u * (${at}) + 1u]));`;
}

/** Of a k-quant; products are exact. */
function readSubscales(bits: KQuantBits, { row, piece, pieces, metaWords }: PiecePlace): string {
  const from = `${row} * ${metaWords}`;
  const lines = [`let sub = metas[${from} + ${piece} / 2u] >> (${piece} % 2u * 16u);`];
  const heads = `${from} + ${pieces} / 2u`;
  if (!hasMinima(bits)) {
    lines.push(`let d = unpack2x16float(metas[${heads} + ${piece} / 16u])[${piece} / 8u % 2u];`);
    for (const [run, shift] of [24, 16].entries()) {
      lines.push(`let s${run} = d * f32(bitcast<i32>(sub << ${shift}u) >> 24u);`);
      lines.push(`let sb${run} = vec2<f32>(s${run}, ${-(2 ** (bits - 1))}.0 * s${run});`);
    }
    return lines.join('\n');
  }
  lines.push(`let d = unpack2x16float(metas[${heads} + ${piece} / 8u]) * vec2<f32>(1.0, -1.0);`);
  if (kQuantGroup(bits) === 32)
    lines.push('let sb0 = d * vec2<f32>(vec2<u32>(sub, sub >> 8u) & vec2<u32>(255u));');
  else
    for (const run of [0, 1])
      lines.push(
        `let sb${run} = d * vec2<f32>((vec2<u32>(sub, sub >> 4u) >> vec2<u32>(${8 * run}u)) & vec2<u32>(15u));`,
      );
  return lines.join('\n');
}

/** Tables as bytes: numbers times `times`, plus `centre`. */
const TABLE_BYTES: Record<Lut4Table, { readonly times: number; readonly centre: number }> = {
  e2m1: { times: 2, centre: 12 },
  iq4: { times: 1, centre: 128 },
};

/** The byte of a table for a code. */
function lookedUp(table: Lut4Table, code: string): string {
  const { times, centre } = TABLE_BYTES[table];
  const words = [0, 1, 2, 3].map((w) => {
    const bytes: readonly number[] = LUT4_TABLES[table].slice(4 * w, 4 * w + 4);
    return `${bytes.reduce((word, v, i) => word + (times * v + centre) * 256 ** i, 0)}u`;
  });
  return `((vec4<u32>(${words.join(', ')})[${code} >> 2u] >> ((${code} & 3u) * 8u)) & 255u)`;
}

/** The scale that a table's bytes want, and the bias that makes up for their centre. */
function readTableScale(
  { table, scale }: Extract<ShardLayout, { kind: 'lut4' }>,
  { row, piece, pieces, metaWords }: PiecePlace,
): string {
  const { times, centre } = TABLE_BYTES[table];
  const from = `${row} * ${metaWords}`;
  if (scale === 'f32-e4m3') return readFloatBytes(table, from, piece, pieces);
  const byte = `(metas[${from} + ${piece} / 4u] >> (${piece} % 4u * 8u))`;
  const lines: string[] = [];
  if (scale === 'f16')
    lines.push(`let s0 = unpack2x16float(metas[${from} + ${piece} / 2u])[${piece} % 2u] / ${times}.0;`);
  else if (scale === 'f16-i8') {
    const head = `metas[${from} + ${pieces} / 4u + ${piece} / 16u]`;
    lines.push(`let d = unpack2x16float(${head})[${piece} / 8u % 2u] / ${times}.0;`);
    lines.push(`let s0 = d * f32(bitcast<i32>(${byte} << 24u) >> 24u);`);
  } else {
    // 2^(e − 127), or half of that: no normal number where e is 0 or 1.
    const less = times - 1;
    lines.push(`let e = ${byte} & 255u;`);
    lines.push(
      `let s0 = bitcast<f32>(select((max(e, ${less}u) - ${less}u) << 23u, ${0x400000 >> less}u << e, e <= ${less}u));`,
    );
  }
  lines.push(`let sb0 = vec2<f32>(s0, ${-centre}.0 * s0);`);
  return lines.join('\n');
}

/** Floats of 8 bits, two to a piece, times the number of the row. Those without an exponent would be subnormal halves. */
function readFloatBytes(table: Lut4Table, from: string, piece: string, pieces: string): string {
  const { times, centre } = TABLE_BYTES[table];
  const lines = [
    `let sub = metas[${from} + ${piece} / 2u] >> (${piece} % 2u * 16u);`,
    `let whole = bitcast<f32>(metas[${from} + (${pieces} + 1u) / 2u]) / ${times}.0;`,
  ];
  for (const run of [0, 1]) {
    const [b, n] = [`e4m3_${run}`, `size${run}`];
    lines.push(`let ${b} = (sub >> ${8 * run}u) & 127u;`);
    lines.push(
      `let ${n} = select(bitcast<f32>((${b} << 20u) + ${120 << 23}u), f32(${b}) * ${2 ** -9}, ${b} < 8u);`,
    );
    lines.push(`let s${run} = select(whole, -whole, (sub & ${0x80 << (8 * run)}u) != 0u) * ${n};`);
    lines.push(`let sb${run} = vec2<f32>(s${run}, ${-centre}.0 * s${run});`);
  }
  return lines.join('\n');
}
