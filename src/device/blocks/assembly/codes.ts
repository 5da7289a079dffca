// Codes of one byte each, 16 in a vector, and the bit streams that they become.

@inline
export function lows(bytes: v128): v128 {
  return v128.and(bytes, i8x16.splat(15));
}

@inline
export function highs(bytes: v128): v128 {
  return v128.and(i16x8.shr_u(bytes, 4), i8x16.splat(15));
}

/** The bits of `mask` that every byte has from `position` on. */
@inline
export function bit(bytes: v128, position: i32, mask: i8): v128 {
  return v128.and(i16x8.shr_u(bytes, position), i8x16.splat(mask));
}

/** 32 codes of 4 bits. */
@inline
export function halfBytes(a: v128, b: v128): v128 {
  const mask = i16x8.splat(0xff);
  const first = v128.and(v128.or(a, i16x8.shr_u(a, 4)), mask);
  const second = v128.and(v128.or(b, i16x8.shr_u(b, 4)), mask);
  return i8x16.narrow_i16x8_u(first, second);
}

/** 16 codes of 2, 3, 5 or 6 bits, 2 · bits bytes; up to 6 more are written behind them. */
@inline
export function pack(codes: v128, bits: i32, to: usize): void {
  const pairs = v128.or(v128.and(codes, i16x8.splat(0xff)), i16x8.shl(i16x8.shr_u(codes, 8), bits));
  const fours = v128.or(v128.and(pairs, i32x4.splat(0xffff)), i32x4.shl(i32x4.shr_u(pairs, 16), bits << 1));
  const eights = v128.or(v128.and(fours, i64x2.splat(0xffffffff)), i64x2.shl(i64x2.shr_u(fours, 32), bits << 2));
  store<u64>(to, i64x2.extract_lane(eights, 0));
  store<u64>(to + bits, i64x2.extract_lane(eights, 1));
}
