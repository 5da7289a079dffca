// f16 numbers at one place of 8 rows that are `row` bytes apart, a vector of rows at a time. They are made larger by a power of two a row,
// as scaleHalves does (metas.ts); what undoes it stands in `factors`.
import { shiftedHalf } from './metas';

/** Finds the factors of 8 rows that hold a number of each `step` bytes. */
export function scaleFactors(at: usize, row: u32, step: u32, factors: usize): void {
  let most = i16x8.splat(0);
  for (const end = at + row; at < end; at += step) most = i16x8.max_s(most, magnitudes(eightScales(at, row)));
  v128.store(factors, factorsOf(i32x4.shr_u(most, 26)));
  v128.store(factors, factorsOf(i32x4.shr_u(v128.and(most, i32x4.splat(0xffff)), 10)), 16);
}

/** The same of two numbers, one behind the other. */
export function pairFactors(at: usize, row: u32, step: u32, factors: usize): void {
  const four: usize = row << 2;
  let most0 = i16x8.splat(0);
  let most1 = i16x8.splat(0);
  for (const end = at + row; at < end; at += step) {
    most0 = i16x8.max_s(most0, magnitudes(fourPairs(at, row)));
    most1 = i16x8.max_s(most1, magnitudes(fourPairs(at + four, row)));
  }
  const low = i32x4.splat(0xffff);
  v128.store(factors, factorsOf(i32x4.shr_u(v128.and(i16x8.max_s(most0, i32x4.shr_u(most0, 16)), low), 10)));
  v128.store(factors, factorsOf(i32x4.shr_u(v128.and(i16x8.max_s(most1, i32x4.shr_u(most1, 16)), low), 10)), 16);
}

/** What is added to the numbers of rows, by their factors. For `putScales`. */
@inline
export function scaleShifts(factors: usize): v128 {
  const low = i32x4.splat(0xffff);
  return v128.or(i32x4.shl(shiftsAt(factors), 26), v128.and(i32x4.shl(shiftsAt(factors + 16), 10), low));
}

/** The same of four rows, for `putPairs`. */
@inline
export function pairShifts(factors: usize): v128 {
  return i32x4.mul(shiftsAt(factors), i32x4.splat(0x04000400));
}

/** Words r of `row r << 16 | row r + 4`. */
@inline
export function putScales(at: usize, row: u32, shifts: v128, factors: usize, to: usize): void {
  if (putShifted(eightScales(at, row), shifts, to))
    for (let i: usize = 0; i < 16; i += 4) {
      putSlowly(to + i, factors + i + 16);
      putSlowly(to + i + 2, factors + i);
    }
}

/** Words of `scale << 16 | bias`. */
@inline
export function putPairs(at: usize, row: u32, first: v128, last: v128, factors: usize, to: usize): void {
  if (putShifted(fourPairs(at, row), first, to))
    for (let i: usize = 0; i < 16; i += 2) putSlowly(to + i, factors + ((i >> 2) << 2));
  if (putShifted(fourPairs(at + (row << 2), row), last, to + 16))
    for (let i: usize = 16; i < 32; i += 2) putSlowly(to + i, factors + ((i >> 2) << 2));
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

/** By how many powers of two four rows were shifted. */
@inline
function shiftsAt(factors: usize): v128 {
  return i32x4.sub(i32x4.splat(127), i32x4.shr_u(v128.load(factors), 23));
}
