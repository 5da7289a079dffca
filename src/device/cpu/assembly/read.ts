/** Reads memory and does nothing else: what `kvant bench` holds the kernels against. `bytes` is a multiple of 128. */
export function readAll(from: usize, bytes: usize): i32 {
  let a0 = i32x4.splat(0), a1 = i32x4.splat(0), a2 = i32x4.splat(0), a3 = i32x4.splat(0);
  let a4 = i32x4.splat(0), a5 = i32x4.splat(0), a6 = i32x4.splat(0), a7 = i32x4.splat(0);
  // Eight sums, so that no load waits for one before it.
  for (let p = from, end = from + bytes; p < end; p += 128) {
    a0 = v128.xor(a0, v128.load(p));
    a1 = v128.xor(a1, v128.load(p, 16));
    a2 = v128.xor(a2, v128.load(p, 32));
    a3 = v128.xor(a3, v128.load(p, 48));
    a4 = v128.xor(a4, v128.load(p, 64));
    a5 = v128.xor(a5, v128.load(p, 80));
    a6 = v128.xor(a6, v128.load(p, 96));
    a7 = v128.xor(a7, v128.load(p, 112));
  }
  a0 = v128.xor(v128.xor(a0, a1), v128.xor(a2, a3));
  a4 = v128.xor(v128.xor(a4, a5), v128.xor(a6, a7));
  return i32x4.extract_lane(v128.xor(a0, a4), 0);
}
