// The two passes of PIL's resize (research: docs/vision.md), over RGB bytes: weights are whole numbers of 22 bits, sums begin at
// one half, and bytes are rounded and clamped between the passes. Host code makes the weights (resize-weights.ts).
// Buffers have 16 bytes to spare at their ends: a pixel is read and written as four bytes.

const HALF: i32 = 1 << 21;
const BITS: i32 = 22;

@inline
function bytes(sum: v128): v128 {
  const words = i16x8.narrow_i32x4_s(i32x4.shr_s(sum, BITS), i32x4.splat(0));
  return i8x16.narrow_i16x8_u(words, words);
}

@inline
function pixel(from: usize): v128 {
  return i32x4.extend_low_i16x8_u(i16x8.extend_low_i8x16_u(v128.load32_zero(from)));
}

/**
 * Rows of `src` (width `inWidth`) to rows of `dst` (width `outWidth`). `bounds`: first pixel and count of each output pixel;
 * `weights`: `taps` of each, i32.
 */
export function horizontal(
  src: usize, inWidth: i32, rows: i32, dst: usize, outWidth: i32, bounds: usize, weights: usize, taps: i32,
): void {
  for (let y = 0; y < rows; y++) {
    const row = src + <usize>y * <usize>inWidth * 3;
    let to = dst + <usize>y * <usize>outWidth * 3;
    for (let x = 0; x < outWidth; x++) {
      let from = row + <usize>load<i32>(bounds + (<usize>x << 3)) * 3;
      let count = load<i32>(bounds + (<usize>x << 3), 4);
      let w = weights + ((<usize>x * <usize>taps) << 2);
      let a = i32x4.splat(HALF);
      let b = i32x4.splat(0);
      for (; count >= 2; count -= 2) {
        a = i32x4.add(a, i32x4.mul(pixel(from), v128.load32_splat(w)));
        b = i32x4.add(b, i32x4.mul(pixel(from + 3), v128.load32_splat(w, 4)));
        from += 6;
        w += 8;
      }
      if (count > 0) a = i32x4.add(a, i32x4.mul(pixel(from), v128.load32_splat(w)));
      store<i32>(to, i32x4.extract_lane(bytes(i32x4.add(a, b)), 0));
      to += 3;
    }
  }
}

/** Columns: `src` begins at source row `first`; `rowBytes` of both. */
export function vertical(
  src: usize, first: i32, rowBytes: i32, dst: usize, outRows: i32, bounds: usize, weights: usize, taps: i32,
): void {
  for (let y = 0; y < outRows; y++) {
    const from = src + <usize>(load<i32>(bounds + (<usize>y << 3)) - first) * <usize>rowBytes;
    const count = load<i32>(bounds + (<usize>y << 3), 4);
    const w = weights + ((<usize>y * <usize>taps) << 2);
    const to = dst + <usize>y * <usize>rowBytes;
    // The last sixteen of a row run into the next one, which is written after it.
    for (let i = 0; i < rowBytes; i += 16) {
      let a = i32x4.splat(HALF);
      let b = a;
      let c = a;
      let d = a;
      let at = from + <usize>i;
      for (let t = 0; t < count; t++) {
        const v = v128.load(at);
        const weight = v128.load32_splat(w + (<usize>t << 2));
        const low = i16x8.extend_low_i8x16_u(v);
        const high = i16x8.extend_high_i8x16_u(v);
        a = i32x4.add(a, i32x4.mul(i32x4.extend_low_i16x8_u(low), weight));
        b = i32x4.add(b, i32x4.mul(i32x4.extend_high_i16x8_u(low), weight));
        c = i32x4.add(c, i32x4.mul(i32x4.extend_low_i16x8_u(high), weight));
        d = i32x4.add(d, i32x4.mul(i32x4.extend_high_i16x8_u(high), weight));
        at += rowBytes;
      }
      v128.store(
        to + <usize>i,
        i8x16.narrow_i16x8_u(
          i16x8.narrow_i32x4_s(i32x4.shr_s(a, BITS), i32x4.shr_s(b, BITS)),
          i16x8.narrow_i32x4_s(i32x4.shr_s(c, BITS), i32x4.shr_s(d, BITS)),
        ),
      );
    }
  }
}
