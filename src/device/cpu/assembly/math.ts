/**
 * Arithmetic that all kernels share. Every function works on four lanes and is used for single values as well, so
 * that a value never depends on where in a vector it stood.
 */

/** `a · b + c`: fused with relaxed SIMD on a machine that fuses, rounded twice otherwise; one or the other throughout. */
// @ts-ignore: decorator
@inline export function madd(a: v128, b: v128, c: v128): v128 {
  if (RELAXED) return f32x4.relaxed_madd(a, b, c);
  return f32x4.add(f32x4.mul(a, b), c);
}

/** Four vectors as the rows of a square; its columns are stored, `stride` bytes apart. */
// @ts-ignore: decorator
@inline export function storeTransposed(a: v128, b: v128, c: v128, d: v128, to: usize, stride: usize): void {
  const ab = v128.shuffle<i32>(a, b, 0, 4, 1, 5);
  const cd = v128.shuffle<i32>(c, d, 0, 4, 1, 5);
  const ba = v128.shuffle<i32>(a, b, 2, 6, 3, 7);
  const dc = v128.shuffle<i32>(c, d, 2, 6, 3, 7);
  v128.store(to, v128.shuffle<i64>(ab, cd, 0, 2));
  v128.store(to + stride, v128.shuffle<i64>(ab, cd, 1, 3));
  v128.store(to + 2 * stride, v128.shuffle<i64>(ba, dc, 0, 2));
  v128.store(to + 3 * stride, v128.shuffle<i64>(ba, dc, 1, 3));
}

/**
 * e^x to 2 ulp for x in [-87.3, 88.37]; 0 below, e^88.37 above, NaN for NaN. `n = round(x / ln 2)` is taken by the
 * rounding of an addition, `e^(x - n ln 2)` by a polynomial, and n added to the exponent bits.
 */
// @ts-ignore: decorator
@inline export function exp4(value: v128): v128 {
  // pmin and pmax are one instruction where min and max are many; a NaN in their first operand passes.
  const x = f32x4.pmin(value, f32x4.splat(88.37));
  const shifted = madd(x, f32x4.splat(1.44269504), f32x4.splat(12582912.0));
  const n = f32x4.sub(shifted, f32x4.splat(12582912.0));
  let r = madd(n, f32x4.splat(-0.693359375), x);
  r = madd(n, f32x4.splat(2.12194440e-4), r);
  let p = madd(f32x4.splat(1.9875691500e-4), r, f32x4.splat(1.3981999507e-3));
  p = madd(p, r, f32x4.splat(8.3334519073e-3));
  p = madd(p, r, f32x4.splat(4.1665795894e-2));
  p = madd(p, r, f32x4.splat(1.6666665459e-1));
  p = madd(p, r, f32x4.splat(5.0000001201e-1));
  p = madd(f32x4.mul(p, r), r, f32x4.add(r, f32x4.splat(1)));
  const e = i32x4.add(p, i32x4.shl(shifted, 23));
  // `lt` is false for NaN, so NaN passes.
  return v128.andnot(e, f32x4.lt(value, f32x4.splat(-87.3)));
}

// Loaded, not made: V8 makes a vector constant anew at every use, in three instructions.
const EXP_DOWN = memory.data<f32>([
  -86.5, -86.5, -86.5, -86.5,
  1.44269504, 1.44269504, 1.44269504, 1.44269504,
  1.3269535265862942e-3, 1.3269535265862942e-3, 1.3269535265862942e-3, 1.3269535265862942e-3,
  9.671292267739773e-3, 9.671292267739773e-3, 9.671292267739773e-3, 9.671292267739773e-3,
  5.55071085691452e-2, 5.55071085691452e-2, 5.55071085691452e-2, 5.55071085691452e-2,
  0.24022246897220612, 0.24022246897220612, 0.24022246897220612, 0.24022246897220612,
  0.6931470036506653, 0.6931470036506653, 0.6931470036506653, 0.6931470036506653,
  1, 1, 1, 1,
], 16);

/**
 * `e^x · 2^k` for x ≤ 0, to 2e-7 near 0 and 4e-6 far from it, exactly 2^k at 0; `shift` is 1.5 · 2^23 + k in all lanes. No
 * smaller than at x = -86.5, however small x is, and NaN for NaN. As 2^f with |f| ≤ ½: the polynomial has the least
 * relative error (1.5e-7) of those of degree 5 that are 1 at 0.
 */
// @ts-ignore: decorator
@inline export function expDown4(value: v128, shift: v128): v128 {
  const x = f32x4.pmax(value, v128.load(EXP_DOWN));
  const log2e = v128.load(EXP_DOWN, 16);
  const shifted = madd(x, log2e, shift);
  const f = madd(x, log2e, f32x4.sub(shift, shifted));
  let p = madd(v128.load(EXP_DOWN, 32), f, v128.load(EXP_DOWN, 48));
  p = madd(p, f, v128.load(EXP_DOWN, 64));
  p = madd(p, f, v128.load(EXP_DOWN, 80));
  p = madd(p, f, v128.load(EXP_DOWN, 96));
  p = madd(p, f, v128.load(EXP_DOWN, 112));
  return i32x4.add(p, i32x4.shl(shifted, 23));
}

// @ts-ignore: decorator
@inline export function exp1(x: f32): f32 {
  return f32x4.extract_lane(exp4(f32x4.splat(x)), 0);
}

/**
 * ln x to 2 ulp for normal positive x. `x = m · 2^e` with m in [√½, √2), and a polynomial in m - 1, which is exact
 * near 1: small results keep their relative precision.
 */
// @ts-ignore: decorator
@inline export function log4(x: v128): v128 {
  // Subtracting the bits of √½ rounds the exponent at √2 instead of at 2.
  const shifted = i32x4.sub(x, i32x4.splat(0x3f3504f3));
  const e = f32x4.convert_i32x4_s(i32x4.shr_s(shifted, 23));
  const m = i32x4.add(v128.and(shifted, i32x4.splat(0x007fffff)), i32x4.splat(0x3f3504f3));
  const f = f32x4.sub(m, f32x4.splat(1));
  const square = f32x4.mul(f, f);
  let p = madd(f32x4.splat(7.0376836292e-2), f, f32x4.splat(-1.1514610310e-1));
  p = madd(p, f, f32x4.splat(1.1676998740e-1));
  p = madd(p, f, f32x4.splat(-1.2420140846e-1));
  p = madd(p, f, f32x4.splat(1.4249322787e-1));
  p = madd(p, f, f32x4.splat(-1.6668057665e-1));
  p = madd(p, f, f32x4.splat(2.0000714765e-1));
  p = madd(p, f, f32x4.splat(-2.4999993993e-1));
  p = madd(p, f, f32x4.splat(3.3333331174e-1));
  p = f32x4.mul(f32x4.mul(p, f), square);
  p = madd(e, f32x4.splat(-2.12194440e-4), p);
  p = madd(square, f32x4.splat(-0.5), p);
  return madd(e, f32x4.splat(0.693359375), f32x4.add(f, p));
}

/** Sum of the lanes, in one order. */
// @ts-ignore: decorator
@inline export function sumLanes(v: v128): f32 {
  return f32x4.extract_lane(v, 0) + f32x4.extract_lane(v, 1) + (f32x4.extract_lane(v, 2) + f32x4.extract_lane(v, 3));
}

/** Largest lane; NaN if any is. */
// @ts-ignore: decorator
@inline export function maxLanes(v: v128): f32 {
  const a = max<f32>(f32x4.extract_lane(v, 0), f32x4.extract_lane(v, 1));
  const b = max<f32>(f32x4.extract_lane(v, 2), f32x4.extract_lane(v, 3));
  return max<f32>(a, b);
}

/** The first `count` (1 to 3) floats at `at`, zeros after them. Nothing behind them is read. */
// @ts-ignore: decorator
@inline export function loadPart(at: usize, count: u32): v128 {
  let v = v128.load_zero<f32>(at);
  if (count > 1) v = f32x4.replace_lane(v, 1, load<f32>(at, 4));
  if (count > 2) v = f32x4.replace_lane(v, 2, load<f32>(at, 8));
  return v;
}

// @ts-ignore: decorator
@inline export function storePart(at: usize, v: v128, count: u32): void {
  store<f32>(at, f32x4.extract_lane(v, 0));
  if (count > 1) store<f32>(at, f32x4.extract_lane(v, 1), 4);
  if (count > 2) store<f32>(at, f32x4.extract_lane(v, 2), 8);
}

/** Where the share of a thread begins in `items` pieces of work. */
// @ts-ignore: decorator
@inline export function share(items: u32, thread: u32, threads: u32): u32 {
  return <u32>((<u64>items * thread) / threads);
}
