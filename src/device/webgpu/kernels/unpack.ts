/** WGSL that reads a *piece* of a weight row: some columns that are whole words, as vec4<f32> in order. */

import { LUT4_TABLES, type Lut4Table } from '../../weights.js';
import type { ShardLayout } from '../weights-layout.js';
import { groupCols, groupScales, TABLE_NUMBERS } from './group-scales.js';

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
  return layout.kind === 'float' ? 1 : Math.max(1, 32 / groupCols(layout));
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
export function readMeta(layout: ShardLayout, { row, piece, pieces, metaWords }: PiecePlace): string {
  if (layout.kind === 'float') return '';
  const scales = groupScales(layout, pieces);
  const words = scales.words(piece);
  return [
    ...words.map((word, i) => `let meta${i} = metas[${row} * ${metaWords} + ${word}];`),
    ...scales.lines(
      words.map((_, i) => `meta${i}`),
      piece,
      'sb',
    ),
  ].join('\n');
}

/** The byte of a table for a code. */
function lookedUp(table: Lut4Table, code: string): string {
  const { times, centre } = TABLE_NUMBERS[table];
  const words = [0, 1, 2, 3].map((w) => {
    const bytes: readonly number[] = LUT4_TABLES[table].slice(4 * w, 4 * w + 4);
    return `${bytes.reduce((word, v, i) => word + (times * v + centre) * 256 ** i, 0)}u`;
  });
  return `((vec4<u32>(${words.join(', ')})[${code} >> 2u] >> ((${code} & 3u) * 8u)) & 255u)`;
}
