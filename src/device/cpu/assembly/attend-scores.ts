import { highHalves, lowHalves, touch512 } from './kv';
import { madd } from './math';

/**
 * Scores of query rows against a tile of 16 keys. A lane is a token, and the sum over the head runs in one chain from
 * element 0 up: whichever of these kernels computes a score, it has the same bits.
 *
 * `q`: rows of `dim` floats. `out`: where the scores of the first row go; rows are `stride` bytes apart.
 */
const STRIDE: u32 = 1024;

/** All 16 keys of f16 to floats (times 2^-112), `[headDim][16]`. */
export function widenKeys(keys: usize, to: usize, dim: u32): void {
  for (let d: u32 = 0; d < dim; d++) {
    const a = v128.load(keys);
    const b = v128.load(keys, 16);
    v128.store(to, lowHalves(a));
    v128.store(to, highHalves(a), 16);
    v128.store(to, lowHalves(b), 32);
    v128.store(to, highHalves(b), 48);
    keys += 32;
    to += 64;
  }
}

/** `rows` query rows; `half` for keys as stored in f16. */
export function scoreTile(keys: usize, half: bool, q: usize, dim: u32, rows: u32, out: usize, unit: f32): void {
  const row: usize = dim * 4;
  if (half) {
    for (; rows >= 4; rows -= 4, q += 4 * row, out += 4 * STRIDE) {
      scoreHalf4(keys, q, dim, out, unit);
      scoreHalf4(keys + 16, q, dim, out + 32, unit);
    }
    if (rows >= 2) {
      scoreHalf2(keys, q, dim, out, unit);
      q += 2 * row;
      out += 2 * STRIDE;
      rows -= 2;
    }
    if (rows != 0) scoreHalf1(keys, q, dim, out, unit);
  } else {
    for (; rows >= 2; rows -= 2, q += 2 * row, out += 2 * STRIDE) scoreFloat2(keys, q, dim, out, unit);
    if (rows != 0) scoreFloat1(keys, q, dim, out, unit);
  }
}

function scoreHalf1(keys: usize, q: usize, dim: u32, out: usize, unit: f32): void {
  let s0 = f32x4.splat(0);
  let s1 = s0;
  let s2 = s0;
  let s3 = s0;
  const end = q + dim * 4;
  while (q < end) {
    const stop = min<usize>(q + 64, end);
    if (q + 64 <= end) touch512(keys);
    for (; q < stop; q += 4, keys += 32) {
      const x = v128.load_splat<f32>(q);
      const a = v128.load(keys);
      const b = v128.load(keys, 16);
      s0 = madd(lowHalves(a), x, s0);
      s1 = madd(highHalves(a), x, s1);
      s2 = madd(lowHalves(b), x, s2);
      s3 = madd(highHalves(b), x, s3);
    }
  }
  const u = f32x4.splat(unit);
  v128.store(out, f32x4.mul(s0, u));
  v128.store(out, f32x4.mul(s1, u), 16);
  v128.store(out, f32x4.mul(s2, u), 32);
  v128.store(out, f32x4.mul(s3, u), 48);
}

function scoreHalf2(keys: usize, q: usize, dim: u32, out: usize, unit: f32): void {
  let s0 = f32x4.splat(0);
  let s1 = s0;
  let s2 = s0;
  let s3 = s0;
  let t0 = s0;
  let t1 = s0;
  let t2 = s0;
  let t3 = s0;
  const end = q + dim * 4;
  let r: usize = end;
  while (q < end) {
    const stop = min<usize>(q + 64, end);
    if (q + 64 <= end) touch512(keys);
    for (; q < stop; q += 4, r += 4, keys += 32) {
      const x = v128.load_splat<f32>(q);
      const y = v128.load_splat<f32>(r);
      const a = v128.load(keys);
      const b = v128.load(keys, 16);
      let k = lowHalves(a);
      s0 = madd(k, x, s0);
      t0 = madd(k, y, t0);
      k = highHalves(a);
      s1 = madd(k, x, s1);
      t1 = madd(k, y, t1);
      k = lowHalves(b);
      s2 = madd(k, x, s2);
      t2 = madd(k, y, t2);
      k = highHalves(b);
      s3 = madd(k, x, s3);
      t3 = madd(k, y, t3);
    }
  }
  const u = f32x4.splat(unit);
  v128.store(out, f32x4.mul(s0, u));
  v128.store(out, f32x4.mul(s1, u), 16);
  v128.store(out, f32x4.mul(s2, u), 32);
  v128.store(out, f32x4.mul(s3, u), 48);
  v128.store(out, f32x4.mul(t0, u), STRIDE);
  v128.store(out, f32x4.mul(t1, u), STRIDE + 16);
  v128.store(out, f32x4.mul(t2, u), STRIDE + 32);
  v128.store(out, f32x4.mul(t3, u), STRIDE + 48);
}

/** Four rows against 8 of the 16 keys: twice as many would not fit the registers. */
function scoreHalf4(keys: usize, q: usize, dim: u32, out: usize, unit: f32): void {
  let s0 = f32x4.splat(0);
  let s1 = s0;
  let t0 = s0;
  let t1 = s0;
  let v0 = s0;
  let v1 = s0;
  let w0 = s0;
  let w1 = s0;
  const row: usize = dim * 4;
  const end = q + row;
  let r: usize = end;
  let m: usize = r + row;
  let n: usize = m + row;
  while (q < end) {
    const stop = min<usize>(q + 64, end);
    if (q + 64 <= end) touch512(keys);
    for (; q < stop; q += 4, r += 4, m += 4, n += 4, keys += 32) {
      const a = v128.load(keys);
      const k = lowHalves(a);
      const l = highHalves(a);
      let x = v128.load_splat<f32>(q);
      s0 = madd(k, x, s0);
      s1 = madd(l, x, s1);
      x = v128.load_splat<f32>(r);
      t0 = madd(k, x, t0);
      t1 = madd(l, x, t1);
      x = v128.load_splat<f32>(m);
      v0 = madd(k, x, v0);
      v1 = madd(l, x, v1);
      x = v128.load_splat<f32>(n);
      w0 = madd(k, x, w0);
      w1 = madd(l, x, w1);
    }
  }
  const u = f32x4.splat(unit);
  v128.store(out, f32x4.mul(s0, u));
  v128.store(out, f32x4.mul(s1, u), 16);
  v128.store(out, f32x4.mul(t0, u), STRIDE);
  v128.store(out, f32x4.mul(t1, u), STRIDE + 16);
  v128.store(out, f32x4.mul(v0, u), 2 * STRIDE);
  v128.store(out, f32x4.mul(v1, u), 2 * STRIDE + 16);
  v128.store(out, f32x4.mul(w0, u), 3 * STRIDE);
  v128.store(out, f32x4.mul(w1, u), 3 * STRIDE + 16);
}

function scoreFloat1(keys: usize, q: usize, dim: u32, out: usize, unit: f32): void {
  let s0 = f32x4.splat(0);
  let s1 = s0;
  let s2 = s0;
  let s3 = s0;
  const end = q + dim * 4;
  for (; q < end; q += 4, keys += 64) {
    const x = v128.load_splat<f32>(q);
    s0 = madd(v128.load(keys), x, s0);
    s1 = madd(v128.load(keys, 16), x, s1);
    s2 = madd(v128.load(keys, 32), x, s2);
    s3 = madd(v128.load(keys, 48), x, s3);
  }
  const u = f32x4.splat(unit);
  v128.store(out, f32x4.mul(s0, u));
  v128.store(out, f32x4.mul(s1, u), 16);
  v128.store(out, f32x4.mul(s2, u), 32);
  v128.store(out, f32x4.mul(s3, u), 48);
}

function scoreFloat2(keys: usize, q: usize, dim: u32, out: usize, unit: f32): void {
  let s0 = f32x4.splat(0);
  let s1 = s0;
  let s2 = s0;
  let s3 = s0;
  let t0 = s0;
  let t1 = s0;
  let t2 = s0;
  let t3 = s0;
  const end = q + dim * 4;
  let r: usize = end;
  for (; q < end; q += 4, r += 4, keys += 64) {
    const x = v128.load_splat<f32>(q);
    const y = v128.load_splat<f32>(r);
    let k = v128.load(keys);
    s0 = madd(k, x, s0);
    t0 = madd(k, y, t0);
    k = v128.load(keys, 16);
    s1 = madd(k, x, s1);
    t1 = madd(k, y, t1);
    k = v128.load(keys, 32);
    s2 = madd(k, x, s2);
    t2 = madd(k, y, t2);
    k = v128.load(keys, 48);
    s3 = madd(k, x, s3);
    t3 = madd(k, y, t3);
  }
  const u = f32x4.splat(unit);
  v128.store(out, f32x4.mul(s0, u));
  v128.store(out, f32x4.mul(s1, u), 16);
  v128.store(out, f32x4.mul(s2, u), 32);
  v128.store(out, f32x4.mul(s3, u), 48);
  v128.store(out, f32x4.mul(t0, u), STRIDE);
  v128.store(out, f32x4.mul(t1, u), STRIDE + 16);
  v128.store(out, f32x4.mul(t2, u), STRIDE + 32);
  v128.store(out, f32x4.mul(t3, u), STRIDE + 48);
}
