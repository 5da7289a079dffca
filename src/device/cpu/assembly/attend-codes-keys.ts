import { FORMAT_T8, SIDE_CENTRE, SIDE_CODEBOOK, SIDE_FORMAT, SIDE_GROUP, SIDE_ROTATION } from '../kv-layout';
import {
  dotRows, groupsOf, mostOf, plainFormat, plainValue, rounded, rowsTogether, widenKeyTile,
} from './attend-codes';
import { scoreCodes1, scoreCodes2, widenKeyCodes } from './attend-codes-tiles';
import { readMeta } from './kv-formats';
import { madd } from './math';
import { rotate } from './rotation';

/** From so many rows on, codes are unpacked once for all of them. */
const WIDE_ROWS: u32 = 3;
/** Bytes that say the rest of an integer query: factor, then for up to 8 groups −c · Σ q (i32) and Σ q (f32). */
export const FACTS_BYTES: usize = 80;
/** Bytes of scales and biases of a tile: for each of up to 32 groups, 8 of each. */
export const TILE_META_BYTES: usize = 2048;

/** A query of `dim` floats as keys are stored, rotated where they are, to `to`. `spare`: `dim` floats. */
export function turnQuery(side: usize, from: usize, to: usize, spare: usize, dim: u32): void {
  memory.copy(to, from, dim * 4);
  const rotation: usize = load<u32>(side, SIDE_ROTATION);
  if (rotation != 0) rotate(rotation, to, spare, dim, false);
}

/** A query, rotated already, to integers. One that holds a NaN or an infinity gets the factor NaN. */
export function codeQuery(side: usize, from: usize, to: usize, facts: usize, dim: u32, scale: f32): void {
  // The bits of positive floats are ordered as integers, a NaN above the infinity above all numbers.
  let top4 = i32x4.splat(0);
  for (let d: u32 = 0; d < dim; d += 4) {
    top4 = i32x4.max_s(top4, v128.and(v128.load(from + d * 4), i32x4.splat(0x7fffffff)));
  }
  top4 = i32x4.max_s(top4, v128.shuffle<i32>(top4, top4, 2, 3, 0, 1));
  top4 = i32x4.max_s(top4, v128.shuffle<i32>(top4, top4, 1, 0, 3, 2));
  const top = f32x4.extract_lane(top4, 0);
  const usable = top >= 1e-30 && top < Infinity;
  const most = mostOf(side);
  const inverse = f32x4.splat(usable ? most / top : 0);
  // Rotated keys have no biases.
  const rotated = load<u32>(side, SIDE_ROTATION) != 0;
  const centre = <i32>load<u32>(side, SIDE_CENTRE);
  const group = load<u32>(side, SIDE_GROUP);
  const ones = i16x8.splat(1);
  store<f32>(facts, usable ? (top / most) * scale : top < 1 ? 0 : NaN);
  for (let g: u32 = 0, d: u32 = 0; d < dim; g++) {
    let sums = i32x4.splat(0);
    for (const end = min<u32>(dim, d + group); d < end; d += 8) {
      const a = rounded(f32x4.mul(v128.load(from + d * 4), inverse));
      const b = rounded(f32x4.mul(v128.load(from + d * 4, 16), inverse));
      const codes = i16x8.narrow_i32x4_s(a, b);
      v128.store(to + d * 2, codes);
      sums = i32x4.add(sums, i32x4.dot_i16x8_s(codes, ones));
    }
    sums = i32x4.add(sums, v128.shuffle<i32>(sums, sums, 2, 3, 0, 1));
    sums = i32x4.add(sums, v128.shuffle<i32>(sums, sums, 1, 0, 3, 2));
    const sum = i32x4.extract_lane(sums, 0);
    store<i32>(facts + g * 4, -centre * sum, 16);
    store<f32>(facts + g * 4, rotated ? 0 : <f32>sum, 48);
  }
}

/** Scales and biases of 8 tokens from `token` of a block on. */
export function readTileMeta(
  side: usize, block: u32, h: u32, kvHeads: u32, token: u32, blockShift: u32, dim: u32, to: usize,
): void {
  const groups = groupsOf(side, dim);
  readMeta(side, block, h, kvHeads, 0, groups, groups, token, 8, blockShift, to, to + 32, 64);
}

/**
 * Scores of `rows` integer queries (`facts` of each behind the other) against the 8 keys at `at`; `out`: of the first
 * row, rows 1024 bytes apart. `wide`: 16 · dim + 192 bytes.
 */
export function scoreKeys(
  side: usize, at: usize, q: usize, facts: usize, meta: usize, dim: u32, rows: u32, out: usize, wide: usize,
): void {
  const format = load<u32>(side, SIDE_FORMAT);
  const group = load<u32>(side, SIDE_GROUP);
  const row: usize = dim * 2;
  if (rows < WIDE_ROWS && format != FORMAT_T8) {
    const book: usize = load<u32>(side, SIDE_CODEBOOK);
    if (rows == 2) scoreCodes2(format, at, q, row, facts, meta, dim, group, out, book);
    else scoreCodes1(format, at, q, row, facts, meta, dim, group, out, book);
    return;
  }
  widenKeyTile(side, at, wide, dim);
  const dots = wide + 16 * dim;
  for (let n: u32 = 0; rows != 0; rows -= n) {
    n = rowsTogether(rows);
    for (let d: u32 = 0, g: u32 = 0; d < dim; d += group, g++) {
      const pairs = min<u32>(group, dim - d) >> 1;
      dotRows(n, wide + d * 16, 32, q + d * 2, row, pairs, dots);
      finishKeys(dots, facts + g * 4, meta + g * 64, out, n, d == 0);
    }
    for (let r: u32 = 0; r < n; r++) {
      const sigma = v128.load_splat<f32>(facts + r * FACTS_BYTES);
      const score = out + r * 1024;
      v128.store(score, f32x4.mul(v128.load(score), sigma));
      v128.store(score, f32x4.mul(v128.load(score, 16), sigma), 16);
    }
    q += n * row;
    facts += n * FACTS_BYTES;
    out += n * 1024;
  }
}

/** Puts the sums of a group to the scores. The `facts` and `meta` of the group. */
function finishKeys(dots: usize, facts: usize, meta: usize, out: usize, rows: u32, fresh: bool): void {
  const sa = v128.load(meta);
  const sb = v128.load(meta, 16);
  const ba = v128.load(meta, 32);
  const bb = v128.load(meta, 48);
  for (const end = dots + rows * 32; dots < end; dots += 32, facts += FACTS_BYTES, out += 1024) {
    const start = v128.load32_splat(facts, 16);
    const sum = v128.load_splat<f32>(facts, 48);
    const a = f32x4.convert_i32x4_s(i32x4.add(v128.load(dots), start));
    const b = f32x4.convert_i32x4_s(i32x4.add(v128.load(dots, 16), start));
    const zero = f32x4.splat(0);
    v128.store(out, madd(ba, sum, madd(sa, a, fresh ? zero : v128.load(out))));
    v128.store(out, madd(bb, sum, madd(sb, b, fresh ? zero : v128.load(out, 16))), 16);
  }
}

/** The 8 keys at `at` as floats, to 8 of the 16 columns of `to` `[headDim][16]`. For f32 arithmetic. */
export function plainKeys(side: usize, at: usize, meta: usize, dim: u32, wide: usize, to: usize): void {
  widenKeyCodes(plainFormat(side), at, wide, dim, load<u32>(side, SIDE_CODEBOOK));
  const group = load<u32>(side, SIDE_GROUP);
  for (let d: u32 = 0; d < dim; d++) {
    const own = meta + (d / group) * 64;
    for (let t: u32 = 0; t < 8; t++) {
      const i = load<u16>(wide + (d >> 1) * 32 + t * 4 + (d & 1) * 2);
      const value = plainValue(side, i) * load<f32>(own + t * 4) + load<f32>(own + t * 4, 32);
      store<f32>(to + d * 64 + t * 4, value);
    }
  }
}
