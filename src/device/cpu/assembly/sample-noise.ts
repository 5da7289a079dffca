import { log4 } from './math';
import { seedX, seedY, seedZ } from './sample-row';

/** Random numbers of the row at hand (random.ts). */

/** No noise is larger: -ln(-ln(1 - 2^-24)) is 16.64. */
export const MOST_NOISE: f32 = 16.7;

/** Uniforms in (0, 1) of four tokens. */
// @ts-ignore: decorator
@inline export function uniforms(ids: v128): v128 {
  return f32x4.mul(
    f32x4.add(f32x4.convert_i32x4_s(i32x4.shr_u(randomWords(ids), 9)), f32x4.splat(0.5)),
    f32x4.splat(1.1920928955078125e-7),
  );
}

/** Gumbel noise of four tokens: -ln(-ln u). */
export function noise(ids: v128): v128 {
  return f32x4.neg(log4(f32x4.neg(log4(uniforms(ids)))));
}

/** pcg4d of the row's words and the token (random.ts). */
// @ts-ignore: decorator
@inline export function randomWords(ids: v128): v128 {
  let x = i32x4.splat(seedX);
  let y = i32x4.splat(seedY);
  let z = i32x4.splat(seedZ);
  let w = i32x4.add(i32x4.mul(ids, i32x4.splat(1664525)), i32x4.splat(1013904223));
  x = i32x4.add(x, i32x4.mul(y, w));
  y = i32x4.add(y, i32x4.mul(z, x));
  z = i32x4.add(z, i32x4.mul(x, y));
  w = i32x4.add(w, i32x4.mul(y, z));
  x = v128.xor(x, i32x4.shr_u(x, 16));
  y = v128.xor(y, i32x4.shr_u(y, 16));
  z = v128.xor(z, i32x4.shr_u(z, 16));
  w = v128.xor(w, i32x4.shr_u(w, 16));
  x = i32x4.add(x, i32x4.mul(y, w));
  y = i32x4.add(y, i32x4.mul(z, x));
  z = i32x4.add(z, i32x4.mul(x, y));
  return i32x4.add(w, i32x4.mul(y, z));
}
