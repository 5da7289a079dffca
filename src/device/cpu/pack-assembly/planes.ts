// Codes of 8 rows into planes of vectors (../pack-layout.ts), a chunk of 32 columns at a time.

/** A vector in the byte order of the build without relaxed SIMD: columns 0 and 1 of rows 0…3, then columns 2 and 3. */
@inline
function put(to: usize, v: v128, relaxed: bool): void {
  v128.store(to, relaxed ? v : v128.shuffle<u16>(v, v, 0, 2, 4, 6, 1, 3, 5, 7));
}

/** Four steps of rows 0…3 (words of x0…x3), as a vector a step; a plane of `width` bits takes 4 / width steps a vector. */
@inline
export function putSteps(x0: v128, x1: v128, x2: v128, x3: v128, width: i32, relaxed: bool, to: usize): usize {
  const a = v128.shuffle<u32>(x0, x1, 0, 4, 1, 5);
  const b = v128.shuffle<u32>(x2, x3, 0, 4, 1, 5);
  const c = v128.shuffle<u32>(x0, x1, 2, 6, 3, 7);
  const d = v128.shuffle<u32>(x2, x3, 2, 6, 3, 7);
  const v0 = v128.shuffle<u64>(a, b, 0, 2);
  const v1 = v128.shuffle<u64>(a, b, 1, 3);
  const v2 = v128.shuffle<u64>(c, d, 0, 2);
  const v3 = v128.shuffle<u64>(c, d, 1, 3);
  if (width == 4) {
    put(to, v0, relaxed);
    put(to + 16, v1, relaxed);
    put(to + 32, v2, relaxed);
    put(to + 48, v3, relaxed);
    return to + 64;
  }
  if (width == 2) {
    put(to, v128.or(v0, i32x4.shl(v1, 4)), relaxed);
    put(to + 16, v128.or(v2, i32x4.shl(v3, 4)), relaxed);
    return to + 32;
  }
  const low = v128.or(v0, i32x4.shl(v1, 2));
  put(to, v128.or(low, v128.or(i32x4.shl(v2, 4), i32x4.shl(v3, 6))), relaxed);
  return to + 16;
}

/** `width` bits of the codes of a row, and above them those of the row four below. */
@inline
function both(at: usize, stride: u32, position: i32, width: i32): v128 {
  const mask = i8x16.splat(<i8>(<i32>(1 << width) - 1));
  const upper = v128.and(i16x8.shr_u(v128.load(at), position), mask);
  const lower = v128.and(i16x8.shr_u(v128.load(at + (stride << 2)), position), mask);
  return v128.or(upper, i16x8.shl(lower, width));
}

@inline
function plane(at: usize, stride: u32, width: i32, position: i32, relaxed: bool, to: usize): usize {
  for (let half: usize = 0; half < 32; half += 16) {
    const x0 = both(at + half, stride, position, width);
    const x1 = both(at + half + stride, stride, position, width);
    const x2 = both(at + half + (stride << 1), stride, position, width);
    const x3 = both(at + half + stride * 3, stride, position, width);
    to = putSteps(x0, x1, x2, x3, width, relaxed, to);
  }
  return to;
}

/** Step s of four of rows 0…3 (words of x0…x3). */
@inline
function stepOf(s: i32, x0: v128, x1: v128, x2: v128, x3: v128): v128 {
  const a = s < 2 ? v128.shuffle<u32>(x0, x1, 0, 4, 1, 5) : v128.shuffle<u32>(x0, x1, 2, 6, 3, 7);
  const b = s < 2 ? v128.shuffle<u32>(x2, x3, 0, 4, 1, 5) : v128.shuffle<u32>(x2, x3, 2, 6, 3, 7);
  return (s & 1) == 0 ? v128.shuffle<u64>(a, b, 0, 2) : v128.shuffle<u64>(a, b, 1, 3);
}

/** Two steps of 6 bits as three vectors: the codes of rows 4…7 of the second are parted among the highest bits of the others. */
@inline
function putSixes(a: v128, b: v128, c: v128, d: v128, relaxed: bool, to: usize): void {
  put(to, v128.or(a, i16x8.shl(v128.and(d, i8x16.splat(0x30)), 2)), relaxed);
  put(to + 16, v128.or(b, i16x8.shl(v128.and(d, i8x16.splat(0x0c)), 4)), relaxed);
  put(to + 32, v128.or(c, i16x8.shl(v128.and(d, i8x16.splat(0x03)), 6)), relaxed);
}

/** Four steps of 5 bits as five vectors: of eight codes five, and above them the parts of the other three. */
@inline
function putFives(
  u0: v128, l0: v128, u1: v128, l1: v128, u2: v128, l2: v128, u3: v128, l3: v128, relaxed: bool, to: usize,
): void {
  const three = i8x16.splat(0x1c);
  const two = i8x16.splat(3);
  put(to, v128.or(u0, i16x8.shl(v128.and(l2, three), 3)), relaxed);
  const b = v128.or(l0, i16x8.shl(v128.and(l2, two), 6));
  put(to + 16, v128.or(b, i16x8.shl(v128.and(l3, i8x16.splat(2)), 4)), relaxed);
  put(to + 32, v128.or(u1, i16x8.shl(v128.and(u3, three), 3)), relaxed);
  const d = v128.or(l1, i16x8.shl(v128.and(u3, two), 6));
  put(to + 48, v128.or(d, i16x8.shl(v128.and(l3, i8x16.splat(1)), 5)), relaxed);
  put(to + 64, v128.or(u2, i16x8.shl(v128.and(l3, three), 3)), relaxed);
}

@inline
function parted(at: usize, stride: u32, bits: u32, relaxed: bool, to: usize): usize {
  for (let half: usize = 0; half < 32; half += 16) {
    const upper = at + half;
    const u0 = v128.load(upper);
    const u1 = v128.load(upper + stride);
    const u2 = v128.load(upper + (stride << 1));
    const u3 = v128.load(upper + stride * 3);
    const lower = upper + (stride << 2);
    const l0 = v128.load(lower);
    const l1 = v128.load(lower + stride);
    const l2 = v128.load(lower + (stride << 1));
    const l3 = v128.load(lower + stride * 3);
    const a0 = stepOf(0, u0, u1, u2, u3);
    const b0 = stepOf(0, l0, l1, l2, l3);
    const a1 = stepOf(1, u0, u1, u2, u3);
    const b1 = stepOf(1, l0, l1, l2, l3);
    const a2 = stepOf(2, u0, u1, u2, u3);
    const b2 = stepOf(2, l0, l1, l2, l3);
    const a3 = stepOf(3, u0, u1, u2, u3);
    const b3 = stepOf(3, l0, l1, l2, l3);
    if (bits == 5) putFives(a0, b0, a1, b1, a2, b2, a3, b3, relaxed, to);
    else {
      putSixes(a0, b0, a1, b1, relaxed, to);
      putSixes(a2, b2, a3, b3, relaxed, to + 48);
    }
    to += bits << 4;
  }
  return to;
}

/** Codes of one byte each, rows `stride` bytes apart. Returns where the planes end. */
export function chunkPlanes(at: usize, stride: u32, bits: u32, relaxed: bool, to: usize): usize {
  if (bits == 8) {
    to = plane(at, stride, 4, 4, relaxed, to);
    return plane(at, stride, 4, 0, relaxed, to);
  }
  if (bits == 5 || bits == 6) return parted(at, stride, bits, relaxed, to);
  to = plane(at, stride, 2, 0, relaxed, to);
  return bits == 3 ? plane(at, stride, 1, 2, relaxed, to) : to;
}

/** Codes of 4 bits as they are stored: 16 bytes a row, even columns in the low nibbles. */
export function chunkNibbles(at: usize, stride: u32, relaxed: bool, to: usize): usize {
  const a0 = v128.load(at);
  const b0 = v128.load(at + (stride << 2));
  const e0 = lowsOf(a0, b0);
  const o0 = highsOf(a0, b0);
  const a1 = v128.load(at + stride);
  const b1 = v128.load(at + stride * 5);
  const e1 = lowsOf(a1, b1);
  const o1 = highsOf(a1, b1);
  const a2 = v128.load(at + (stride << 1));
  const b2 = v128.load(at + stride * 6);
  const e2 = lowsOf(a2, b2);
  const o2 = highsOf(a2, b2);
  const a3 = v128.load(at + stride * 3);
  const b3 = v128.load(at + stride * 7);
  const e3 = lowsOf(a3, b3);
  const o3 = highsOf(a3, b3);
  to = putSteps(lower(e0, o0), lower(e1, o1), lower(e2, o2), lower(e3, o3), 4, relaxed, to);
  return putSteps(upper(e0, o0), upper(e1, o1), upper(e2, o2), upper(e3, o3), 4, relaxed, to);
}

/** Columns 0…15 of even and odd ones. */
@inline
function lower(even: v128, odd: v128): v128 {
  return v128.shuffle<u8>(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

@inline
function upper(even: v128, odd: v128): v128 {
  return v128.shuffle<u8>(even, odd, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

/** 16 bytes of 8 rows `row` bytes apart: what their low nibbles become goes to `low`, of the high ones to `high`, 64 bytes each. */
@inline
export function byteNibbles(at: usize, row: u32, relaxed: bool, low: usize, high: usize): void {
  const below = at + (row << 2);
  const a0 = v128.load(at);
  const b0 = v128.load(below);
  const a1 = v128.load(at + row);
  const b1 = v128.load(below + row);
  const a2 = v128.load(at + (row << 1));
  const b2 = v128.load(below + (row << 1));
  const a3 = v128.load(at + row * 3);
  const b3 = v128.load(below + row * 3);
  putSteps(lowsOf(a0, b0), lowsOf(a1, b1), lowsOf(a2, b2), lowsOf(a3, b3), 4, relaxed, low);
  putSteps(highsOf(a0, b0), highsOf(a1, b1), highsOf(a2, b2), highsOf(a3, b3), 4, relaxed, high);
}

/** 16 signed codes of 8 bits, which count from the middle then: high nibbles, and 128 bytes behind them low ones. */
@inline
export function signedBytes(at: usize, row: u32, relaxed: bool, to: usize): void {
  const middle = i8x16.splat(-128);
  const below = at + (row << 2);
  const a0 = v128.xor(v128.load(at), middle);
  const b0 = v128.xor(v128.load(below), middle);
  const a1 = v128.xor(v128.load(at + row), middle);
  const b1 = v128.xor(v128.load(below + row), middle);
  const a2 = v128.xor(v128.load(at + (row << 1)), middle);
  const b2 = v128.xor(v128.load(below + (row << 1)), middle);
  const a3 = v128.xor(v128.load(at + row * 3), middle);
  const b3 = v128.xor(v128.load(below + row * 3), middle);
  putSteps(highsOf(a0, b0), highsOf(a1, b1), highsOf(a2, b2), highsOf(a3, b3), 4, relaxed, to);
  putSteps(lowsOf(a0, b0), lowsOf(a1, b1), lowsOf(a2, b2), lowsOf(a3, b3), 4, relaxed, to + 128);
}

/** Low nibbles of a row, and above them those of the row four below. */
@inline
function lowsOf(a: v128, b: v128): v128 {
  return v128.or(v128.and(a, i8x16.splat(15)), v128.and(i16x8.shl(b, 4), i8x16.splat(-16)));
}

@inline
function highsOf(a: v128, b: v128): v128 {
  return v128.or(v128.and(i16x8.shr_u(a, 4), i8x16.splat(15)), v128.and(b, i8x16.splat(-16)));
}

/**
 * A bit stream to one byte a code. Eight codes are `bits` bytes: each is looked up with the byte that it begins in and the next, and
 * multiplied to the top of 16 bits. Eight bytes are read for eight codes, some of them beyond the row.
 */
export function widenRow(from: usize, cols: u32, bits: u32, to: usize): void {
  const end = to + cols;
  if (bits == 2) {
    const lanes = i8x16(0, -1, 0, -1, 0, -1, 0, -1, 1, -1, 1, -1, 1, -1, 1, -1);
    const times = i16x8(1 << 14, 1 << 12, 1 << 10, 1 << 8, 1 << 14, 1 << 12, 1 << 10, 1 << 8);
    for (; to < end; from += 4, to += 16) widen(from, 2, lanes, times, to);
  } else if (bits == 3) {
    const lanes = i8x16(0, 1, 0, 1, 0, 1, 1, 2, 1, 2, 1, 2, 2, 3, 2, 3);
    const times = i16x8(1 << 13, 1 << 10, 1 << 7, 1 << 12, 1 << 9, 1 << 6, 1 << 11, 1 << 8);
    for (; to < end; from += 6, to += 16) widen(from, 3, lanes, times, to);
  } else if (bits == 5) {
    const lanes = i8x16(0, 1, 0, 1, 1, 2, 1, 2, 2, 3, 3, 4, 3, 4, 4, 5);
    const times = i16x8(1 << 11, 1 << 6, 1 << 9, 1 << 4, 1 << 7, 1 << 10, 1 << 5, 1 << 8);
    for (; to < end; from += 10, to += 16) widen(from, 5, lanes, times, to);
  } else {
    const lanes = i8x16(0, 1, 0, 1, 1, 2, 2, 3, 3, 4, 3, 4, 4, 5, 5, 6);
    const times = i16x8(1 << 10, 1 << 4, 1 << 6, 1 << 8, 1 << 10, 1 << 4, 1 << 6, 1 << 8);
    for (; to < end; from += 12, to += 16) widen(from, 6, lanes, times, to);
  }
}

/** 16 codes. */
@inline
function widen(from: usize, bits: i32, lanes: v128, times: v128, to: usize): void {
  const first = i16x8.mul(i8x16.swizzle(v128.load64_zero(from), lanes), times);
  const second = i16x8.mul(i8x16.swizzle(v128.load64_zero(from + bits), lanes), times);
  v128.store(to, i8x16.narrow_i16x8_u(i16x8.shr_u(first, 16 - bits), i16x8.shr_u(second, 16 - bits)));
}
