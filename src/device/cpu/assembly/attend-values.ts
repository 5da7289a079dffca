import { highHalves, lowHalves, plainHalves, touch512 } from './kv';
import { madd } from './math';

/**
 * `acc += Σ weight[t] · V[t]` over tokens in ascending order, 16 columns of the head at a time. The accumulators are
 * read from and written to memory, so a row may be summed in several pieces: the bits are those of one chain.
 *
 * `values`: the first token's 16 columns, 32 bytes (f16) or 64 bytes (f32) a token. `weights`: of the first token; rows are
 * `weightStride` bytes apart, their accumulators `accStride`.
 */
export function addHalves1(values: usize, weights: usize, tokens: u32, acc: usize): void {
  let s0 = v128.load(acc);
  let s1 = v128.load(acc, 16);
  let s2 = v128.load(acc, 32);
  let s3 = v128.load(acc, 48);
  const end = weights + tokens * 4;
  while (weights < end) {
    const stop = min<usize>(weights + 64, end);
    if (weights + 64 <= end) touch512(values);
    for (; weights < stop; weights += 4, values += 32) {
      const x = v128.load_splat<f32>(weights);
      const a = v128.load(values);
      const b = v128.load(values, 16);
      s0 = madd(lowHalves(a), x, s0);
      s1 = madd(highHalves(a), x, s1);
      s2 = madd(lowHalves(b), x, s2);
      s3 = madd(highHalves(b), x, s3);
    }
  }
  v128.store(acc, s0);
  v128.store(acc, s1, 16);
  v128.store(acc, s2, 32);
  v128.store(acc, s3, 48);
}

export function addHalves2(
  values: usize, weights: usize, weightStride: usize, tokens: u32, acc: usize, accStride: usize,
): void {
  const acc2 = acc + accStride;
  let s0 = v128.load(acc);
  let s1 = v128.load(acc, 16);
  let s2 = v128.load(acc, 32);
  let s3 = v128.load(acc, 48);
  let t0 = v128.load(acc2);
  let t1 = v128.load(acc2, 16);
  let t2 = v128.load(acc2, 32);
  let t3 = v128.load(acc2, 48);
  const end = weights + tokens * 4;
  let second = weights + weightStride;
  while (weights < end) {
    const stop = min<usize>(weights + 64, end);
    if (weights + 64 <= end) touch512(values);
    for (; weights < stop; weights += 4, second += 4, values += 32) {
      const x = v128.load_splat<f32>(weights);
      const y = v128.load_splat<f32>(second);
      const a = v128.load(values);
      const b = v128.load(values, 16);
      let v = lowHalves(a);
      s0 = madd(v, x, s0);
      t0 = madd(v, y, t0);
      v = highHalves(a);
      s1 = madd(v, x, s1);
      t1 = madd(v, y, t1);
      v = lowHalves(b);
      s2 = madd(v, x, s2);
      t2 = madd(v, y, t2);
      v = highHalves(b);
      s3 = madd(v, x, s3);
      t3 = madd(v, y, t3);
    }
  }
  v128.store(acc, s0);
  v128.store(acc, s1, 16);
  v128.store(acc, s2, 32);
  v128.store(acc, s3, 48);
  v128.store(acc2, t0);
  v128.store(acc2, t1, 16);
  v128.store(acc2, t2, 32);
  v128.store(acc2, t3, 48);
}

export function addFloats1(values: usize, weights: usize, tokens: u32, acc: usize): void {
  let s0 = v128.load(acc);
  let s1 = v128.load(acc, 16);
  let s2 = v128.load(acc, 32);
  let s3 = v128.load(acc, 48);
  const end = weights + tokens * 4;
  for (; weights < end; weights += 4, values += 64) {
    const x = v128.load_splat<f32>(weights);
    s0 = madd(v128.load(values), x, s0);
    s1 = madd(v128.load(values, 16), x, s1);
    s2 = madd(v128.load(values, 32), x, s2);
    s3 = madd(v128.load(values, 48), x, s3);
  }
  v128.store(acc, s0);
  v128.store(acc, s1, 16);
  v128.store(acc, s2, 32);
  v128.store(acc, s3, 48);
}

export function addFloats2(
  values: usize, weights: usize, weightStride: usize, tokens: u32, acc: usize, accStride: usize,
): void {
  const acc2 = acc + accStride;
  let s0 = v128.load(acc);
  let s1 = v128.load(acc, 16);
  let s2 = v128.load(acc, 32);
  let s3 = v128.load(acc, 48);
  let t0 = v128.load(acc2);
  let t1 = v128.load(acc2, 16);
  let t2 = v128.load(acc2, 32);
  let t3 = v128.load(acc2, 48);
  const end = weights + tokens * 4;
  let second = weights + weightStride;
  for (; weights < end; weights += 4, second += 4, values += 64) {
    const x = v128.load_splat<f32>(weights);
    const y = v128.load_splat<f32>(second);
    let v = v128.load(values);
    s0 = madd(v, x, s0);
    t0 = madd(v, y, t0);
    v = v128.load(values, 16);
    s1 = madd(v, x, s1);
    t1 = madd(v, y, t1);
    v = v128.load(values, 32);
    s2 = madd(v, x, s2);
    t2 = madd(v, y, t2);
    v = v128.load(values, 48);
    s3 = madd(v, x, s3);
    t3 = madd(v, y, t3);
  }
  v128.store(acc, s0);
  v128.store(acc, s1, 16);
  v128.store(acc, s2, 32);
  v128.store(acc, s3, 48);
  v128.store(acc2, t0);
  v128.store(acc2, t1, 16);
  v128.store(acc2, t2, 32);
  v128.store(acc2, t3, 48);
}

/**
 * Six rows and 8 of 16 columns of floats. `values`: of those columns, 64 bytes a token. Twelve sums, as of scores
 * (attend-scores.ts).
 */
export function addFloats6(
  values: usize, weights: usize, weightStride: usize, tokens: u32, acc: usize, accStride: usize,
): void {
  const acc1 = acc + accStride;
  const acc2 = acc1 + accStride;
  const acc3 = acc2 + accStride;
  const acc4 = acc3 + accStride;
  const acc5 = acc4 + accStride;
  let s0a = v128.load(acc);
  let s0b = v128.load(acc, 16);
  let s1a = v128.load(acc1);
  let s1b = v128.load(acc1, 16);
  let s2a = v128.load(acc2);
  let s2b = v128.load(acc2, 16);
  let s3a = v128.load(acc3);
  let s3b = v128.load(acc3, 16);
  let s4a = v128.load(acc4);
  let s4b = v128.load(acc4, 16);
  let s5a = v128.load(acc5);
  let s5b = v128.load(acc5, 16);
  const end = weights + tokens * 4;
  let w1 = weights + weightStride;
  let w2 = w1 + weightStride;
  let w3 = w2 + weightStride;
  let w4 = w3 + weightStride;
  let w5 = w4 + weightStride;
  for (; weights < end; weights += 4, w1 += 4, w2 += 4, w3 += 4, w4 += 4, w5 += 4, values += 64) {
    const a = v128.load(values);
    const b = v128.load(values, 16);
    let x = v128.load_splat<f32>(weights);
    s0a = madd(x, a, s0a);
    s0b = madd(x, b, s0b);
    x = v128.load_splat<f32>(w1);
    s1a = madd(x, a, s1a);
    s1b = madd(x, b, s1b);
    x = v128.load_splat<f32>(w2);
    s2a = madd(x, a, s2a);
    s2b = madd(x, b, s2b);
    x = v128.load_splat<f32>(w3);
    s3a = madd(x, a, s3a);
    s3b = madd(x, b, s3b);
    x = v128.load_splat<f32>(w4);
    s4a = madd(x, a, s4a);
    s4b = madd(x, b, s4b);
    x = v128.load_splat<f32>(w5);
    s5a = madd(x, a, s5a);
    s5b = madd(x, b, s5b);
  }
  v128.store(acc, s0a);
  v128.store(acc, s0b, 16);
  v128.store(acc1, s1a);
  v128.store(acc1, s1b, 16);
  v128.store(acc2, s2a);
  v128.store(acc2, s2b, 16);
  v128.store(acc3, s3a);
  v128.store(acc3, s3b, 16);
  v128.store(acc4, s4a);
  v128.store(acc4, s4b, 16);
  v128.store(acc5, s5a);
  v128.store(acc5, s5b, 16);
}

/** f16 to floats (times 2^-112), `tokens` times 16 columns. */
export function widenValues(values: usize, tokens: u32, to: usize): void {
  for (; tokens != 0; tokens--, values += 32, to += 64) {
    const a = v128.load(values);
    const b = v128.load(values, 16);
    v128.store(to, lowHalves(a));
    v128.store(to, highHalves(a), 16);
    v128.store(to, lowHalves(b), 32);
    v128.store(to, highHalves(b), 48);
  }
}

/** The rest of a head whose size is not a multiple of 16: `rest` columns, in plain order. */
export function addRest(values: usize, half: bool, rest: u32, weights: usize, tokens: u32, acc: usize): void {
  const step: usize = rest * (half ? 2 : 4);
  for (let d: u32 = 0; d < rest; d += 4) {
    let s = v128.load(acc + d * 4);
    let v: usize = values + d * (half ? 2 : 4);
    for (let t: u32 = 0; t < tokens; t++, v += step) {
      s = madd(half ? plainHalves(v) : v128.load(v), v128.load_splat<f32>(weights + t * 4), s);
    }
    v128.store(acc + d * 4, s);
  }
}
