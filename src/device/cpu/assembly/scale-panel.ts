/**
 * Scales as integers. The end of a group widens sums of 16 bits by multiplying them with ones: multiplied with the scales instead, they are
 * scaled as well, which saves one operation in five there. Scales of f16 or bf16 are integers of 14 bits times one power of two
 * for all groups of a row, if they are not too far apart; a product with a sum (17 bits) is then exact, and rounded once, as a product of
 * floats would be. So the bits of a result stay the same.
 */

// @ts-ignore: decorator
@inline const EXPONENT: u32 = 0x7f800000;
/** The largest scale of a row gets 14 bits. */
// @ts-ignore: decorator
@inline const BITS: u32 = 13 << 23;
/** Largest scales from 2^-30 to 2^30: so that nothing on the way is too small or too large for a float. */
// @ts-ignore: decorator
@inline const LEAST: f32 = 9.313225746154785e-10;
// @ts-ignore: decorator
@inline const MOST: f32 = 1073741824;

// Loaded, not made: V8 makes a vector constant anew at every use.
const CONSTANTS = memory.data<u32>([
  0x4b400000, 0x4b400000, 0x4b400000, 0x4b400000,
  0xffff, 0xffff, 0xffff, 0xffff,
  // 2^32
  0x4f800000, 0x4f800000, 0x4f800000, 0x4f800000,
  0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff,
  0x7fffffff, 0x7fffffff, 0x7fffffff, 0x7fffffff,
], 16);

/**
 * Turns the 8 scales and 8 biases of every group of a panel (generate-panel.mjs) to pairs of equal i16 and to biases over `by`,
 * the 8 powers of two, which are written to `by`. False if that is not exact: the panel is then poisoned.
 */
export function scalePanel(panel: usize, cols: u32, group: u32, by: usize): bool {
  return scaleHalf(panel, cols, group, by) && scaleHalf(panel + 16, cols, group, by + 16);
}

/** Four rows of the eight. */
function scaleHalf(panel: usize, cols: u32, group: u32, by: usize): bool {
  const codes: usize = group * 8;
  const step = codes + 64;
  const end = panel + cols / group * step;
  // The bits of positive floats are ordered as integers, what is not finite above all numbers.
  const magnitude = v128.load(CONSTANTS, 64);
  let most = i32x4.splat(0);
  for (let at = panel + codes; at < end; at += step) most = i32x4.max_s(most, v128.and(v128.load(at), magnitude));
  // A row of zeros counts as one of ones.
  most = v128.bitselect(f32x4.splat(1), most, f32x4.eq(most, f32x4.splat(0)));
  const usable = v128.and(f32x4.ge(most, f32x4.splat(LEAST)), f32x4.le(most, f32x4.splat(MOST)));
  if (!i32x4.all_true(usable)) return false;
  const exponents = v128.and(most, i32x4.splat(EXPONENT));
  const unit = i32x4.sub(exponents, i32x4.splat(BITS));
  const inverse = i32x4.sub(i32x4.splat((254 << 23) + BITS), exponents);
  v128.store(by, unit);
  // Adding 1.5 · 2^23 leaves a number as an integer in the low bits.
  const magic = v128.load(CONSTANTS);
  const low = v128.load(CONSTANTS, 16);
  const far = v128.load(CONSTANTS, 32);
  let exact = v128.load(CONSTANTS, 48);
  for (let at = panel + codes; at < end; at += step) {
    const scale = v128.load(at);
    const whole = f32x4.add(f32x4.mul(scale, inverse), magic);
    exact = v128.and(exact, f32x4.eq(f32x4.mul(f32x4.sub(whole, magic), unit), scale));
    v128.store(at, v128.or(i32x4.shl(whole, 16), v128.and(whole, low)));
    const bias = v128.load(at, 32);
    const over = f32x4.mul(bias, inverse);
    exact = v128.and(exact, v128.and(f32x4.eq(f32x4.mul(over, unit), bias), f32x4.lt(v128.and(over, magnitude), far)));
    v128.store(at, over, 32);
  }
  return i32x4.all_true(exact);
}
