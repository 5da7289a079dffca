/**
 * Products of many rows with float weights. Blocks are widened to f32 once and pass by the rows in tiles of 4, whose numbers lie side by
 * side: a step is one column, two loads of weights and four of x for eight products. The order of the sums is that of the tiles of
 * matmul-tiles.ts: 32 columns from zero, then the sum of those.
 *
 * A thread's room is `[block][column][8]` f32, then the rows of a tile, `[column][4]`, then their sums.
 *
 * Measured: docs/lab/2026-11-21-cpu.md.
 */
import { madd, storeTransposed } from './math';
import { widenHalf } from './matmul-tiles';

/** Rows from which widening pays. */
// @ts-ignore: decorator
@inline export const FLOAT_ROWS: u32 = 16;
/** Bytes of widened blocks that stay in a second cache; FLOAT_PANEL_BYTES of ../linear-commands.ts. */
// @ts-ignore: decorator
@inline const FLOAT_PANEL_BYTES: u32 = 524288;

/** Blocks that are widened at once: 2 to 8. */
export function floatBlocks(cols: u32): u32 {
  return max<u32>(2, min<u32>(8, FLOAT_PANEL_BYTES / (cols * 32)));
}

/** A block of `cols` columns as f32, `[column][8]`. */
export function widenBlock(dtype: u32, w: usize, to: usize, cols: u32): void {
  const end = to + cols * 32;
  if (dtype == 0) {
    memory.copy(to, w, cols * 32);
  } else if (dtype == 1) {
    for (; to != end; to += 32, w += 16) {
      const both = v128.load(w);
      v128.store(to, widenHalf(both));
      v128.store(to, widenHalf(i32x4.shl(both, 16)), 16);
    }
  } else {
    for (; to != end; to += 32, w += 16) {
      const both = v128.load(w);
      v128.store(to, v128.and(both, i32x4.splat(0xffff0000)));
      v128.store(to, i32x4.shl(both, 16), 16);
    }
  }
}

/** Four rows of `cols` numbers, a multiple of 4, as `[column][4]`. */
export function besideEachOther(x0: usize, x1: usize, x2: usize, x3: usize, to: usize, cols: u32): void {
  const end = x0 + cols * 4;
  for (; x0 != end; x0 += 16, x1 += 16, x2 += 16, x3 += 16, to += 64) {
    storeTransposed(v128.load(x0), v128.load(x1), v128.load(x2), v128.load(x3), to, 16);
  }
}

/** Products of a tile with a widened block, to `sums`: v128 [row][half of the block]. `cols` is a multiple of 4. */
export function floatTile(w: usize, x: usize, sums: usize, cols: u32): void {
  for (let i: u32 = 0; i < 8; i++) v128.store(sums + 16 * i, i32x4.splat(0));
  const last = x + cols * 16;
  do {
    let a0 = i32x4.splat(0), a1 = i32x4.splat(0), a2 = i32x4.splat(0), a3 = i32x4.splat(0);
    let a4 = i32x4.splat(0), a5 = i32x4.splat(0), a6 = i32x4.splat(0), a7 = i32x4.splat(0);
    const end = min<usize>(x + 32 * 16, last);
    // One column a turn: of more V8 11 loads everything first, which does not fit its registers.
    do {
      const lo = v128.load(w);
      const hi = v128.load(w, 16);
      let v = v128.load32_splat(x);
      a0 = madd(lo, v, a0);
      a1 = madd(hi, v, a1);
      v = v128.load32_splat(x, 4);
      a2 = madd(lo, v, a2);
      a3 = madd(hi, v, a3);
      v = v128.load32_splat(x, 8);
      a4 = madd(lo, v, a4);
      a5 = madd(hi, v, a5);
      v = v128.load32_splat(x, 12);
      a6 = madd(lo, v, a6);
      a7 = madd(hi, v, a7);
      w += 32;
      x += 16;
    } while (x != end);
    add(sums, a0, a1);
    add(sums + 32, a2, a3);
    add(sums + 64, a4, a5);
    add(sums + 96, a6, a7);
  } while (x != last);
}

// @ts-ignore: decorator
@inline function add(sums: usize, low: v128, high: v128): void {
  v128.store(sums, f32x4.add(v128.load(sums), low));
  v128.store(sums, f32x4.add(v128.load(sums, 16), high), 16);
}
