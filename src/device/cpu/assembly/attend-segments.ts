import { setUpPlain, SPLIT, SPLIT_BYTES } from './attend-job';
import { scoreTile } from './attend-scores';
import { merge, weigh } from './attend-softmax';
import { addFloats1, addFloats2, addFloats6 } from './attend-values';
import { TILE } from './kv';

/**
 * Attention of rows among themselves: the op `attend-segments` of graph.ts.
 *
 * A unit of work is one head of at most `maxRows` neighbours with equal bounds. What they see is split at multiples of 256 rows from
 * their first bound on, and the splits are merged in order, as those of the cache are (attend.ts): a row's arithmetic depends on its
 * segment alone. K and V of a split are brought into the order of the kernels once for all rows of a unit.
 *
 * [qkv, bounds, out, rowsAt, heads, headDim, scale, maxRows, scratch, scratchStride]
 * Scratch of a thread, in floats: queries `[maxRows, headDim]`; scores `[maxRows, 256]`; sums of a split and sums so far, both
 * `[maxRows, padded]`, padded the next multiple of 16 of headDim; (maximum, sum) of both; a tile of keys `[headDim, 16]`; 16 columns of
 * values `[256, 16]`.
 */

// The job at hand. Globals are a thread's own.
let qkv: usize = 0;
let rowBytes: usize = 0;
let dim: u32 = 0;
let padded: u32 = 0;
let heads: u32 = 0;
let queries: usize = 0;
let scores: usize = 0;
let splitSums: usize = 0;
let sums: usize = 0;
let splitStats: usize = 0;
let stats: usize = 0;
let keys: usize = 0;
let values: usize = 0;

export function attendSegments(p: usize, thread: u32, threads: u32): void {
  const maxRows = load<u32>(p, 28);
  qkv = load<u32>(p);
  heads = load<u32>(p, 16);
  dim = load<u32>(p, 20);
  padded = (dim + 15) & ~15;
  rowBytes = 12 * heads * dim;
  queries = load<u32>(p, 32) + load<u32>(p, 36) * thread;
  scores = queries + maxRows * dim * 4;
  splitSums = scores + maxRows * SPLIT_BYTES;
  sums = splitSums + maxRows * padded * 4;
  splitStats = sums + maxRows * padded * 4;
  stats = splitStats + maxRows * 8;
  keys = stats + maxRows * 8;
  values = keys + TILE * dim * 4;
  setUpPlain(padded, stats, sums, splitStats);
  const bounds = load<u32>(p, 4);
  const out = load<u32>(p, 8);
  const rows = load<u32>(load<u32>(p, 12));
  const scale = load<f32>(p, 24);
  let unit: u32 = 0;
  for (let r: u32 = 0; r < rows; ) {
    const both = load<u64>(bounds + r * 8);
    let count: u32 = 1;
    while (count < maxRows && r + count < rows && load<u64>(bounds + (r + count) * 8) == both) count++;
    const first = min<u32>(<u32>load<f32>(bounds + r * 8), rows);
    const end = min<u32>(<u32>load<f32>(bounds + r * 8, 4), rows);
    for (let h: u32 = 0; h < heads; h++, unit++) {
      if (unit % threads == thread) attendUnit(h, r, count, first, end, scale, out);
    }
    r += count;
  }
}

function attendUnit(h: u32, row: u32, count: u32, first: u32, end: u32, scale: f32, out: usize): void {
  const bytes: usize = dim * 4;
  const by = f32x4.splat(scale);
  for (let i: u32 = 0; i < count; i++) {
    const from = at(row + i, h);
    const to = queries + i * bytes;
    for (let d: usize = 0; d < bytes; d += 16) v128.store(to + d, f32x4.mul(v128.load(from + d), by));
  }
  for (let base = first; base < end; base += SPLIT) attendSplit(h, count, base, min<u32>(SPLIT, end - base), base == first);
  for (let i: u32 = 0; i < count; i++) {
    const to = out + ((row + i) * heads + h) * bytes;
    if (first >= end) {
      memory.fill(to, 0, bytes);
      continue;
    }
    const from = sums + i * padded * 4;
    const factor = f32x4.splat(<f32>1 / load<f32>(stats + i * 8, 4));
    for (let d: usize = 0; d < bytes; d += 16) v128.store(to + d, f32x4.mul(v128.load(from + d), factor));
  }
}

/** Where a head of a row lies: q heads, k heads, v heads are counted through. */
// @ts-ignore: decorator
@inline function at(row: u32, head: u32): usize {
  return qkv + row * rowBytes + head * dim * 4;
}

/** `length` (at most 256) rows from `base` on, seen by all rows of the unit. */
function attendSplit(h: u32, count: u32, base: u32, length: u32, fresh: bool): void {
  for (let t: u32 = 0; t < length; t += TILE) {
    turnKeys(h, base + t, min<u32>(TILE, length - t));
    scoreTile(keys, false, queries, dim, count, scores + t * 4);
  }
  for (let i: u32 = 0; i < count; i++) weigh(scores + i * SPLIT_BYTES, 0, length, splitStats + i * 8, 1);
  memory.fill(splitSums, 0, count * padded * 4);
  const stride: usize = padded * 4;
  for (let d: u32 = 0; d < dim; d += 16) {
    takeValues(h, base, length, d);
    let i: u32 = 0;
    let acc: usize = splitSums + d * 4;
    let weights = scores;
    for (; i + 6 <= count; i += 6, acc += 6 * stride, weights += 6 * SPLIT_BYTES) {
      addFloats6(values, weights, SPLIT_BYTES, length, acc, stride);
      addFloats6(values + 32, weights, SPLIT_BYTES, length, acc + 32, stride);
    }
    for (; i + 2 <= count; i += 2, acc += 2 * stride, weights += 2 * SPLIT_BYTES)
      addFloats2(values, weights, SPLIT_BYTES, length, acc, stride);
    if (i < count) addFloats1(values, weights, length, acc);
  }
  for (let i: u32 = 0; i < count; i++) merge(i, splitSums + i * stride, fresh);
}

/** A tile of keys to `[headDim, 16]`; zeros for what is not there. */
function turnKeys(h: u32, row: u32, count: u32): void {
  if (count < TILE) memory.fill(keys, 0, TILE * dim * 4);
  for (let t: u32 = 0; t < count; t++) {
    const from = at(row + t, heads + h);
    let to: usize = keys + t * 4;
    for (let d: u32 = 0; d < dim; d++, to += 64) store<f32>(to, load<f32>(from + d * 4));
  }
}

/** 16 columns of V from column `d` on, zeros behind the head. */
function takeValues(h: u32, row: u32, count: u32, d: u32): void {
  const width = min<u32>(16, dim - d);
  const zero = f32x4.splat(0);
  let to: usize = values;
  for (let t: u32 = 0; t < count; t++, to += 64) {
    const from = at(row + t, 2 * heads + h) + d * 4;
    v128.store(to, v128.load(from));
    v128.store(to, width > 4 ? v128.load(from, 16) : zero, 16);
    v128.store(to, width > 8 ? v128.load(from, 32) : zero, 32);
    v128.store(to, width > 12 ? v128.load(from, 48) : zero, 48);
  }
}
