/** Words that formats with codes have in common. */

/**
 * Bits of an f16, moved to bits 13 to 27, to a float: exact, and never through a subnormal f32, which is slow. As a
 * normal number it is `normal`; as a subnormal one `small`; the wrong one of the two is always larger.
 */
// @ts-ignore: decorator
@inline export function fromHalf(size: v128): v128 {
  const normal = i32x4.add(size, i32x4.splat(0x38000000));
  const small = f32x4.sub(i32x4.add(size, i32x4.splat(0x38800000)), f32x4.splat(6.103515625e-5));
  return f32x4.pmin(normal, small);
}

// @ts-ignore: decorator
@inline export function lowHalf(halves: v128): v128 {
  return v128.and(i32x4.shl(halves, 13), i32x4.splat(0x0fffe000));
}

// @ts-ignore: decorator
@inline export function highHalf(halves: v128): v128 {
  return v128.and(i32x4.shr_u(halves, 3), i32x4.splat(0x0fffe000));
}

/** The low bytes of four lanes. */
// @ts-ignore: decorator
@inline export function storeBytes(at: usize, v: v128): void {
  const words = i16x8.narrow_i32x4_u(v, v);
  v128.store32_lane(at, i8x16.narrow_i16x8_u(words, words), 0);
}
