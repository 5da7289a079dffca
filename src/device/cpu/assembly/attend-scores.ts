import { highHalves, lowHalves, touch512 } from './kv';
import { madd } from './math';

/**
 * Scores of query rows against a tile of 16 keys. A lane is a token, and the sum over the head runs in one chain from
 * element 0 up: whichever of these kernels computes a score, it has the same bits.
 *
 * `q`: rows of `dim` floats. `out`: where the scores of the first row go; rows are `stride` bytes apart. Sums are stored
 * as they are: if anything is done to them after the loop, V8 11 loads all that a turn of the loop needs before it
 * multiplies, and then keeps sums in memory.
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
export function scoreTile(keys: usize, half: bool, q: usize, dim: u32, rows: u32, out: usize): void {
  const row: usize = dim * 4;
  if (half) {
    for (; rows >= 4; rows -= 4, q += 4 * row, out += 4 * STRIDE) {
      scoreHalf4(keys, q, dim, out);
      scoreHalf4(keys + 16, q, dim, out + 32);
    }
    if (rows >= 2) {
      scoreHalf2(keys, q, dim, out);
      q += 2 * row;
      out += 2 * STRIDE;
      rows -= 2;
    }
    if (rows != 0) scoreHalf1(keys, q, dim, out);
  } else {
    for (; rows >= 6; rows -= 6, q += 6 * row, out += 6 * STRIDE) {
      scoreFloat6(keys, q, dim, out);
      scoreFloat6(keys + 32, q, dim, out + 32);
    }
    for (; rows >= 2; rows -= 2, q += 2 * row, out += 2 * STRIDE) scoreFloat2(keys, q, dim, out);
    if (rows != 0) scoreFloat1(keys, q, dim, out);
  }
}

function scoreHalf1(keys: usize, q: usize, dim: u32, out: usize): void {
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
  v128.store(out, s0);
  v128.store(out, s1, 16);
  v128.store(out, s2, 32);
  v128.store(out, s3, 48);
}

function scoreHalf2(keys: usize, q: usize, dim: u32, out: usize): void {
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
  v128.store(out, s0);
  v128.store(out, s1, 16);
  v128.store(out, s2, 32);
  v128.store(out, s3, 48);
  v128.store(out, t0, STRIDE);
  v128.store(out, t1, STRIDE + 16);
  v128.store(out, t2, STRIDE + 32);
  v128.store(out, t3, STRIDE + 48);
}

/** Four rows against 8 of the 16 keys: twice as many would not fit the registers. */
function scoreHalf4(keys: usize, q: usize, dim: u32, out: usize): void {
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
  v128.store(out, s0);
  v128.store(out, s1, 16);
  v128.store(out, t0, STRIDE);
  v128.store(out, t1, STRIDE + 16);
  v128.store(out, v0, 2 * STRIDE);
  v128.store(out, v1, 2 * STRIDE + 16);
  v128.store(out, w0, 3 * STRIDE);
  v128.store(out, w1, 3 * STRIDE + 16);
}

function scoreFloat1(keys: usize, q: usize, dim: u32, out: usize): void {
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
  v128.store(out, s0);
  v128.store(out, s1, 16);
  v128.store(out, s2, 32);
  v128.store(out, s3, 48);
}

function scoreFloat2(keys: usize, q: usize, dim: u32, out: usize): void {
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
  v128.store(out, s0);
  v128.store(out, s1, 16);
  v128.store(out, s2, 32);
  v128.store(out, s3, 48);
  v128.store(out, t0, STRIDE);
  v128.store(out, t1, STRIDE + 16);
  v128.store(out, t2, STRIDE + 32);
  v128.store(out, t3, STRIDE + 48);
}

/**
 * Six rows against 8 of the 16 keys: 12 sums and what they are made of fill the registers, and twelve chains keep both
 * multipliers busy (an instruction takes 4 cycles, two start in each).
 */
function scoreFloat6(keys: usize, q: usize, dim: u32, out: usize): void {
  let s0a = f32x4.splat(0);
  let s0b = s0a;
  let s1a = s0a;
  let s1b = s0a;
  let s2a = s0a;
  let s2b = s0a;
  let s3a = s0a;
  let s3b = s0a;
  let s4a = s0a;
  let s4b = s0a;
  let s5a = s0a;
  let s5b = s0a;
  const row: usize = dim * 4;
  const end = q + row;
  let q1: usize = end;
  let q2: usize = q1 + row;
  let q3: usize = q2 + row;
  let q4: usize = q3 + row;
  let q5: usize = q4 + row;
  for (; q < end; q += 4, q1 += 4, q2 += 4, q3 += 4, q4 += 4, q5 += 4, keys += 64) {
    const a = v128.load(keys);
    const b = v128.load(keys, 16);
    let x = v128.load_splat<f32>(q);
    s0a = madd(x, a, s0a);
    s0b = madd(x, b, s0b);
    x = v128.load_splat<f32>(q1);
    s1a = madd(x, a, s1a);
    s1b = madd(x, b, s1b);
    x = v128.load_splat<f32>(q2);
    s2a = madd(x, a, s2a);
    s2b = madd(x, b, s2b);
    x = v128.load_splat<f32>(q3);
    s3a = madd(x, a, s3a);
    s3b = madd(x, b, s3b);
    x = v128.load_splat<f32>(q4);
    s4a = madd(x, a, s4a);
    s4b = madd(x, b, s4b);
    x = v128.load_splat<f32>(q5);
    s5a = madd(x, a, s5a);
    s5b = madd(x, b, s5b);
  }
  v128.store(out, s0a);
  v128.store(out, s0b, 16);
  v128.store(out, s1a, STRIDE);
  v128.store(out, s1b, STRIDE + 16);
  v128.store(out, s2a, 2 * STRIDE);
  v128.store(out, s2b, 2 * STRIDE + 16);
  v128.store(out, s3a, 3 * STRIDE);
  v128.store(out, s3b, 3 * STRIDE + 16);
  v128.store(out, s4a, 4 * STRIDE);
  v128.store(out, s4b, 4 * STRIDE + 16);
  v128.store(out, s5a, 5 * STRIDE);
  v128.store(out, s5b, 5 * STRIDE + 16);
}
