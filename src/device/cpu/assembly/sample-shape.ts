import {
  BLOCK, CHUNK, F_MIROSTAT, F_SIGMA, F_TYPICAL, F_XTC, P_MIROSTAT_ETA, P_MIROSTAT_TAU, P_TOP_N_SIGMA, P_TYPICAL_P,
  P_XTC_PROBABILITY, P_XTC_THRESHOLD, SPAN, S_MU,
} from '../sample-words';
import { exp4, maxLanes, sumLanes } from './math';
import {
  kept4, least, leastZ, loadBounds, setDistance, setDrop, setLeastZ, setMiddle, setPrefix, storeBounds,
} from './sample-bounds';
import { uniforms } from './sample-noise';
import {
  FAINT, INVALID, MOST, PART_FINITE, PART_MEAN, PART_MOMENT, PART_SQUARES, PART_SUM, blockZ, blocks, blocksOf,
  chunkEnd, chunks, features, four, idsFrom, inverse, largest, largestId, number, partOf, rowLogits, scaled, stateOf,
  vocab,
} from './sample-row';
import {
  crossing, endId, endScore, fillHistogram, findEnd, listBin, mergeHistograms, startLists, weightBefore,
} from './sample-threshold';

/** The filters that look at more than the order: typical-p, top-n-sigma, XTC, and mirostat, which replaces them. */

/** Σ e^z and Σ z e^z of what the row keeps of a chunk. */
export function moments(row: u32, chunk: u32): void {
  loadBounds(row);
  const x = rowLogits(row);
  const maxima = blocksOf(row);
  const to = chunkEnd(chunk);
  let sum: f64 = 0;
  let moment: f64 = 0;
  for (let start = chunk * CHUNK; start < to; start += BLOCK) {
    if (!(blockZ(maxima, start / BLOCK) >= max<f32>(leastZ, FAINT))) continue;
    if (!(load<f32>(maxima + start / BLOCK * 4) >= least)) continue;
    const end = min<u32>(start + BLOCK, to);
    let a = f32x4.splat(0);
    let b = a;
    for (let c = start; c < end; c += 4) {
      const v = four(x, c);
      const z = scaled(v);
      const keep = kept4(v, z, idsFrom(c));
      const e = v128.and(exp4(z), keep);
      a = f32x4.add(a, e);
      // Where z is -∞ the product is NaN, and not kept.
      b = f32x4.add(b, v128.and(f32x4.mul(z, e), keep));
    }
    sum += sumLanes(a);
    moment += sumLanes(b);
  }
  const part = partOf(row, chunk);
  store<f64>(part, sum, PART_SUM);
  store<f64>(part, moment, PART_MOMENT);
}

/** Of all chunks, in order. */
function mergeParts(row: u32, field: usize): f64 {
  let sum: f64 = 0;
  for (let c: u32 = 0; c < chunks; c++) sum += load<f64>(partOf(row, c) + field);
  return sum;
}

/**
 * Typical-p keeps the smallest |-ln q - H|. With the mean of z over q, `H = ln Σ e^z - mean`, so this is |z - mean|.
 */
function setTypicalMiddle(row: u32): f64 {
  const sum = mergeParts(row, PART_SUM);
  setMiddle(<f32>(mergeParts(row, PART_MOMENT) / sum));
  return sum;
}

export function deviations(row: u32, span: u32): void {
  loadBounds(row);
  setTypicalMiddle(row);
  const from = span * SPAN;
  fillHistogram(row, span, from, min<u32>(from + SPAN, vocab), true);
}

export function shape(row: u32): void {
  loadBounds(row);
  startLists();
  if (features & F_MIROSTAT) {
    const state = stateOf(row);
    const mu: f64 = state == 0 ? 0 : load<f32>(state + S_MU * 4);
    const border = <f32>(Math.log(mergeParts(row, PART_SUM)) - mu * Math.LN2);
    setLeastZ(border);
    // Where even the largest is too surprising it stays, and no tie of it.
    if (border > 0) setPrefix(largest, largestId);
  }
  if (features & F_TYPICAL) {
    const goal = <f64>number(row, P_TYPICAL_P) * setTypicalMiddle(row);
    mergeHistograms(row);
    listBin(row, crossing(goal, true), true);
    findEnd(goal, weightBefore, true);
    setDistance(-endScore, endId);
  }
  if (features & F_SIGMA) {
    const highest: f64 = features & F_TYPICAL ? highestKept(row) : largest;
    const border = highest - <f64>number(row, P_TOP_N_SIGMA) * deviation(row);
    const value = notBelow(border);
    if (value > least) setPrefix(value, MOST);
  }
  storeBounds(row);
}

/** The largest logit that the row keeps. */
function highestKept(row: u32): f32 {
  const x = rowLogits(row);
  const maxima = blocksOf(row);
  const nothing = f32x4.splat(-Infinity);
  let highest: f32 = -Infinity;
  for (let b: u32 = 0; b < blocks; b++) {
    if (!(load<f32>(maxima + b * 4) > highest)) continue;
    const end = min<u32>((b + 1) * BLOCK, vocab);
    let most = nothing;
    for (let c = b * BLOCK; c < end; c += 4) {
      const v = four(x, c);
      most = f32x4.pmax(most, v128.bitselect(v, nothing, kept4(v, scaled(v), idsFrom(c))));
    }
    highest = max<f32>(highest, maxLanes(most));
  }
  return highest;
}

/** How many logits of a chunk are finite, their mean, and the sum of their squared distances from it. */
export function spread(row: u32, chunk: u32): void {
  const x = rowLogits(row);
  const to = chunkEnd(chunk);
  let c = chunk * CHUNK;
  while (c < to && !(abs<f32>(load<f32>(x + <usize>c * 4)) < Infinity)) c++;
  // Sums are taken of distances from the first finite one: they lose nothing where all are far from 0.
  const pivot: f64 = c < to ? <f64>load<f32>(x + <usize>c * 4) : 0;
  let count: u32 = 0;
  let sum = f64x2.splat(0);
  let squares = f64x2.splat(0);
  for (c &= ~3; c < to; c += 4) {
    const v = four(x, c);
    const finite = f32x4.lt(f32x4.abs(v), f32x4.splat(Infinity));
    count += popcnt(i32x4.bitmask(finite));
    const y = v128.bitselect(v, f32x4.splat(<f32>pivot), finite);
    const a = f64x2.sub(f64x2.promote_low_f32x4(y), f64x2.splat(pivot));
    const b = f64x2.sub(f64x2.promote_low_f32x4(i64x2.shuffle(y, y, 1, 0)), f64x2.splat(pivot));
    sum = f64x2.add(sum, f64x2.add(a, b));
    squares = f64x2.add(squares, f64x2.add(f64x2.mul(a, a), f64x2.mul(b, b)));
  }
  const total = f64x2.extract_lane(sum, 0) + f64x2.extract_lane(sum, 1);
  const square = f64x2.extract_lane(squares, 0) + f64x2.extract_lane(squares, 1);
  const part = partOf(row, chunk);
  store<u32>(part, count, PART_FINITE);
  store<f64>(part, count == 0 ? 0 : pivot + total / count, PART_MEAN);
  store<f64>(part, count == 0 ? 0 : max<f64>(0, square - (total * total) / count), PART_SQUARES);
}

/** The population standard deviation of the row, chunk by chunk (Chan, Golub and LeVeque 1979). */
function deviation(row: u32): f64 {
  let count: f64 = 0;
  let mean: f64 = 0;
  let squares: f64 = 0;
  for (let c: u32 = 0; c < chunks; c++) {
    const part = partOf(row, c);
    const own: f64 = load<u32>(part, PART_FINITE);
    if (own == 0) continue;
    const apart = load<f64>(part, PART_MEAN) - mean;
    const all = count + own;
    mean += (apart * own) / all;
    squares += load<f64>(part, PART_SQUARES) + (apart * apart * count * own) / all;
    count = all;
  }
  return Math.sqrt(squares / count);
}

/** The smallest f32 that is not below a number. */
function notBelow(x: f64): f32 {
  const near = <f32>x;
  if (<f64>near >= x) return near;
  if (near == 0) return reinterpret<f32>(1);
  return reinterpret<f32>(near > 0 ? reinterpret<u32>(near) + 1 : reinterpret<u32>(near) - 1);
}

/** Whether XTC comes over the row this time: the uniform of a token that no vocabulary has. */
export function strikes(row: u32): bool {
  if ((features & F_XTC) == 0) return false;
  return f32x4.extract_lane(uniforms(i32x4.splat(INVALID)), 0) < number(row, P_XTC_PROBABILITY);
}

/** Of the kept tokens that reach the threshold all go but the last in order. */
export function xtc(row: u32): void {
  loadBounds(row);
  const weight = <f64>number(row, P_XTC_THRESHOLD) * mergeParts(row, PART_SUM);
  const border: f32 = weight > 0 ? <f32>Math.log(weight) : -Infinity;
  const x = rowLogits(row);
  const maxima = blocksOf(row);
  let count: u32 = 0;
  let lowest: f32 = Infinity;
  let lowestId: u32 = 0;
  for (let b: u32 = 0; b < blocks; b++) {
    if (!(blockZ(maxima, b) >= max<f32>(border, leastZ))) continue;
    const end = min<u32>((b + 1) * BLOCK, vocab);
    for (let c = b * BLOCK; c < end; c += 4) {
      const v = four(x, c);
      const z = scaled(v);
      const mask = i32x4.bitmask(v128.and(f32x4.ge(z, f32x4.splat(border)), kept4(v, z, idsFrom(c))));
      if (mask == 0) continue;
      count += popcnt(mask);
      for (let lane: u32 = 0; lane < 4; lane++) {
        if ((mask >> lane & 1) == 0) continue;
        const value = load<f32>(x + <usize>(c + lane) * 4);
        if (value > lowest) continue;
        lowest = value;
        lowestId = c + lane;
      }
    }
  }
  if (count < 2) return;
  setDrop(lowest, lowestId);
  storeBounds(row);
}

/** Moves μ by how surprising a drawn token was among those it was drawn from. */
export function mirostat(row: u32, id: u32): void {
  const state = stateOf(row);
  if (state == 0) return;
  const z: f64 = (load<f32>(rowLogits(row) + <usize>id * 4) - largest) * inverse;
  const surprise = (Math.log(mergeParts(row, PART_SUM)) - z) / Math.LN2;
  const mu: f64 = load<f32>(state + S_MU * 4);
  const next = mu - <f64>number(row, P_MIROSTAT_ETA) * (surprise - <f64>number(row, P_MIROSTAT_TAU));
  store<f32>(state + S_MU * 4, <f32>next);
}
