/** Attention on matrices of bytes: queries as integers in matrices. */

import type { AttendShape } from './attend.js';
import { ownEnds, ownPositions } from './attend-bytes-own.js';
import {
  type BytesSide,
  HEADS,
  LANES,
  MOST,
  PIECE,
  PIECES,
  QUERY_STRIDE,
  ROUNDED_BITS,
  ROUNDING,
  scalesLate,
} from './attend-bytes-plan.js';
import { bytesText } from './attend-planes.js';
import { count } from './attend-words.js';
import { f32Literal } from './f32-literal.js';
import { hasScales } from './kv-formats/list.js';

/** Words of a piece that are staged at once: matrices have half of the dims. */
export const STAGED = 4;
export const HALVES = 2;
/** Matrices of half of the dims. */
export const HALF_STEPS = 2;
/** Exponentials are powers of two. */
export const SCALE = Math.LOG2E;
/** Scores of one less are zero by any other measure. */
const LEAST_END = '1.0e-20';

/**
 * Statements that make, of four numbers of at most MOST and ROUNDING each, `NAME0` … `NAME3` as bits, the words `NAMEhigh` and
 * `NAMElow` of their upper and lower bytes.
 */
function planesText(name: string): string {
  return `let ${name}e = (${name}0 & 0xffffu) | (${name}2 << 16u);
let ${name}o = (${name}1 & 0xffffu) | (${name}3 << 16u);
let ${name}low = ((${name}e & 0x00ff00ffu) | ((${name}o << 8u) & 0xff00ff00u)) ^ 0x80808080u;
let ${name}high = ((${name}e >> 8u) & 0x00ff00ffu) | (${name}o & 0xff00ff00u);`;
}

/** Lanes of a head, when queries become integers: one for every half of a piece. */
const HEAD_LANES = LANES / HEADS;

/** Statements that load a lane's part of the queries: the dims of one head that make a vector of staged words. */
export function queryLoads({ heads, kvHeads, headDim }: AttendShape, { format }: BytesSide): string[] {
  const group = heads / kvHeads;
  const { vectors, half } = queryWords(format, headDim);
  return [
    `  let own_head = lane / ${HEAD_LANES}u;
  let q_at = ((item.x * ${heads}u + kv * ${group}u + ${group === HEADS ? 'own_head' : `min(own_head, ${group - 1}u)`}) * ${headDim}u + lane % ${PIECES}u * ${PIECE}u) / 4u + lane / ${PIECES}u % ${HALVES}u * ${half}u;`,
    ...vectors.map((at, i) => `  let q${i} = q[q_at + ${at}u];`),
  ];
}

/**
 * Where the dims of a vector of staged words stand in a piece, in vectors of four dims: those of the first half, how far the
 * second is behind it, and the places of a word's four dims.
 */
function queryWords(
  format: BytesSide['format'],
  headDim: number,
): {
  readonly vectors: readonly number[];
  readonly half: number;
  readonly place: (word: number, element: number) => string;
} {
  const { words } = bytesText(format, headDim, PIECE, 'x', () => '0u');
  const dims = words.slice(0, STAGED).map((w) => w.dims);
  const vectors = [...new Set(dims.flat().map((d) => d >> 2))].sort((a, b) => a - b);
  return {
    vectors,
    half: (words[STAGED]!.dims[0] - words[0]!.dims[0]) / 4,
    place: (word, element) => {
      const d = dims[word]![element]!;
      return `n${vectors.indexOf(d >> 2)}.${'xyzw'[d & 3]}`;
    },
  };
}

/**
 * Leaves matrices `right0` …, and for a lane's two heads, as vec2<f32>, or for four (attend-bytes-own.ts), `end`, what an integer score
 * is multiplied with; of affine keys also `wholeG`, the sum of the two's integer queries of group G.
 */
export function byteQueries(shape: AttendShape, keys: BytesSide, values: BytesSide): string[] {
  const { format, groups, unit, ownKey } = keys;
  const group = shape.heads / shape.kvHeads;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  const { vectors, place } = queryWords(format, shape.headDim);
  const parts = vectors.map((_, i) => `q${i}`);
  const most = parts.map((q) => `abs(${q})`).reduce((a, b) => `max(${a}, ${b})`);
  emit(`  let mosts = ${most};
  var most = max(max(mosts.x, mosts.y), max(mosts.z, mosts.w));`);
  for (const bit of [1, 2, 4]) emit(`  most = max(most, subgroupShuffleXor(most, ${bit}u));`);
  const here = group === HEADS ? '' : ` && own_head < ${group}u`;
  emit(`  let to_integers = select(0.0, ${MOST}.0 / most, most > 1.0e-30${here});`);
  parts.forEach((q, i) => {
    emit(`  let n${i} = bitcast<vec4<u32>>(${q} * to_integers + ${ROUNDING});`);
  });
  if (hasScales(format)) sums();
  const scaled = `most * ${f32Literal((shape.scale * unit * (shape.softcap === null ? SCALE : 1)) / MOST)}`;
  // What is not seen is to stay far below all scores, times this.
  const least = scalesLate(shape) ? `max(${scaled}, ${LEAST_END})` : scaled;
  // Integers of what is infinite are none: the row is to be NaN, and is told so by bits, whatever a driver takes NaN for.
  emit(`  let beyond = (bitcast<u32>(most) & 0x7f800000u) == 0x7f800000u;
  let most_end = bitcast<f32>(select(bitcast<u32>(${least}), 0x7fc00000u, beyond));`);
  if (ownPositions(keys, values)) emit(ownEnds(HEAD_LANES));
  else ends();
  // Column (head, plane), all dims.
  for (const w of count(STAGED)) {
    count(4).forEach((e) => {
      emit(`  let n${w}_${e} = ${place(w, e)};`);
    });
    emit(planesText(`n${w}_`));
  }
  // As staged keys have them: pieces side by side, or their halves.
  const at = ownKey
    ? `lane % ${PIECES}u * ${HALVES}u + lane / ${PIECES}u % ${HALVES}u`
    : `lane % ${HEAD_LANES}u`;
  for (const [p, plane] of ['high', 'low'].entries())
    emit(
      `  area[own_head * ${2 * QUERY_STRIDE}u + ${at} + ${p * QUERY_STRIDE}u] = vec4<u32>(${count(STAGED)
        .map((w) => `n${w}_${plane}`)
        .join(', ')});`,
    );
  emit('  workgroupBarrier();');
  for (const k of count(HALVES * HALF_STEPS))
    emit(`  let right${k} = subgroupMatrixLoad<Right, col_major>(&area, ${k * 2}u, ${QUERY_STRIDE}u);`);
  return lines;

  function sums(): void {
    emit(`  let all_n = ${parts.map((_, i) => `n${i}`).join(' + ')};
  var part = bitcast<i32>(all_n.x + all_n.y + all_n.z + all_n.w - ${(16 * (ROUNDED_BITS + 128)) >>> 0}u);`);
    for (const bit of groups === 1 ? [1, 2, 4] : [1, 4]) emit(`  part += subgroupShuffleXor(part, ${bit}u);`);
  }

  function ends(): void {
    // Lanes of the first of a lane's two heads, and of an affine group of it.
    emit(`  let first_lane = lane % 2u * ${2 * HEAD_LANES}u;
  let end = vec2<f32>(subgroupShuffle(most_end, first_lane), subgroupShuffle(most_end, first_lane + ${HEAD_LANES}u));`);
    if (!hasScales(format)) return;
    for (const g of count(groups)) {
      const from = (head: number): string =>
        `f32(subgroupShuffle(part, first_lane + ${head * HEAD_LANES + g * (PIECES / 2)}u))`;
      emit(`  let whole${g} = vec2<f32>(${from(0)}, ${from(1)});`);
    }
  }
}
