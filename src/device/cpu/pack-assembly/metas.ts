// What lies between the codes of a packed block (../pack-layout.ts), of 8 rows that are `row` bytes apart.

/** f16 numbers are multiplied with at most so large a power of two: then none is subnormal. */
const MAX_SHIFT: i32 = 10;

/** Words of `scale << 16 | bias`. */
export function pairs(scales: usize, scaleRow: u32, biases: usize, biasRow: u32, to: usize): usize {
  for (let r: u32 = 0; r < 8; r++, to += 4) {
    store<u16>(to, load<u16>(biases + r * biasRow));
    store<u16>(to, load<u16>(scales + r * scaleRow), 2);
  }
  return to;
}

/** 8 scales and 8 biases of 32 bits. */
export function wide(scales: usize, scaleRow: u32, biases: usize, biasRow: u32, to: usize): usize {
  for (let r: u32 = 0; r < 8; r++, to += 4) {
    store<u32>(to, load<u32>(scales + r * scaleRow));
    store<u32>(to, load<u32>(biases + r * biasRow), 32);
  }
  return to + 32;
}

/** Words r of `row r << 16 | row r + 4`. */
export function rowHalves(from: usize, row: u32, to: usize): usize {
  for (let r: u32 = 0; r < 4; r++, to += 4) {
    store<u16>(to, load<u16>(from + (r + 4) * row));
    store<u16>(to, load<u16>(from + r * row), 2);
  }
  return to;
}

export function oneByte(from: usize, row: u32, to: usize): usize {
  for (let r: u32 = 0; r < 8; r++) store<u8>(to + r, load<u8>(from + r * row));
  return to + 8;
}

export function twoBytes(from: usize, row: u32, to: usize): usize {
  for (let r: u32 = 0; r < 8; r++) {
    store<u8>(to + r, load<u8>(from + r * row));
    store<u8>(to + r, load<u8>(from + r * row, 1), 8);
  }
  return to + 16;
}

/**
 * Multiplies the f16 numbers of a row, in one list or two, with the largest power of two up to 2^10 that they allow. All f16 numbers are
 * multiples of 2^-24, so that times 2^10 all are normal; a row whose largest number is 64 or more keeps its subnormals.
 * Returns what undoes it, NaN where one is an infinity or NaN.
 */
export function scaleHalves(one: usize, oneBytes: u32, other: usize, otherBytes: u32): f32 {
  const largest = max<u32>(largestHalf(one, oneBytes), largestHalf(other, otherBytes));
  const exponent: i32 = <i32>(largest >> 10);
  if (exponent == 31) return f32.NaN;
  const shift = min<i32>(MAX_SHIFT, 30 - exponent);
  if (shift > 0) {
    shiftHalves(one, oneBytes, shift);
    shiftHalves(other, otherBytes, shift);
  }
  return reinterpret<f32>((127 - shift) << 23);
}

/** The factor of a row of f32 or bf16 numbers: 1, or NaN where one is an infinity or NaN. */
export function finiteFactor(at: usize, row: u32, bytes: u32): f32 {
  if (bytes == 2) return largestHalf(at, row) >= 0x7f80 ? f32.NaN : 1;
  const mask = i32x4.splat(0x7fffffff);
  let most = i32x4.splat(0);
  // Columns come in fours.
  for (const end = at + row; at < end; at += 16) most = i32x4.max_s(most, v128.and(v128.load(at), mask));
  return v128.any_true(i32x4.ge_s(most, i32x4.splat(0x7f800000))) ? f32.NaN : 1;
}

/** Bits of the largest magnitude. */
function largestHalf(at: usize, bytes: u32): u32 {
  const end = at + bytes;
  const mask = i16x8.splat(0x7fff);
  let most = i16x8.splat(0);
  for (; at + 16 <= end; at += 16) most = i16x8.max_s(most, v128.and(v128.load(at), mask));
  most = i16x8.max_s(most, v128.shuffle<u16>(most, most, 4, 5, 6, 7, 4, 5, 6, 7));
  most = i16x8.max_s(most, v128.shuffle<u16>(most, most, 2, 3, 2, 3, 2, 3, 2, 3));
  let largest = <u32>max<i32>(i16x8.extract_lane_s(most, 0), i16x8.extract_lane_s(most, 1));
  for (; at < end; at += 2) largest = max<u32>(largest, load<u16>(at) & 0x7fff);
  return largest;
}

function shiftHalves(at: usize, bytes: u32, shift: i32): void {
  const end = at + bytes;
  const magnitudes = i16x8.splat(0x7fff);
  const least = i16x8.splat(0x3ff);
  const more = i16x8.splat(<i16>(shift << 10));
  for (; at + 16 <= end; at += 16) {
    const numbers = v128.load(at);
    const magnitude = v128.and(numbers, magnitudes);
    const normal = i16x8.gt_s(magnitude, least);
    // Zeros stay; a subnormal takes the slow way.
    if (v128.any_true(v128.andnot(magnitude, normal))) {
      for (let i: usize = at; i < at + 16; i += 2) store<u16>(i, shiftedHalf(load<u16>(i), shift));
    } else v128.store(at, i16x8.add(numbers, v128.and(normal, more)));
  }
  for (; at < end; at += 2) store<u16>(at, shiftedHalf(load<u16>(at), shift));
}

/** An f16 number times 2^shift, exact where the result is none too large. */
export function shiftedHalf(half: u32, shift: i32): u32 {
  const sign = half & 0x8000;
  const magnitude = half & 0x7fff;
  let exponent: i32 = <i32>(magnitude >> 10);
  let mantissa = magnitude & 0x3ff;
  let left = shift;
  if (exponent == 0) {
    // A subnormal doubles by shifting until its leading bit becomes the implicit one.
    while (left > 0 && mantissa < 0x400) {
      mantissa <<= 1;
      left--;
    }
    if (mantissa < 0x400) return sign | mantissa;
    exponent = 1;
    mantissa &= 0x3ff;
  }
  return sign | (<u32>min<i32>(31, exponent + left) << 10) | mantissa;
}
