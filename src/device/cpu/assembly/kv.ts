/**
 * How K and V lie in a block of the cache, for one KV head.
 *
 * K: tiles of 16 tokens, `[tile][headDim][16]`. A lane of the score kernels is a token: no sums across lanes.
 * V: `[headDim / 16][token][16]`, then the rest of the head (4, 8 or 12 wide) as `[token][rest]`: the sums of 16
 * columns stay in registers while tokens go by, and memory is read in order.
 *
 * f16 values lie in pairs, in a 32-bit lane i of eight: element i low, element 4 + i high. So eight values widen from
 * one load with five operations. The rest of V lies in plain order.
 *
 * An f16 is widened by shifting its exponent into place, `bits << 13` with the sign moved: that is the value times
 * 2^-112, exactly, subnormals included. The queries and the weights of V carry 2^112 (see attend.ts). Exponent 31
 * becomes a finite number this way, so values are saturated to ±65504 when they are stored; a NaN is stored as a
 * finite number, and the row that made it is NaN by its other paths (its own query and its residual).
 */

// @ts-ignore: decorator
@inline export const TILE: u32 = 16;

// @ts-ignore: decorator
@inline export function lowHalves(pairs: v128): v128 {
  return v128.and(i32x4.shr_s(i32x4.shl(pairs, 16), 3), i32x4.splat(0x8fffe000));
}

// @ts-ignore: decorator
@inline export function highHalves(pairs: v128): v128 {
  return v128.and(i32x4.shr_s(pairs, 3), i32x4.splat(0x8fffe000));
}

let touched: v128 = i32x4.splat(0);

/**
 * Asks for 512 bytes at once. Arithmetic on what is loaded fills the processor's window before it reaches the next
 * cache line; loads alone do not, so all eight lines are on their way together (a quarter faster from memory).
 */
// @ts-ignore: decorator
@inline export function touch512(at: usize): void {
  const a = v128.or(v128.load(at), v128.load(at, 64));
  const b = v128.or(v128.load(at, 128), v128.load(at, 192));
  const c = v128.or(v128.load(at, 256), v128.load(at, 320));
  const d = v128.or(v128.load(at, 384), v128.load(at, 448));
  // Kept, or the loads would be optimised away.
  touched = v128.or(v128.or(a, b), v128.or(c, d));
}

/** Four f16 in plain order. */
// @ts-ignore: decorator
@inline export function plainHalves(at: usize): v128 {
  return v128.and(i32x4.shl(v128.load_ext<i16>(at), 13), i32x4.splat(0x8fffe000));
}

/** The f16 bits of four floats in 32-bit lanes: to nearest, ties to even, saturated at ±65504; upper bits 0. */
// @ts-ignore: decorator
@inline export function toHalves(x: v128): v128 {
  const sign = v128.and(i32x4.shr_u(x, 16), i32x4.splat(0x8000));
  // As an integer comparison, so that infinities and NaN saturate too.
  const bits = i32x4.min_s(v128.and(x, i32x4.splat(0x7fffffff)), i32x4.splat(0x477fe000));
  // Below 2^-14 the sum with 0.5 rounds at the f16 subnormal step, 2^-24.
  const small = i32x4.sub(f32x4.add(bits, f32x4.splat(0.5)), i32x4.splat(0x3f000000));
  const odd = v128.and(i32x4.shr_u(bits, 13), i32x4.splat(1));
  const large = i32x4.shr_u(i32x4.add(i32x4.add(bits, odd), i32x4.splat(0xfff - 0x38000000)), 13);
  return v128.or(sign, v128.bitselect(small, large, i32x4.lt_s(bits, i32x4.splat(0x38800000))));
}

/** Writes `dim` floats as one K vector; `at` is the head's place in the block. */
export function storeKey(from: usize, at: usize, token: u32, dim: u32, half: bool): void {
  const inTile = token % TILE;
  const tile: usize = at + (token - inTile) * dim * (half ? 2 : 4);
  if (half) {
    const place = (inTile & 8) + (inTile & 3) * 2 + ((inTile >> 2) & 1);
    let to: usize = tile + place * 2;
    for (let d: u32 = 0; d < dim; d += 4, to += TILE * 2 * 4) {
      const h = toHalves(v128.load(from + d * 4));
      v128.store_lane<u16>(to, h, 0);
      v128.store_lane<u16>(to, h, 2, TILE * 2);
      v128.store_lane<u16>(to, h, 4, TILE * 4);
      v128.store_lane<u16>(to, h, 6, TILE * 6);
    }
  } else {
    let to: usize = tile + inTile * 4;
    for (let d: u32 = 0; d < dim; d++, to += TILE * 4) store<f32>(to, load<f32>(from + d * 4));
  }
}

/** Writes `dim` floats as one V vector. */
export function storeValue(from: usize, at: usize, token: u32, dim: u32, blockTokens: u32, half: bool): void {
  const whole = dim & ~15;
  const rest = dim - whole;
  if (half) {
    for (let d: u32 = 0; d < whole; d += 16) {
      const to: usize = at + (d * blockTokens + token * 16) * 2;
      const f: usize = from + d * 4;
      v128.store(to, v128.or(toHalves(v128.load(f)), i32x4.shl(toHalves(v128.load(f, 16)), 16)));
      v128.store(to, v128.or(toHalves(v128.load(f, 32)), i32x4.shl(toHalves(v128.load(f, 48)), 16)), 16);
    }
    const to: usize = at + (whole * blockTokens + token * rest) * 2;
    for (let d: u32 = 0; d < rest; d += 4) {
      const h = toHalves(v128.load(from + (whole + d) * 4));
      v128.store_lane<u16>(to + d * 2, h, 0);
      v128.store_lane<u16>(to + d * 2, h, 2, 2);
      v128.store_lane<u16>(to + d * 2, h, 4, 4);
      v128.store_lane<u16>(to + d * 2, h, 6, 6);
    }
  } else {
    for (let d: u32 = 0; d < whole; d += 16) {
      memory.copy(at + (d * blockTokens + token * 16) * 4, from + d * 4, 64);
    }
    if (rest != 0) memory.copy(at + (whole * blockTokens + token * rest) * 4, from + whole * 4, rest * 4);
  }
}

/** The value of f16 bits, as `toHalves` makes them. */
// @ts-ignore: decorator
@inline export function halfValue(bits: u32): f32 {
  return reinterpret<f32>((bits & 0x8000) << 16 | (bits & 0x7fff) << 13) * reinterpret<f32>(0x77800000);
}

/** Reads one K vector as `dim` floats; `at` is the head's place in the block. */
export function loadKey(at: usize, token: u32, dim: u32, half: bool, to: usize): void {
  const inTile = token % TILE;
  const tile: usize = at + (token - inTile) * dim * (half ? 2 : 4);
  const place = (inTile & 8) + (inTile & 3) * 2 + ((inTile >> 2) & 1);
  for (let d: u32 = 0; d < dim; d++) {
    const value = half
      ? halfValue(load<u16>(tile + (d * TILE + place) * 2))
      : load<f32>(tile + (d * TILE + inTile) * 4);
    store<f32>(to + d * 4, value);
  }
}

/** Reads one V vector. */
export function loadValue(at: usize, token: u32, dim: u32, blockTokens: u32, half: bool, to: usize): void {
  const whole = dim & ~15;
  const rest = dim - whole;
  for (let d: u32 = 0; d < dim; d++) {
    const index = d < whole ? (d & ~15) * blockTokens + token * 16 : whole * blockTokens + token * rest;
    const i = d < whole ? d & 15 : d - whole;
    // Pairs: of eight values, i and 4 + i.
    const place = d < whole && half ? (i & 8) + (i & 3) * 2 + ((i >> 2) & 1) : i;
    const value = half ? halfValue(load<u16>(at + (index + place) * 2)) : load<f32>(at + (index + place) * 4);
    store<f32>(to + d * 4, value);
  }
}
