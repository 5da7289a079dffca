/** WGSL that reads a *piece* of a weight row: some columns that are whole words, as vec4<f32> in order. */

import type { ShardLayout } from '../weights-layout.js';

export interface Piece {
  /** Columns of a piece: a multiple of 4. */
  readonly cols: number;
  readonly words: number;
}

export function pieceOf(layout: ShardLayout): Piece {
  if (layout.kind === 'affine') return { cols: 32, words: layout.bits };
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
  if (layout.kind === 'affine') {
    const codes = [0, 1, 2, 3].map((i) => code(layout.bits, v * 4 + i));
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

/** `let sb = vec2<f32>(scale, bias)` of group `at` (counted over the whole shard). */
export function readMeta(layout: ShardLayout, at: string): string {
  if (layout.kind === 'float') return '';
  if (layout.meta === 'f16') return `let sb = unpack2x16float(metas[${at}]);`;
  if (layout.meta === 'bf16') {
    return `let packed = metas[${at}];
let sb = bitcast<vec2<f32>>(vec2<u32>(packed << 16u, packed & 0xffff0000u));`;
  }
  return `let sb = bitcast<vec2<f32>>(vec2<u32>(metas[2u * (${at})], metas[2u * (${at}) + 1u]));`;
}
