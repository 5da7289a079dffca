import { BINS, BLOCK, HISTOGRAM_BYTES, RADIX } from '../sample-words';
import { exp4, sumLanes } from './math';
import { isClosed, kept4, middle } from './sample-bounds';
import {
  FAINT, MOST, blockZ, blocks, blocksOf, four, histogramOf, idsFrom, lists, rowLogits, scaled, spans, vocab,
} from './sample-row';

/**
 * Where a run of tokens ends that is to have so many members, or so much weight: for top-k, top-p and typical-p alike.
 *
 * Tokens have scores, and run from the highest down, equal scores by id: the score is the logit itself, or minus the
 * distance of z from a middle. A histogram, made by all threads, says in which bin the run ends; the tokens of that bin
 * are listed, and the last one of the run is found 11, 11 and 10 bits of the score at a time. Nothing is sorted.
 *
 * Bins are an eighth of z wide; the last one holds whatever is further away.
 */
const PER_UNIT: f32 = 8;
const LAST_BIN: u32 = BINS - 1;

/** Distances from the largest, or from the middle. */
// @ts-ignore: decorator
@inline function reach(z: v128, byDistance: bool): v128 {
  return byDistance ? f32x4.abs(f32x4.sub(z, f32x4.splat(middle))) : f32x4.neg(z);
}

// @ts-ignore: decorator
@inline function binsOf(reached: v128): v128 {
  return i32x4.min_u(i32x4.trunc_sat_f32x4_s(f32x4.mul(reached, f32x4.splat(PER_UNIT))), i32x4.splat(LAST_BIN));
}

/** Counts and weights of the kept tokens `[from, to)` by bin. */
export function fillHistogram(row: u32, span: u32, from: u32, to: u32, byDistance: bool): void {
  const histogram = histogramOf(row, span);
  memory.fill(histogram, 0, HISTOGRAM_BYTES);
  const x = rowLogits(row);
  const maxima = blocksOf(row);
  const last = i32x4.splat(LAST_BIN);
  const closed = isClosed();
  const one = f32x4.splat(1);
  let far: f64 = 0;
  let farCount: u32 = 0;
  for (let start = from; start < to; start += BLOCK) {
    if (!(blockZ(maxima, start / BLOCK) >= FAINT)) continue;
    const end = min<u32>(start + BLOCK, to);
    let tail = f32x4.splat(0);
    for (let c = start; c < end; c += 4) {
      const v = four(x, c);
      const z = scaled(v);
      // Where nothing is left out, -∞ counts too, in the last bin, with no weight.
      const keep = closed ? kept4(v, z, idsFrom(c)) : i32x4.splat(-1);
      const e = v128.and(exp4(z), keep);
      const bins = binsOf(reach(z, byDistance));
      if (i32x4.all_true(i32x4.eq(bins, last))) {
        tail = f32x4.add(tail, e);
        farCount += popcnt(i32x4.bitmask(keep));
        continue;
      }
      const to = i32x4.shl(v128.bitselect(bins, i32x4.splat(BINS), keep), 4);
      const low = v128.shuffle<i32>(e, one, 0, 4, 1, 5);
      const high = v128.shuffle<i32>(e, one, 2, 6, 3, 7);
      put(histogram + i32x4.extract_lane(to, 0), low);
      put(histogram + i32x4.extract_lane(to, 1), v128.shuffle<i64>(low, low, 1, 0));
      put(histogram + i32x4.extract_lane(to, 2), high);
      put(histogram + i32x4.extract_lane(to, 3), v128.shuffle<i64>(high, high, 1, 0));
    }
    far += sumLanes(tail);
  }
  const at = histogram + LAST_BIN * 16;
  v128.store(at, f64x2.add(v128.load(at), f64x2(far, farCount)));
}

/** Adds the first two of four floats: a weight, and 1. */
// @ts-ignore: decorator
@inline function put(at: usize, pair: v128): void {
  v128.store(at, f64x2.add(v128.load(at), f64x2.promote_low_f32x4(pair)));
}

// A thread's room: bins of the search, a merged histogram, and the listed tokens by ascending id: score, id, e^z.
let sums: usize = 0;
let counts: usize = 0;
let merged: usize = 0;
let scores: usize = 0;
let ids: usize = 0;
let weights: usize = 0;
/** Tokens listed. */
export let listed: u32 = 0;

export function startLists(): void {
  sums = lists;
  counts = sums + RADIX * 8;
  merged = counts + RADIX * 4;
  scores = merged + HISTOGRAM_BYTES;
  ids = scores + <usize>vocab * 4;
  weights = ids + <usize>vocab * 4;
  listed = 0;
}

export function mergeHistograms(row: u32): void {
  memory.copy(merged, histogramOf(row, 0), HISTOGRAM_BYTES);
  for (let s: u32 = 1; s < spans; s++) {
    const own = histogramOf(row, s);
    for (let b: u32 = 0; b <= LAST_BIN; b++) {
      const at = merged + b * 16;
      v128.store(at, f64x2.add(v128.load(at), v128.load(own + b * 16)));
    }
  }
}

/** Weight of all that the histogram counts. */
export function totalWeight(): f64 {
  let sum: f64 = 0;
  for (let b: u32 = 0; b <= LAST_BIN; b++) sum += load<f64>(merged + b * 16);
  return sum;
}

// Tokens and weight of the bins before the last one looked for.
export let countBefore: f64 = 0;
export let weightBefore: f64 = 0;

/** The bin in which a run ends: the first with which the goal is reached, or the last that holds something. */
export function crossing(goal: f64, byWeight: bool): u32 {
  let found: u32 = 0;
  let count: f64 = 0;
  let weight: f64 = 0;
  countBefore = 0;
  weightBefore = 0;
  for (let b: u32 = 0; b <= LAST_BIN; b++) {
    const own = load<f64>(merged + b * 16, 8);
    // What is too faint to be counted lies in the last bin.
    if (own == 0 && (byWeight || b < LAST_BIN)) continue;
    found = b;
    countBefore = count;
    weightBefore = weight;
    count += own;
    weight += load<f64>(merged + b * 16);
    if ((byWeight ? weight : count) >= goal) break;
  }
  return found;
}

/** Lists the kept tokens of a bin. */
export function listBin(row: u32, bin: u32, byDistance: bool): void {
  const x = rowLogits(row);
  const maxima = blocksOf(row);
  const wanted = i32x4.splat(bin);
  // A little above where the bin begins or ends, for rounding; what matters is the bin itself.
  const nearest = <f32>(bin + 1) / PER_UNIT + <f32>0.01;
  const floor: f32 = bin == LAST_BIN ? -Infinity : byDistance ? middle - nearest : -nearest;
  listed = 0;
  for (let b: u32 = 0; b < blocks; b++) {
    if (!(blockZ(maxima, b) >= floor)) continue;
    const end = min<u32>((b + 1) * BLOCK, vocab);
    for (let c = b * BLOCK; c < end; c += 4) {
      const v = four(x, c);
      const z = scaled(v);
      const reached = reach(z, byDistance);
      const own = i32x4.eq(binsOf(reached), wanted);
      if (!v128.any_true(own)) continue;
      const mask = i32x4.bitmask(v128.and(own, kept4(v, z, idsFrom(c))));
      if (mask != 0) listFour(mask, byDistance ? f32x4.neg(reached) : v, c, exp4(z));
    }
  }
}

/** Lists the tokens whose logit is at least a value. */
export function listFrom(row: u32, value: f32): void {
  const x = rowLogits(row);
  const maxima = blocksOf(row);
  const least = f32x4.splat(max<f32>(value, -3.4e38));
  listed = 0;
  for (let b: u32 = 0; b < blocks; b++) {
    if (!(load<f32>(maxima + b * 4) >= value)) continue;
    const end = min<u32>((b + 1) * BLOCK, vocab);
    for (let c = b * BLOCK; c < end; c += 4) {
      const v = four(x, c);
      const mask = i32x4.bitmask(f32x4.ge(v, least));
      if (mask != 0) listFour(mask, v, c, exp4(scaled(v)));
    }
  }
}

/** The best of every block stand for the row: its k-th best is not below theirs. */
export function listBlocks(row: u32): void {
  const maxima = blocksOf(row);
  listed = 0;
  for (let b: u32 = 0; b < blocks; b++) list(load<f32>(maxima + b * 4), b, 0);
}

function listFour(mask: i32, score: v128, c: u32, e: v128): void {
  if (mask & 1) list(f32x4.extract_lane(score, 0), c, f32x4.extract_lane(e, 0));
  if (mask & 2) list(f32x4.extract_lane(score, 1), c + 1, f32x4.extract_lane(e, 1));
  if (mask & 4) list(f32x4.extract_lane(score, 2), c + 2, f32x4.extract_lane(e, 2));
  if (mask & 8) list(f32x4.extract_lane(score, 3), c + 3, f32x4.extract_lane(e, 3));
}

// @ts-ignore: decorator
@inline function list(score: f32, id: u32, weight: f32): void {
  const at = <usize>listed * 4;
  store<f32>(scores + at, score);
  store<u32>(ids + at, id);
  store<f32>(weights + at, weight);
  listed++;
}

/** Drops from the list what lies behind the end that was found. Answers with the weight of the rest. */
export function cutList(): f64 {
  const n = listed;
  listed = 0;
  let sum: f64 = 0;
  for (let i: usize = 0; i < n; i++) {
    const score = load<f32>(scores + i * 4);
    const id = load<u32>(ids + i * 4);
    if (score < endScore || (score == endScore && id > endId)) continue;
    const weight = load<f32>(weights + i * 4);
    list(score, id, weight);
    sum += weight;
  }
  return sum;
}

// The last token of the run.
export let endScore: f32 = 0;
export let endId: u32 = 0;

/** The bits of a float, so that unsigned order is the order of the numbers. -0 is 0. */
// @ts-ignore: decorator
@inline function orderOf(x: f32): u32 {
  const bits = reinterpret<u32>(x + 0);
  return bits & 0x80000000 ? ~bits : bits | 0x80000000;
}

/**
 * Finds the last of the listed tokens that a run needs: `before` stand for what comes ahead of the list. Should rounding
 * leave the goal just out of reach, the run takes them all; it has at least one.
 */
export function findEnd(goal: f64, before: f64, byWeight: bool): void {
  endScore = -Infinity;
  endId = MOST;
  if (listed == 0) return;
  let prefix: u32 = 0;
  let known: u32 = 0;
  let shift: u32 = 21;
  let ties: u32 = 0;
  for (;;) {
    const bins: u32 = shift == 0 ? 1024 : RADIX;
    memory.fill(sums, 0, bins * 8);
    memory.fill(counts, 0, bins * 4);
    for (let i: usize = 0; i < listed; i++) {
      const order = orderOf(load<f32>(scores + i * 4));
      if (known != 0 && order >> (32 - known) != prefix) continue;
      const bin = (order >> shift) & (bins - 1);
      store<u32>(counts + bin * 4, load<u32>(counts + bin * 4) + 1);
      const weight: f64 = byWeight ? <f64>load<f32>(weights + i * 4) : 1;
      store<f64>(sums + bin * 8, load<f64>(sums + bin * 8) + weight);
    }
    let chosen: u32 = 0;
    let ahead = before;
    let sum = before;
    for (let bin = bins; bin-- > 0; ) {
      if (load<u32>(counts + bin * 4) == 0) continue;
      chosen = bin;
      ahead = sum;
      sum += load<f64>(sums + bin * 8);
      if (sum >= goal) break;
    }
    before = ahead;
    prefix = shift == 21 ? chosen : (prefix << (shift == 10 ? 11 : 10)) | chosen;
    known = 32 - shift;
    if (shift == 0) {
      ties = load<u32>(counts + chosen * 4);
      if (sum >= goal) {
        const each = load<f64>(sums + chosen * 8) / ties;
        const count = ties;
        ties = 1;
        while (ties < count && before + each * ties < goal) ties++;
      }
      break;
    }
    shift = shift == 21 ? 10 : 0;
  }
  for (let i: usize = 0; ties > 0 && i < listed; i++) {
    if (orderOf(load<f32>(scores + i * 4)) != prefix) continue;
    endScore = load<f32>(scores + i * 4);
    endId = load<u32>(ids + i * 4);
    ties--;
  }
}
