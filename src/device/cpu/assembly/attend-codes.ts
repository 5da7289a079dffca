import {
  BOOK_CENTROIDS, BOOK_INTEGERS, FORMAT_A8, FORMAT_T8, SIDE_CENTRE, SIDE_CODEBOOK, SIDE_FORMAT, SIDE_GROUP, SIDE_MOST,
  SIDE_UNIT,
} from '../kv-layout';
import { dots1, dots2, dots4, dots6, widenKeyCodes, widenValueCodes } from './attend-codes-tiles';

/**
 * Attention over codes: what keys (attend-codes-keys.ts) and values (attend-codes-values.ts) have in common.
 *
 * Queries and weights become integers of 16 bits beside one f32 factor, so products with codes are sums of integers:
 * exact, in whatever order, and with a scale, a bias or a norm applied once a group. A query has one factor; the weights
 * of V, times the scale of each token, have one for every 32 positions. `score = σ_q · Σ_groups (s_t · Σ q (code − c) +
 * (b_t + c · s_t) · Σ q)`, c the middle of the codes; TurboQuant is one group with integer centroids and no bias.
 */

/** Groups of a vector. */
// @ts-ignore: decorator
@inline export function groupsOf(side: usize, dim: u32): u32 {
  const group = load<u32>(side, SIDE_GROUP);
  return (dim + group - 1) / group;
}

/** Four floats as integers, rounded to nearest, ties to even. |x| < 2^22. */
// @ts-ignore: decorator
@inline export function rounded(x: v128): v128 {
  const magic = f32x4.splat(12582912.0);
  return i32x4.sub(f32x4.add(x, magic), magic);
}

/** Keys of 8 tokens to 16-bit pairs, `[pair][8 tokens]`. */
export function widenKeyTile(side: usize, at: usize, to: usize, dim: u32): void {
  const format = load<u32>(side, SIDE_FORMAT);
  const book: usize = load<u32>(side, SIDE_CODEBOOK);
  widenKeyCodes(format == FORMAT_T8 ? FORMAT_A8 : format, at, to, dim, book);
  if (format == FORMAT_T8) lookUp(book, to, dim * 8);
}

/** V of one unit and `quads` times 4 tokens to pairs, `[16 values][pair of tokens][16]`. */
export function widenValueUnit(side: usize, at: usize, to: usize, area: usize, quads: u32): void {
  const format = load<u32>(side, SIDE_FORMAT);
  const book: usize = load<u32>(side, SIDE_CODEBOOK);
  widenValueCodes(format == FORMAT_T8 ? FORMAT_A8 : format, at, to, area, quads, book);
  if (format == FORMAT_T8) lookUp(book, to, quads * 64);
}

/** Of so many rows left, how many `dotRows` takes at a time. */
// @ts-ignore: decorator
@inline export function rowsTogether(rows: u32): u32 {
  return rows >= 6 ? 6 : rows >= 4 ? 4 : rows >= 2 ? 2 : 1;
}

/** Sums of products of unpacked pairs: see `dots` in scripts/generate-attend.mjs. */
// @ts-ignore: decorator
@inline export function dotRows(rows: u32, v: usize, step: usize, x: usize, xRow: usize, count: u32, to: usize): void {
  if (rows == 6) dots6(v, step, x, xRow, count, to);
  else if (rows == 4) dots4(v, step, x, xRow, count, to);
  else if (rows == 2) dots2(v, step, x, xRow, count, to);
  else dots1(v, step, x, xRow, count, to);
}

/** Codes of 8 bits to integer centroids. */
function lookUp(book: usize, at: usize, count: u32): void {
  const table = book + BOOK_INTEGERS;
  for (const end = at + count * 2; at < end; at += 2) store<u16>(at, load<u16>(table + (<usize>load<u16>(at) << 1)));
}

/** The f32 value that code or integer `i` of a pair stands for, before scale and bias. For f32 arithmetic. */
// @ts-ignore: decorator
@inline export function plainValue(side: usize, i: u32): f32 {
  if (load<u32>(side, SIDE_FORMAT) == FORMAT_T8) {
    return load<f32>(load<u32>(side, SIDE_CODEBOOK) + BOOK_CENTROIDS + i * 4) / load<f32>(side, SIDE_UNIT);
  }
  return <f32>(<i32>i - <i32>load<u32>(side, SIDE_CENTRE));
}

/** The packing whose pairs `plainValue` takes. */
// @ts-ignore: decorator
@inline export function plainFormat(side: usize): u32 {
  const format = load<u32>(side, SIDE_FORMAT);
  return format == FORMAT_T8 ? FORMAT_A8 : format;
}

// @ts-ignore: decorator
@inline export function mostOf(side: usize): f32 {
  return load<f32>(side, SIDE_MOST);
}
