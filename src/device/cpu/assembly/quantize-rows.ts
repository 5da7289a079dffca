import { gluPart, normPart, normScale } from './elementwise';

/** From so many rows on the products unpack weights to panels: where that begins to pay. */
// @ts-ignore: decorator
@inline export const PANEL_ROWS: u32 = DOT ? 12 : 8;

/** Rows of a tile, except for the last rows. */
// @ts-ignore: decorator
@inline export function tileRows(rows: u32): u32 {
  return DOT && rows >= PANEL_ROWS ? 6 : 4;
}

/**
 * Activations to int8, for each row and each weight group: `scale = max|x| / 127`, `code = round(x / scale)`. What the
 * products need of a group beside its codes is the sum of the *codes*: an error e of an activation then counts
 * `w · e` with w the dequantised weight, and not `(w - bias) · e`, which is larger for weights about zero.
 *
 * Rows are laid out for the tiles of the products: tiles of {@link tileRows}, then what is left in tiles 4, 2 or 1 high
 * (with a row of anything where there are 3). A tile of h rows: for every 4 columns those codes of each row (i8 with
 * relaxed SIMD, i16 without); then for every group `[f32 scale, f32 Σ codes]` of each row; then, where sums are of 16
 * bits, for every group 4 bytes, one a row: 0 if the codes are small enough for sums of 64 columns with nibbles to fit
 * (most are), and the scale is neither tiny nor huge. A group that holds a NaN or an infinity gets the scale NaN: the row's results are NaN, and no other row's.
 *
 * The rows are x, or made of x on the way, a group at a time, in what a thread has in `spare`: their norm (`kind` 1) or a
 * glu of 2 · cols columns (2 and its activation).
 *
 * [rowCountAt, x, cols, group, out, bytes of a row; kind, weight, eps, spare, bytes of it for each thread]
 */
export function quantizeRows(p: usize, thread: u32, threads: u32): void {
  const rows = load<u32>(load<u32>(p));
  const x = load<u32>(p, 4);
  const cols = load<u32>(p, 8);
  const group = load<u32>(p, 12);
  const out = load<u32>(p, 16);
  const stride = load<u32>(p, 20);
  const kind = load<u32>(p, 24);
  const spare: usize = load<u32>(p, 36) + thread * load<u32>(p, 40);
  const groups = cols / group;
  const most = tileRows(rows);
  const all = rows * groups;
  const end = <u32>((<u64>all * (thread + 1)) / threads);
  let scaled: u32 = rows;
  let scale: f32 = 0;
  for (let i = <u32>((<u64>all * thread) / threads); i < end; i++) {
    const row = i / groups;
    const g = i - row * groups;
    let from: usize = x + (row * cols + g * group) * 4;
    if (kind == 1) {
      if (scaled != row) {
        scale = normScale(x + row * cols * 4, cols, load<f32>(p, 32));
        scaled = row;
      }
      normPart(from, load<u32>(p, 28) + g * group * 4, scale, spare, group);
      from = spare;
    } else if (kind > 1) {
      from += row * cols * 4;
      gluPart(kind - 2, from, from + cols * 4, spare, group);
      from = spare;
    }
    quantizePart(from, cols, group, g, rows, row, out, stride, most);
  }
}

/** Group g of row `row` of `rows`, which are laid out at `out` for tiles of `most` rows; its numbers are at `from`. */
// @ts-ignore: decorator
@inline export function quantizePart(
  from: usize, cols: u32, group: u32, g: u32, rows: u32, row: u32, out: usize, stride: u32, most: u32,
): void {
  const whole = rows / most * most;
  let high = most;
  if (row >= whole) {
    const left = rows - whole;
    // 5 are 4 and 1.
    high = left > 2 ? (row - whole < 4 ? 4 : 1) : left;
  }
  const r = row < whole ? row % most : (row - whole) & 3;
  const first = row - r;
  const tile = out + first * stride;
  const width: u32 = RELAXED ? 4 : 8;
  const codes = tile + ((g * group >> 2) * high + r) * width;
  const metas = tile + (cols >> 2) * high * width;
  const meta = metas + (g * high + r) * 8;
  const large = quantizeGroup(from, group, codes, high * width, meta);
  if (RELAXED && !DOT) store<u8>(metas + cols / group * high * 8 + g * 4 + r, large ? 1 : 0);
}

/** True if sums of 64 columns of a tile of 4 rows at x, with nibbles, may exceed 16 bits. */
export function anyLarge(x: usize, cols: u32, group: u32): bool {
  const groups = cols / group;
  let at = x + cols * 4 + groups * 32;
  const end = at + groups * 4;
  let any = i32x4.splat(0);
  for (; at + 16 <= end; at += 16) any = v128.or(any, v128.load(at));
  for (; at < end; at += 4) any = v128.or(any, v128.load32_zero(at));
  return v128.any_true(any);
}

/** `step`: bytes from the codes of 4 columns to those of the next 4. True if they are large, as said above. */
function quantizeGroup(x: usize, group: u32, codes: usize, step: usize, meta: usize): bool {
  // The bits of positive floats are ordered as integers, a NaN above the infinity above all numbers.
  const magnitude = i32x4.splat(0x7fffffff);
  let top0 = i32x4.splat(0);
  let top1 = top0;
  for (let i: u32 = 0; i < group; i += 8) {
    top0 = i32x4.max_s(top0, v128.and(v128.load(x + i * 4), magnitude));
    top1 = i32x4.max_s(top1, v128.and(v128.load(x + i * 4, 16), magnitude));
  }
  top0 = i32x4.max_s(top0, top1);
  top0 = i32x4.max_s(top0, v128.shuffle<i32>(top0, top0, 2, 3, 0, 1));
  top0 = i32x4.max_s(top0, v128.shuffle<i32>(top0, top0, 1, 0, 3, 2));
  const top = f32x4.extract_lane(top0, 0);
  // Below 1e-35 the reciprocal would overflow: such a group counts as zeros.
  const usable = top >= 1e-35 && top < Infinity;
  const inverse = f32x4.splat(usable ? <f32>127 / top : 0);
  const ones = i16x8.splat(1);
  let sums = i32x4.splat(0);
  let sizes = sums;
  let largest = sums;
  for (let i: u32 = 0; i < group; i += 16) {
    const at = x + i * 4;
    const a = i16x8.narrow_i32x4_s(code(at, inverse), code(at + 16, inverse));
    const b = i16x8.narrow_i32x4_s(code(at + 32, inverse), code(at + 48, inverse));
    sums = i32x4.add(sums, i32x4.dot_i16x8_s(i16x8.add(a, b), ones));
    // Lanes 0, 2 and 1, 3 are the two pairs of columns of a step: what is summed in a lane of 16 bits.
    sizes = i32x4.add(sizes, i32x4.dot_i16x8_s(i16x8.add(i16x8.abs(a), i16x8.abs(b)), ones));
    if ((i & 48) == 48) {
      largest = i32x4.max_s(largest, i32x4.add(sizes, v128.shuffle<i32>(sizes, sizes, 2, 3, 0, 1)));
      sizes = i32x4.splat(0);
    }
    if (RELAXED) {
      const c = i8x16.narrow_i16x8_s(a, b);
      v128.store32_lane(codes, c, 0);
      v128.store32_lane(codes + step, c, 1);
      v128.store32_lane(codes + step * 2, c, 2);
      v128.store32_lane(codes + step * 3, c, 3);
    } else {
      v128.store64_lane(codes, a, 0);
      v128.store64_lane(codes + step, a, 1);
      v128.store64_lane(codes + step * 2, b, 0);
      v128.store64_lane(codes + step * 3, b, 1);
    }
    codes += step * 4;
  }
  sums = i32x4.add(sums, v128.shuffle<i32>(sums, sums, 2, 3, 0, 1));
  sums = i32x4.add(sums, v128.shuffle<i32>(sums, sums, 1, 0, 3, 2));
  store<f32>(meta, usable ? top / <f32>127 : top < 1 ? 0 : NaN);
  store<f32>(meta, <f32>i32x4.extract_lane(sums, 0), 4);
  if (top != 0 && !(top > 1e-16 && top < 1e16)) return true;
  return max(i32x4.extract_lane(largest, 0), i32x4.extract_lane(largest, 1)) > 32767 / 15;
}

/** Four codes. Adding 1.5 · 2^23 rounds to nearest even and leaves the integer in the low bits. */
// @ts-ignore: decorator
@inline function code(at: usize, inverse: v128): v128 {
  const magic = f32x4.splat(12582912.0);
  return i32x4.sub(f32x4.add(f32x4.mul(v128.load(at), inverse), magic), magic);
}
