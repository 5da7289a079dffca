import { exp1, exp4, log4, maxLanes, share } from './math';

/**
 * Draws one id for each row of logits, in three commands: every chunk of a row is scanned for its largest logit; then
 * for its best noisy logit or its sum of exponentials; then one thread finishes each row. The chunks are fixed, so a
 * row's bits do not depend on the threads.
 *
 * [logits, vocab, rowsAt, sampling, samplingStride, parts, chunks, result, scratch, scratchStride]
 * `sampling`: arrays temperature, topK, topP, minP, seedLow, seedHigh, choice, position. `parts`: 32 bytes a chunk.
 * `scratch`: 3 · vocab words and 2048 · 3 words a thread.
 *
 * With `z = (logit - largest) / temperature`: top-k keeps the k largest; top-p, of the weights e^z of those, the
 * shortest run from the top that reaches p of their sum; min-p those with e^z >= minP. Ties go by the lowest id. What
 * is kept is therefore always the start of the row's descending order: a smallest value, and how many of its ties.
 * The draw is the argmax of z + Gumbel noise (random.ts).
 */
const CHUNK: u32 = 4096;
const INVALID: u32 = 0xffffffff;
/** No noise is larger: -ln(-ln(1 - 2^-24)) is 16.64. */
const MOST_NOISE: f32 = 16.7;
/** Candidates are first looked for among tokens this close to the largest, in units of z; then a little further. */
const NEAR: f32 = -9;
const LESS_NEAR: f32 = -13;

const PART_MAX: usize = 0;
const PART_ID: usize = 4;
const PART_NAN: usize = 8;
const PART_BEST: usize = 12;
const PART_BEST_ID: usize = 16;
const PART_SUM: usize = 24;

let logits: usize = 0;
let vocab: u32 = 0;
let rows: u32 = 0;
let parts: usize = 0;
let chunks: u32 = 0;

// Parameters of the row at hand, and its largest logit.
let temperature: f32 = 0;
let topK: u32 = 0;
let topP: f32 = 1;
let minP: f32 = 0;
let largest: f32 = 0;
let largestId: u32 = 0;
let inverse: f32 = 0;
// The row's words of the random number (random.ts), before the token enters.
let seedX: u32 = 0;
let seedY: u32 = 0;
let seedZ: u32 = 0;
// The best noisy logit so far.
let best: f32 = 0;
let bestId: u32 = 0;

function setUp(p: usize): void {
  logits = load<u32>(p);
  vocab = load<u32>(p, 4);
  rows = load<u32>(load<u32>(p, 8));
  parts = load<u32>(p, 20);
  chunks = load<u32>(p, 24);
}

export function sampleScan(p: usize, thread: u32, threads: u32): void {
  setUp(p);
  const stop = share(rows * chunks, thread + 1, threads);
  for (let i = share(rows * chunks, thread, threads); i < stop; i++) {
    const row = i / chunks;
    const from = (i - row * chunks) * CHUNK;
    scan(logits + row * vocab * 4, from, min<u32>(from + CHUNK, vocab), parts + i * 32);
  }
}

/** Largest logit of a chunk, its lowest id, and whether there is a NaN. */
function scan(x: usize, from: u32, to: u32, part: usize): void {
  let a = f32x4.splat(-Infinity);
  let b = a;
  let d = a;
  let e = a;
  // pmax passes over NaN, which is looked for beside it.
  let odd = f32x4.splat(0);
  let c = from;
  for (; c + 16 <= to; c += 16) {
    const at: usize = x + c * 4;
    const w = v128.load(at);
    const y = v128.load(at, 16);
    const z = v128.load(at, 32);
    const v = v128.load(at, 48);
    a = f32x4.pmax(a, w);
    b = f32x4.pmax(b, y);
    d = f32x4.pmax(d, z);
    e = f32x4.pmax(e, v);
    odd = v128.or(odd, v128.or(v128.or(f32x4.ne(w, w), f32x4.ne(y, y)), v128.or(f32x4.ne(z, z), f32x4.ne(v, v))));
  }
  let m = maxLanes(f32x4.pmax(f32x4.pmax(a, b), f32x4.pmax(d, e)));
  // max passes a NaN on.
  if (v128.any_true(odd)) m = NaN;
  for (; c < to; c++) m = max<f32>(m, load<f32>(x + c * 4));
  let id = from;
  if (m == m) {
    const wanted = f32x4.splat(m);
    while (id + 4 <= to && !v128.any_true(f32x4.eq(v128.load(x + id * 4), wanted))) id += 4;
    while (load<f32>(x + id * 4) != m) id++;
  }
  store<f32>(part, m, PART_MAX);
  store<u32>(part, id, PART_ID);
  store<u32>(part, m == m ? 0 : 1, PART_NAN);
}

/** Reads a row's parameters and merges what the scan found. False if there is nothing to draw from. */
function readRow(p: usize, row: u32): bool {
  const sampling: usize = load<u32>(p, 12) + row * 4;
  const stride: usize = load<u32>(p, 16);
  temperature = load<f32>(sampling);
  topK = load<u32>(sampling + stride);
  topP = load<f32>(sampling + 2 * stride);
  minP = load<f32>(sampling + 3 * stride);
  if (topK >= vocab) topK = 0;
  largest = -Infinity;
  largestId = 0;
  let part: usize = parts + row * chunks * 32;
  for (let c: u32 = 0; c < chunks; c++, part += 32) {
    if (load<u32>(part, PART_NAN) != 0) return false;
    const m = load<f32>(part, PART_MAX);
    if (m > largest) {
      largest = m;
      largestId = load<u32>(part, PART_ID);
    }
  }
  if (abs<f32>(largest) == Infinity) return false;
  if (temperature > 0) {
    inverse = <f32>1 / temperature;
    const seedLow = load<u32>(sampling + 4 * stride);
    const seedHigh = load<u32>(sampling + 5 * stride);
    const choice = load<u32>(sampling + 6 * stride);
    const position = load<u32>(sampling + 7 * stride);
    seedX = seedLow * 1664525 + 1013904223;
    seedY = (seedHigh ^ (choice * 0x9e3779b9)) * 1664525 + 1013904223;
    seedZ = position * 1664525 + 1013904223;
  }
  return true;
}

export function sampleParts(p: usize, thread: u32, threads: u32): void {
  setUp(p);
  const stop = share(rows * chunks, thread + 1, threads);
  for (let i = share(rows * chunks, thread, threads); i < stop; i++) {
    const row = i / chunks;
    if (!readRow(p, row) || !(temperature > 0)) continue;
    const from = (i - row * chunks) * CHUNK;
    const to = min<u32>(from + CHUNK, vocab);
    const x: usize = logits + row * vocab * 4;
    if (topK == 0 && topP >= 1) {
      startDraw();
      drawRange(x, from, to);
      store<f32>(parts + i * 32, best, PART_BEST);
      store<u32>(parts + i * 32, bestId, PART_BEST_ID);
    } else if (topK == 0) {
      store<f64>(parts + i * 32, sumOf(x, from, to), PART_SUM);
    }
  }
}

export function sampleDraw(p: usize, thread: u32, threads: u32): void {
  setUp(p);
  const result: usize = load<u32>(p, 28);
  const scratch: usize = load<u32>(p, 32) + load<u32>(p, 36) * thread;
  const stop = share(rows, thread + 1, threads);
  for (let row = share(rows, thread, threads); row < stop; row++) {
    let id = INVALID;
    if (readRow(p, row)) {
      if (!(temperature > 0)) id = largestId;
      else if (topK == 0 && topP >= 1) id = mergeDraws(row);
      else id = drawKept(logits + row * vocab * 4, row, scratch);
    }
    store<u32>(result + row * 4, id);
  }
}

function mergeDraws(row: u32): u32 {
  startDraw();
  let part: usize = parts + row * chunks * 32;
  for (let c: u32 = 0; c < chunks; c++, part += 32) {
    offer(load<f32>(part, PART_BEST), load<u32>(part, PART_BEST_ID));
  }
  return bestId;
}

/** The largest logit is never filtered out: the search starts from it. */
function startDraw(): void {
  best = f32x4.extract_lane(noise(i32x4.splat(largestId)), 0);
  bestId = largestId;
}

// @ts-ignore: decorator
@inline function offer(value: f32, id: u32): void {
  if (value > best || (value == best && id < bestId)) {
    best = value;
    bestId = id;
  }
}

/** Noisy logits of tokens `[from, to)`, those that min-p drops left out. Most are too small for any noise. */
function drawRange(x: usize, from: u32, to: u32): void {
  const peak = f32x4.splat(largest);
  const factor = f32x4.splat(inverse);
  let c = from;
  for (; c + 4 <= to; c += 4) {
    const z = f32x4.mul(f32x4.sub(v128.load(x + c * 4), peak), factor);
    if (!v128.any_true(f32x4.ge(z, f32x4.splat(best - MOST_NOISE)))) continue;
    const ids = i32x4.add(i32x4.splat(c), i32x4(0, 1, 2, 3));
    if (v128.any_true(hopes(z, ids))) drawFour(z, ids, 4);
  }
  for (; c < to; c++) {
    const z = (load<f32>(x + c * 4) - largest) * inverse;
    drawFour(f32x4.splat(z), i32x4.splat(c), 1);
  }
}

/**
 * Which of four tokens may beat the best: a test without logarithms. `-ln(-ln u) > t` needs `1 - u < e^-t`, for
 * `1 - u <= -ln u`. A little is allowed for rounding.
 */
// @ts-ignore: decorator
@inline function hopes(z: v128, ids: v128): v128 {
  const rest = v128.xor(i32x4.shr_u(randomWords(ids), 9), i32x4.splat(0x7fffff));
  const above = f32x4.mul(f32x4.convert_i32x4_s(rest), f32x4.splat(1.1920928955078125e-7));
  const needed = exp4(f32x4.sub(z, f32x4.splat(best)));
  return f32x4.le(above, f32x4.mul(needed, f32x4.splat(1.001)));
}

function drawFour(z: v128, ids: v128, count: u32): void {
  const noisy = f32x4.add(z, noise(ids));
  const kept = f32x4.ge(exp4(z), f32x4.splat(minP));
  const value = v128.bitselect(noisy, f32x4.splat(-Infinity), kept);
  offer(f32x4.extract_lane(value, 0), i32x4.extract_lane(ids, 0));
  if (count == 1) return;
  offer(f32x4.extract_lane(value, 1), i32x4.extract_lane(ids, 1));
  offer(f32x4.extract_lane(value, 2), i32x4.extract_lane(ids, 2));
  offer(f32x4.extract_lane(value, 3), i32x4.extract_lane(ids, 3));
}

/** Gumbel noise of four tokens: a random word to a uniform, to -ln(-ln u). */
function noise(ids: v128): v128 {
  const u = f32x4.mul(
    f32x4.add(f32x4.convert_i32x4_s(i32x4.shr_u(randomWords(ids), 9)), f32x4.splat(0.5)),
    f32x4.splat(1.1920928955078125e-7),
  );
  return f32x4.neg(log4(f32x4.neg(log4(u))));
}

/** pcg4d of the row's words and the token (random.ts). */
// @ts-ignore: decorator
@inline function randomWords(ids: v128): v128 {
  let x = i32x4.splat(seedX);
  let y = i32x4.splat(seedY);
  let z = i32x4.splat(seedZ);
  let w = i32x4.add(i32x4.mul(ids, i32x4.splat(1664525)), i32x4.splat(1013904223));
  x = i32x4.add(x, i32x4.mul(y, w));
  y = i32x4.add(y, i32x4.mul(z, x));
  z = i32x4.add(z, i32x4.mul(x, y));
  w = i32x4.add(w, i32x4.mul(y, z));
  x = v128.xor(x, i32x4.shr_u(x, 16));
  y = v128.xor(y, i32x4.shr_u(y, 16));
  z = v128.xor(z, i32x4.shr_u(z, 16));
  w = v128.xor(w, i32x4.shr_u(w, 16));
  x = i32x4.add(x, i32x4.mul(y, w));
  y = i32x4.add(y, i32x4.mul(z, x));
  z = i32x4.add(z, i32x4.mul(x, y));
  return i32x4.add(w, i32x4.mul(y, z));
}

/** Σ e^z over tokens `[from, to)`. */
function sumOf(x: usize, from: u32, to: u32): f64 {
  const peak = f32x4.splat(largest);
  const factor = f32x4.splat(inverse);
  let a = f32x4.splat(0);
  let c = from;
  for (; c + 4 <= to; c += 4) {
    a = f32x4.add(a, exp4(f32x4.mul(f32x4.sub(v128.load(x + c * 4), peak), factor)));
  }
  let sum = <f64>f32x4.extract_lane(a, 0) + <f64>f32x4.extract_lane(a, 1)
    + (<f64>f32x4.extract_lane(a, 2) + <f64>f32x4.extract_lane(a, 3));
  for (; c < to; c++) sum += exp1((load<f32>(x + c * 4) - largest) * inverse);
  return sum;
}

// The candidates of the row at hand, by ascending id: logit, id, weight e^z.
let values: usize = 0;
let ids: usize = 0;
let weights: usize = 0;
let counts: usize = 0;
let sums: usize = 0;

function drawKept(x: usize, row: u32, scratch: usize): u32 {
  sums = scratch;
  counts = sums + 2048 * 8;
  values = counts + 2048 * 4;
  ids = values + vocab * 4;
  weights = ids + vocab * 4;
  let sum: f64 = 0;
  if (topK == 0) {
    let part: usize = parts + row * chunks * 32;
    for (let c: u32 = 0; c < chunks; c++, part += 32) sum += load<f64>(part, PART_SUM);
  }
  // Nearly always the tokens near the largest are enough.
  let n = collect(x, NEAR);
  if (tooFew(n, sum)) n = collect(x, LESS_NEAR);
  if (tooFew(n, sum)) n = collect(x, -Infinity);
  if (topK != 0 && topK < n) n = keepFirst(n, false, topK);
  if (topP < 1) n = keepFirst(n, true, <f64>topP * (topK != 0 ? sumOfWeights(n) : sum));
  startDraw();
  for (let i: u32 = 0; i < n; i++) {
    const z = (load<f32>(values + i * 4) - largest) * inverse;
    if (z >= best - MOST_NOISE) drawFour(f32x4.splat(z), i32x4.splat(load<u32>(ids + i * 4)), 1);
  }
  return bestId;
}

/** Whether candidates are missing among the `n` nearest. */
// @ts-ignore: decorator
@inline function tooFew(n: u32, sum: f64): bool {
  return topK != 0 ? n < topK : sumOfWeights(n) < <f64>topP * sum;
}

/** Lists the tokens with z of at least `least`; never those at -inf. */
function collect(x: usize, least: f32): u32 {
  const peak = f32x4.splat(largest);
  const factor = f32x4.splat(inverse);
  const border = f32x4.splat(max<f32>(least, -3.4e38));
  let n: u32 = 0;
  let c: u32 = 0;
  for (; c + 4 <= vocab; c += 4) {
    const z = f32x4.mul(f32x4.sub(v128.load(x + c * 4), peak), factor);
    const mask = i32x4.bitmask(f32x4.ge(z, border));
    if (mask == 0) continue;
    const e = exp4(z);
    if (mask & 1) n = list(n, load<f32>(x + c * 4), c, f32x4.extract_lane(e, 0));
    if (mask & 2) n = list(n, load<f32>(x + c * 4, 4), c + 1, f32x4.extract_lane(e, 1));
    if (mask & 4) n = list(n, load<f32>(x + c * 4, 8), c + 2, f32x4.extract_lane(e, 2));
    if (mask & 8) n = list(n, load<f32>(x + c * 4, 12), c + 3, f32x4.extract_lane(e, 3));
  }
  for (; c < vocab; c++) {
    const z = (load<f32>(x + c * 4) - largest) * inverse;
    if (z >= f32x4.extract_lane(border, 0)) n = list(n, load<f32>(x + c * 4), c, exp1(z));
  }
  return n;
}

// @ts-ignore: decorator
@inline function list(n: u32, logit: f32, id: u32, weight: f32): u32 {
  store<f32>(values + n * 4, logit);
  store<u32>(ids + n * 4, id);
  store<f32>(weights + n * 4, weight);
  return n + 1;
}

function sumOfWeights(n: u32): f64 {
  let sum: f64 = 0;
  for (let i: u32 = 0; i < n; i++) sum += load<f32>(weights + i * 4);
  return sum;
}

/** The bits of a float, so that unsigned order is the order of the numbers. -0 is 0. */
// @ts-ignore: decorator
@inline function orderOf(x: f32): u32 {
  const bits = reinterpret<u32>(x + 0);
  return bits & 0x80000000 ? ~bits : bits | 0x80000000;
}

/**
 * Keeps the first `goal` candidates in descending order, or the first whose weights reach `goal`, at least one.
 * The value of the last one kept is found 11, 11 and 10 bits at a time by counting: nothing is sorted.
 */
function keepFirst(n: u32, byWeight: bool, goal: f64): u32 {
  let prefix: u32 = 0;
  let above: f64 = 0;
  let shift: u32 = 21;
  let known: u32 = 0;
  let ties: u32 = 0;
  for (;;) {
    const bins: u32 = shift == 0 ? 1024 : 2048;
    memory.fill(sums, 0, bins * 8);
    memory.fill(counts, 0, bins * 4);
    for (let i: u32 = 0; i < n; i++) {
      const order = orderOf(load<f32>(values + i * 4));
      if (known != 0 && order >> (32 - known) != prefix) continue;
      const bin = (order >> shift) & (bins - 1);
      store<u32>(counts + bin * 4, load<u32>(counts + bin * 4) + 1);
      const weight: f64 = byWeight ? <f64>load<f32>(weights + i * 4) : 1;
      store<f64>(sums + bin * 8, load<f64>(sums + bin * 8) + weight);
    }
    // Should rounding leave the goal just out of reach, the last bin that holds something is taken.
    let chosen: u32 = 0;
    let before = above;
    for (let bin = bins; bin-- > 0; ) {
      if (load<u32>(counts + bin * 4) == 0) continue;
      chosen = bin;
      before = above;
      above += load<f64>(sums + bin * 8);
      if (above >= goal) break;
    }
    const reached = above >= goal;
    above = before;
    prefix = shift == 21 ? chosen : (prefix << (shift == 10 ? 11 : 10)) | chosen;
    known = 32 - shift;
    if (shift == 0) {
      const count = load<u32>(counts + chosen * 4);
      ties = count;
      if (reached) {
        const each = load<f64>(sums + chosen * 8) / count;
        ties = 1;
        while (ties < count && above + each * ties < goal) ties++;
      }
      break;
    }
    shift = shift == 21 ? 10 : 0;
  }
  let kept: u32 = 0;
  for (let i: u32 = 0; i < n; i++) {
    const order = orderOf(load<f32>(values + i * 4));
    if (order < prefix) continue;
    if (order == prefix) {
      if (ties == 0) continue;
      ties--;
    }
    kept = list(kept, load<f32>(values + i * 4), load<u32>(ids + i * 4), load<f32>(weights + i * 4));
  }
  return kept;
}
