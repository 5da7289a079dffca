import { dim, softcap, splitStats, stats, sums, valueHalf } from './attend-job';
import { exp1, exp4, expDown4, madd, maxLanes, sumLanes } from './math';

/**
 * Scores `[a, b)` of a row, `unit` times too small (a power of two), to weights; their maximum and sum to `to`. Which
 * lane and which of the two chains adds a weight is said by its position.
 */
export function weigh(row: usize, a: u32, b: u32, to: usize, unit: f32): void {
  const from = a & ~7;
  const until = (b + 7) & ~7;
  if (softcap != 0) {
    // c tanh(s / c) = c (1 - 2 / (e^(2 s / c) + 1))
    const twice = f32x4.splat((<f32>2 / softcap) * unit);
    const cap = f32x4.splat(softcap / unit);
    const one = f32x4.splat(1);
    for (let t = a & ~3; t < b; t += 4) {
      const e = exp4(f32x4.mul(v128.load(row + t * 4), twice));
      const tanh = f32x4.sub(one, f32x4.div(f32x4.splat(2), f32x4.add(e, one)));
      v128.store(row + t * 4, f32x4.mul(cap, tanh));
    }
  }
  for (let t = from; t < a; t++) store<f32>(row + t * 4, -Infinity);
  for (let t = b; t < until; t++) store<f32>(row + t * 4, -Infinity);
  // A NaN may be passed over here: its exponential is NaN, and so is the sum.
  let most = v128.load(row + from * 4);
  let more = v128.load(row + from * 4, 16);
  for (let t = from + 8; t < until; t += 8) {
    most = f32x4.pmax(most, v128.load(row + t * 4));
    more = f32x4.pmax(more, v128.load(row + t * 4, 16));
  }
  const m = maxLanes(f32x4.pmax(most, more)) * unit;
  const peak = f32x4.splat(-m);
  const by = f32x4.splat(unit);
  // f16 values are 2^-112 too small: the weights make up for it.
  const shift = f32x4.splat(valueHalf ? 12583024 : 12582912);
  let sum = f32x4.splat(0);
  let rest = sum;
  for (let t = from; t < until; t += 8) {
    const x = expDown4(madd(v128.load(row + t * 4), by, peak), shift);
    const y = expDown4(madd(v128.load(row + t * 4, 16), by, peak), shift);
    sum = f32x4.add(sum, x);
    rest = f32x4.add(rest, y);
    v128.store(row + t * 4, x);
    v128.store(row + t * 4, y, 16);
  }
  store<f32>(to, m);
  store<f32>(to, sumLanes(f32x4.add(sum, rest)) * (valueHalf ? <f32>1.925929944387236e-34 : 1), 4);
}

/** Puts a split (its maximum and sum in `splitStats`, its sums at `part`) to what a row has so far. */
export function merge(r: u32, part: usize, starts: bool): void {
  const m = load<f32>(splitStats + r * 8);
  const l = load<f32>(splitStats + r * 8, 4);
  const own: usize = stats + r * 8;
  const to: usize = sums + r * dim * 4;
  if (starts) {
    store<f32>(own, m);
    store<f32>(own, l, 4);
    for (let d: u32 = 0; d < dim; d += 4) v128.store(to + d * 4, v128.load(part + d * 4));
    return;
  }
  const before = load<f32>(own);
  const peak = max<f32>(before, m);
  const x = exp1(before - peak);
  const y = exp1(m - peak);
  store<f32>(own, peak);
  store<f32>(own, load<f32>(own, 4) * x + l * y, 4);
  const x4 = f32x4.splat(x);
  const y4 = f32x4.splat(y);
  for (let d: u32 = 0; d < dim; d += 4) {
    const sum = madd(v128.load(to + d * 4), x4, f32x4.mul(v128.load(part + d * 4), y4));
    v128.store(to + d * 4, sum);
  }
}
