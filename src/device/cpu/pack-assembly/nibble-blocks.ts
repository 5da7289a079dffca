// Rows of GGUF's blocks of 32 nibbles (weights/gguf-blocks.ts) straight into packed blocks: Q4_1, whose blocks begin with a scale and a
// bias, and Q4_0 and IQ4_NL, which begin with a scale. Byte j of 16 has columns j and j + 16. The results are those of packCodes.
import { shiftedHalf } from './metas';
import { putSteps } from './planes';

/** @param pairs blocks have biases */
export function packNibbles(
  blocks: u32, cols: u32, pairs: bool, relaxed: bool, at: usize, to: usize, factors: usize,
): void {
  const row = (cols >> 5) * (pairs ? 20 : 18);
  for (let b: u32 = 0; b < blocks; b++, at += row << 3, factors += 32)
    to = pairs ? rowsWithPairs(row, relaxed, at, to, factors) : rowsWithScales(row, relaxed, at, to, factors);
}

/** Behind each group words of `scale << 16 | bias`. */
function rowsWithPairs(row: u32, relaxed: bool, at: usize, to: usize, factors: usize): usize {
  const four: usize = row << 2;
  const end = at + row;
  let most0 = i16x8.splat(0);
  let most1 = i16x8.splat(0);
  for (let p = at; p < end; p += 20) {
    most0 = i16x8.max_s(most0, magnitudes(fourPairs(p, row)));
    most1 = i16x8.max_s(most1, magnitudes(fourPairs(p + four, row)));
  }
  const low = i32x4.splat(0xffff);
  const e0 = i32x4.shr_u(v128.and(i16x8.max_s(most0, i32x4.shr_u(most0, 16)), low), 10);
  const e1 = i32x4.shr_u(v128.and(i16x8.max_s(most1, i32x4.shr_u(most1, 16)), low), 10);
  v128.store(factors, factorsOf(e0));
  v128.store(factors, factorsOf(e1), 16);
  const s0 = i32x4.mul(shiftsOf(e0), i32x4.splat(0x04000400));
  const s1 = i32x4.mul(shiftsOf(e1), i32x4.splat(0x04000400));
  for (let p = at; p < end; p += 20, to += 32) {
    to = codes(p + 4, row, relaxed, to);
    if (putShifted(fourPairs(p, row), s0, to))
      for (let i: usize = 0; i < 16; i += 2) putSlowly(to + i, factors + ((i >> 2) << 2));
    if (putShifted(fourPairs(p + four, row), s1, to + 16))
      for (let i: usize = 16; i < 32; i += 2) putSlowly(to + i, factors + ((i >> 2) << 2));
  }
  return to;
}

/** Behind each group words r of `row r << 16 | row r + 4`. */
function rowsWithScales(row: u32, relaxed: bool, at: usize, to: usize, factors: usize): usize {
  const end = at + row;
  let most = i16x8.splat(0);
  for (let p = at; p < end; p += 18) most = i16x8.max_s(most, magnitudes(eightScales(p, row)));
  const e0 = i32x4.shr_u(most, 26);
  const e1 = i32x4.shr_u(v128.and(most, i32x4.splat(0xffff)), 10);
  v128.store(factors, factorsOf(e0));
  v128.store(factors, factorsOf(e1), 16);
  const shifts = v128.or(i32x4.shl(shiftsOf(e0), 26), v128.and(i32x4.shl(shiftsOf(e1), 10), i32x4.splat(0xffff)));
  for (let p = at; p < end; p += 18, to += 16) {
    to = codes(p + 2, row, relaxed, to);
    if (putShifted(eightScales(p, row), shifts, to))
      for (let i: usize = 0; i < 16; i += 4) {
        putSlowly(to + i, factors + i + 16);
        putSlowly(to + i + 2, factors + i);
      }
  }
  return to;
}

@inline
function magnitudes(numbers: v128): v128 {
  return v128.and(numbers, i16x8.splat(0x7fff));
}

/** `scale << 16 | bias` of four rows. */
@inline
function fourPairs(at: usize, row: u32): v128 {
  let words = v128.load32_zero(at);
  words = v128.load_lane<u32>(at + row, words, 1);
  words = v128.load_lane<u32>(at + (row << 1), words, 2);
  words = v128.load_lane<u32>(at + row * 3, words, 3);
  return v128.shuffle<u16>(words, words, 1, 0, 3, 2, 5, 4, 7, 6);
}

@inline
function eightScales(at: usize, row: u32): v128 {
  const below = at + (row << 2);
  let words = v128.load_lane<u16>(below, i16x8.splat(0), 0);
  words = v128.load_lane<u16>(at, words, 1);
  words = v128.load_lane<u16>(below + row, words, 2);
  words = v128.load_lane<u16>(at + row, words, 3);
  words = v128.load_lane<u16>(below + (row << 1), words, 4);
  words = v128.load_lane<u16>(at + (row << 1), words, 5);
  words = v128.load_lane<u16>(below + row * 3, words, 6);
  return v128.load_lane<u16>(at + row * 3, words, 7);
}

/** By how many powers of two rows are shifted whose largest numbers have these exponents, as scaleHalves does (metas.ts). */
@inline
function shiftsOf(exponents: v128): v128 {
  return i32x4.min_s(i32x4.splat(10), i32x4.sub(i32x4.splat(30), exponents));
}

/** What undoes it: NaN where an exponent is that of no number. */
@inline
function factorsOf(exponents: v128): v128 {
  const factors = i32x4.shl(i32x4.sub(i32x4.splat(127), shiftsOf(exponents)), 23);
  return v128.bitselect(i32x4.splat(0x7fc00000), factors, i32x4.eq(exponents, i32x4.splat(31)));
}

/** Numbers shifted; as they are, and true, where one is subnormal. */
@inline
function putShifted(numbers: v128, shifts: v128, to: usize): bool {
  const magnitude = magnitudes(numbers);
  const normal = i16x8.gt_s(magnitude, i16x8.splat(0x3ff));
  const slow = v128.any_true(v128.andnot(magnitude, normal));
  v128.store(to, slow ? numbers : i16x8.add(numbers, v128.and(normal, shifts)));
  return slow;
}

function putSlowly(at: usize, factor: usize): void {
  store<u16>(at, shiftedHalf(load<u16>(at), 127 - <i32>(load<u32>(factor) >> 23)));
}

/** 32 columns of nibbles. */
@inline
function codes(at: usize, row: u32, relaxed: bool, to: usize): usize {
  const low = i8x16.splat(15);
  const high = i8x16.splat(-16);
  const below = at + (row << 2);
  const a0 = v128.load(at);
  const b0 = v128.load(below);
  const a1 = v128.load(at + row);
  const b1 = v128.load(below + row);
  const a2 = v128.load(at + (row << 1));
  const b2 = v128.load(below + (row << 1));
  const a3 = v128.load(at + row * 3);
  const b3 = v128.load(below + row * 3);
  to = putSteps(
    v128.or(v128.and(a0, low), v128.and(i16x8.shl(b0, 4), high)),
    v128.or(v128.and(a1, low), v128.and(i16x8.shl(b1, 4), high)),
    v128.or(v128.and(a2, low), v128.and(i16x8.shl(b2, 4), high)),
    v128.or(v128.and(a3, low), v128.and(i16x8.shl(b3, 4), high)),
    4, relaxed, to,
  );
  return putSteps(
    v128.or(v128.and(i16x8.shr_u(a0, 4), low), v128.and(b0, high)),
    v128.or(v128.and(i16x8.shr_u(a1, 4), low), v128.and(b1, high)),
    v128.or(v128.and(i16x8.shr_u(a2, 4), low), v128.and(b2, high)),
    v128.or(v128.and(i16x8.shr_u(a3, 4), low), v128.and(b3, high)),
    4, relaxed, to,
  );
}
