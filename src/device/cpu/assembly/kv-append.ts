import {
  BOOK_CENTROIDS, BOOK_MIDPOINTS, KIND_AFFINE, KIND_F16, KIND_TURBO, SIDE_BITS, SIDE_CODEBOOK, SIDE_CODES, SIDE_GROUP,
  SIDE_HEAD_BYTES, SIDE_KIND, SIDE_META, SIDE_PLAIN, SIDE_ROTATION, SIDE_VECTOR_BYTES,
} from '../kv-layout';
import { halfValue, storeKey, storeValue, toHalves } from './kv';
import { packKey, packValue } from './kv-codes';
import { maxLanes, sumLanes } from './math';
import { rotate } from './rotation';

/**
 * Stores `dim` floats at `x` as one K or V vector, as ../../kv.ts says. `side`: see ../kv-layout.ts. `scratch`: 3 · dim
 * floats. What is stored depends on the vector alone.
 */
export function storeVector(
  side: usize, isKey: bool, x: usize, block: u32, head: u32, kvHeads: u32, token: u32, dim: u32, blockTokens: u32,
  scratch: usize,
): void {
  const kind = load<i32>(side, SIDE_KIND);
  const at = load<u32>(side, SIDE_CODES) + (block * kvHeads + head) * load<u32>(side, SIDE_HEAD_BYTES);
  if (kind < KIND_AFFINE) {
    if (isKey) storeKey(x, at, token, dim, kind == KIND_F16);
    else storeValue(x, at, token, dim, blockTokens, kind == KIND_F16);
    return;
  }
  const bits = load<u32>(side, SIDE_BITS);
  const codes = scratch;
  const clean = scratch + dim * 4;
  for (let d: u32 = 0; d < dim; d += 4) v128.store(clean + d * 4, finite(v128.load(x + d * 4)));
  const meta = load<u32>(side, SIDE_META);
  if (kind == KIND_TURBO) {
    const norm = codeTurbo(side, bits, isKey, clean, dim, codes, clean + dim * 4);
    const pairs = (kvHeads + 1) >> 1;
    store<u16>(meta + ((block * pairs + (head >> 1)) * blockTokens + token) * 4 + (head & 1) * 2, norm);
  } else {
    const group = load<u32>(side, SIDE_GROUP);
    const groups = (dim + group - 1) / group;
    let to: usize = meta + ((block * kvHeads + head) * groups * blockTokens + token) * 4;
    for (let d: u32 = 0; d < dim; d += group, to += blockTokens * 4) {
      store<u32>(to, codeAffine(bits, clean + d * 4, min<u32>(group, dim - d), codes + d));
    }
  }
  if (isKey) packKey(bits, codes, at, token, dim, load<u32>(side, SIDE_VECTOR_BYTES));
  else packValue(bits, codes, at, token, dim, blockTokens);
}

/** NaN to 0, the rest to what f16 can hold. */
// @ts-ignore: decorator
@inline function finite(x: v128): v128 {
  const number = v128.and(x, f32x4.eq(x, x));
  return f32x4.max(f32x4.min(number, f32x4.splat(65504)), f32x4.splat(-65504));
}

/** Codes of a group, a byte each; gives scale and bias. */
function codeAffine(bits: u32, x: usize, count: u32, codes: usize): u32 {
  let low = v128.load(x);
  let high = low;
  for (let i: u32 = 4; i < count; i += 4) {
    const v = v128.load(x + i * 4);
    low = f32x4.min(low, v);
    high = f32x4.max(high, v);
  }
  const least = -maxLanes(f32x4.neg(low));
  const most: f32 = <f32>((1 << bits) - 1);
  const halves = toHalves(f32x4(least, (maxLanes(high) - least) / most, 0, 0));
  const biasBits = i32x4.extract_lane(halves, 0);
  const scaleBits = i32x4.extract_lane(halves, 1);
  const bias = f32x4.splat(halfValue(biasBits));
  const scale = halfValue(scaleBits);
  if (scale == 0) {
    memory.fill(codes, 0, count);
  } else {
    const by = f32x4.splat(scale);
    for (let i: u32 = 0; i < count; i += 4) {
      const steps = f32x4.nearest(f32x4.div(f32x4.sub(v128.load(x + i * 4), bias), by));
      const code = f32x4.max(f32x4.min(steps, f32x4.splat(most)), f32x4.splat(0));
      storeBytes(codes + i, i32x4.trunc_sat_f32x4_s(code));
    }
  }
  return scaleBits | biasBits << 16;
}

/** The low bytes of four lanes. */
// @ts-ignore: decorator
@inline function storeBytes(at: usize, v: v128): void {
  const words = i16x8.narrow_i32x4_u(v, v);
  v128.store32_lane(at, i8x16.narrow_i16x8_u(words, words), 0);
}

/** Codes of the rotated unit vector, a byte each; gives the bits of the norm that is stored. Overwrites `x`. */
function codeTurbo(side: usize, bits: u32, isKey: bool, x: usize, dim: u32, codes: usize, spare: usize): u16 {
  const book: usize = load<u32>(side, SIDE_CODEBOOK);
  const midpoints = book + BOOK_MIDPOINTS;
  let squares = f32x4.splat(0);
  for (let d: u32 = 0; d < dim; d += 4) {
    const v = v128.load(x + d * 4);
    squares = f32x4.add(squares, f32x4.mul(v, v));
  }
  const length = sqrt<f32>(sumLanes(squares));
  if (length > 0) {
    const by = f32x4.splat(length);
    for (let d: u32 = 0; d < dim; d += 4) v128.store(x + d * 4, f32x4.div(v128.load(x + d * 4), by));
  }
  rotate(load<u32>(side, SIDE_ROTATION), x, spare, dim, false);
  const count: u32 = (1 << bits) - 1;
  for (let d: u32 = 0; d < dim; d += 4) {
    const v = v128.load(x + d * 4);
    let code = i32x4.splat(0);
    if (bits < 8) {
      for (let i: u32 = 0; i < count; i++) {
        code = i32x4.sub(code, f32x4.lt(v128.load_splat<f32>(midpoints + i * 4), v));
      }
    } else {
      // The number of midpoints below, bit by bit.
      for (let step: u32 = 128; step != 0; step >>= 1) {
        const last = i32x4.add(code, i32x4.splat(step - 1));
        const m = f32x4(
          load<f32>(midpoints + i32x4.extract_lane(last, 0) * 4), load<f32>(midpoints + i32x4.extract_lane(last, 1) * 4),
          load<f32>(midpoints + i32x4.extract_lane(last, 2) * 4), load<f32>(midpoints + i32x4.extract_lane(last, 3) * 4),
        );
        code = i32x4.add(code, v128.and(f32x4.lt(m, v), i32x4.splat(step)));
      }
    }
    storeBytes(codes + d, code);
  }
  let norm = length;
  if (isKey && length > 0 && load<u32>(side, SIDE_PLAIN) == 0) {
    let likeness = f32x4.splat(0);
    for (let d: u32 = 0; d < dim; d += 4) {
      const c = f32x4(
        centroid(book, codes + d), centroid(book, codes + d + 1), centroid(book, codes + d + 2),
        centroid(book, codes + d + 3),
      );
      likeness = f32x4.add(likeness, f32x4.mul(v128.load(x + d * 4), c));
    }
    norm = length / sumLanes(likeness);
  }
  return <u16>i32x4.extract_lane(toHalves(f32x4.splat(norm)), 0);
}

// @ts-ignore: decorator
@inline function centroid(book: usize, code: usize): f32 {
  return load<f32>(book + BOOK_CENTROIDS + <usize>load<u8>(code) * 4);
}
