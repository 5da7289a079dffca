// Rows of GGUF's blocks of 32 columns (weights/gguf-blocks.ts) straight into packed blocks: Q4_1, whose blocks begin with a scale and a
// bias, Q4_0, IQ4_NL and Q8_0, which begin with a scale, and MXFP4, which begin with an exponent. The results are those of packCodes.
// `at`: 8 rows of `row` bytes. Returns where the packed block ends.
import { byteNibbles, signedBytes } from './planes';
import { pairFactors, pairShifts, putPairs, putScales, scaleFactors, scaleShifts } from './row-scales';

export function q41Rows(row: u32, relaxed: bool, at: usize, to: usize, factors: usize): usize {
  pairFactors(at, row, 20, factors);
  const first = pairShifts(factors);
  const last = pairShifts(factors + 16);
  for (const end = at + row; at < end; at += 20, to += 160) {
    byteNibbles(at + 4, row, relaxed, to, to + 64);
    putPairs(at, row, first, last, factors, to + 128);
  }
  return to;
}

export function q40Rows(row: u32, relaxed: bool, at: usize, to: usize, factors: usize): usize {
  scaleFactors(at, row, 18, factors);
  const shifts = scaleShifts(factors);
  for (const end = at + row; at < end; at += 18, to += 144) {
    byteNibbles(at + 2, row, relaxed, to, to + 64);
    putScales(at, row, shifts, factors, to + 128);
  }
  return to;
}

export function q80Rows(row: u32, relaxed: bool, at: usize, to: usize, factors: usize): usize {
  scaleFactors(at, row, 34, factors);
  const shifts = scaleShifts(factors);
  for (const end = at + row; at < end; at += 34, to += 272) {
    signedBytes(at + 2, row, relaxed, to);
    signedBytes(at + 18, row, relaxed, to + 64);
    putScales(at, row, shifts, factors, to + 256);
  }
  return to;
}

/** An exponent of 255 is no number. */
export function mxfp4Rows(row: u32, relaxed: bool, at: usize, to: usize, factors: usize): usize {
  let odd = i8x16.splat(0);
  for (const end = at + row; at < end; at += 17, to += 136) {
    byteNibbles(at + 1, row, relaxed, to, to + 64);
    const exponents = eightBytes(at, row);
    odd = v128.or(odd, i8x16.eq(exponents, i8x16.splat(-1)));
    v128.store64_lane(to + 128, exponents, 0);
  }
  const ones = f32x4.splat(1);
  const words = i16x8.extend_low_i8x16_s(odd);
  v128.store(factors, v128.or(ones, i32x4.extend_low_i16x8_s(words)));
  v128.store(factors, v128.or(ones, i32x4.extend_high_i16x8_s(words)), 16);
  return to;
}

@inline
function eightBytes(at: usize, row: u32): v128 {
  const below = at + (row << 2);
  let bytes = v128.load_lane<u8>(at, i8x16.splat(0), 0);
  bytes = v128.load_lane<u8>(at + row, bytes, 1);
  bytes = v128.load_lane<u8>(at + (row << 1), bytes, 2);
  bytes = v128.load_lane<u8>(at + row * 3, bytes, 3);
  bytes = v128.load_lane<u8>(below, bytes, 4);
  bytes = v128.load_lane<u8>(below + row, bytes, 5);
  bytes = v128.load_lane<u8>(below + (row << 1), bytes, 6);
  return v128.load_lane<u8>(below + row * 3, bytes, 7);
}
