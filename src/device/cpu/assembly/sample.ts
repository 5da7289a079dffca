/**
 * Draws one id for each row of logits (../../sampling.ts says what that means).
 *
 * A list of jobs, each a command of its own, each passed over when no row of the step wants it. Passes over the logits
 * are shared out by chunks, decisions about a row are one thread's. A pass notes what it found beside its chunk, and
 * whoever needs it merges the chunks in order: chunks are fixed, so a row's bits do not depend on the threads.
 *
 * - *raw*: log-probabilities of logits that are about to change. *mask*, *adjust*: penalties, in place.
 * - *scan*: the largest logit of every block, chunk and row. No later pass reads a block that cannot matter.
 * - *histogram*, *prefix*: the border of top-k and top-p. *moments*, *deviations*, *shape*: those of typical-p,
 *   top-n-sigma and mirostat. *rest*, *xtc*: that of XTC. What a row keeps is a handful of bounds (sample-bounds.ts).
 * - *draw*: the largest z + noise of each chunk; *finish*: of each row, and the token goes into the row's state.
 * - *rank*, *record*: the log-probability of that token.
 *
 * What they read of a row of V logits, 4 V bytes: greedy, and top-k with a small k: all once, in the scan. A draw: once
 * more, and with top-k or min-p only the blocks that reach the border. Top-p alone, or a large k: in the scan, the
 * histogram, for the bin of the border, and in the draw what is kept; blocks too faint to weigh anything in the scan
 * only. Typical-p and mirostat: once more for the moments, typical-p twice more for its histogram and border. XTC:
 * what is kept, twice. Log-probabilities: in the scan, while the chunk is at hand, and those chunks in which something
 * may come before the token. A mask: V / 8 bytes and the logits near what it forbids. Penalties: 16 bytes and a logit
 * for each different id of the history, and 8 bytes for each token within DRY's window.
 */
import {
  BLOCK, CHUNK, F_FORCED, F_LOGPROBS, F_MASK, F_MIROSTAT, F_PENALTIES, F_SIGMA, F_TYPICAL, JOB_ADJUST, JOB_DEVIATIONS,
  JOB_DRAW, JOB_FINISH, JOB_HISTOGRAM, JOB_MASK, JOB_MOMENTS, JOB_PREFIX, JOB_RAW, JOB_RECORD, JOB_REST, JOB_SCAN,
  JOB_SHAPE, JOB_XTC, P_POSITION, W_JOB,
} from '../sample-words';
import { exp4, maxLanes, share } from './math';
import { adjust, clampChunk, maskChunk } from './sample-adjust';
import { isClosed, kept4, least, leastZ, loadBounds, openBounds, shaped, storeBounds } from './sample-bounds';
import { gatherRaw, gatherTop, rankChunk, writeRecord } from './sample-logprobs';
import { MOST_NOISE, noise, randomWords } from './sample-noise';
import { findPrefix, histogram, wantsHistogram, wantsPrefix } from './sample-prefix';
import {
  INVALID, LEAST_Z, MOST, PART_BEST, PART_BEST_ID, PART_ID, PART_MAX, PART_ODD, blockZ, blocksOf, chunkEnd, chunks,
  features, featuresOf, forcedToken, four, idsFrom, largestId, parameter, partOf, readDraw, readRow, result, rowLogits,
  rows, scaled, setFeatures, setUp, spans, stateOf, temperature, wantsRaw, word,
} from './sample-row';
import { deviations, mirostat, moments, shape, spread, strikes, xtc } from './sample-shape';
import { absorb } from './sample-state';

export function sample(p: usize, thread: u32, threads: u32): void {
  setUp(p, thread);
  const job = word(p, W_JOB);
  switch (job) {
    case JOB_ADJUST:
    case JOB_PREFIX:
    case JOB_SHAPE:
    case JOB_XTC:
    case JOB_FINISH:
    case JOB_RECORD: {
      const stop = share(rows, thread + 1, threads);
      for (let row = share(rows, thread, threads); row < stop; row++) runRow(job, row);
      break;
    }
    default: {
      const pieces = job == JOB_HISTOGRAM || job == JOB_DEVIATIONS ? spans : chunks;
      const stop = share(rows * pieces, thread + 1, threads);
      for (let i = share(rows * pieces, thread, threads); i < stop; i++) runPiece(job, i / pieces, i % pieces);
    }
  }
}

function runRow(job: u32, row: u32): void {
  switch (job) {
    case JOB_ADJUST: adjust(row); break;
    case JOB_PREFIX: if (readDraw(row) && wantsPrefix()) findPrefix(row); break;
    case JOB_SHAPE: if (readDraw(row) && (features & (F_TYPICAL | F_SIGMA | F_MIROSTAT))) shape(row); break;
    case JOB_XTC: if (readDraw(row) && strikes(row)) xtc(row); break;
    case JOB_FINISH: finish(row); break;
    default: writeRecord(row);
  }
}

function runPiece(job: u32, row: u32, piece: u32): void {
  switch (job) {
    case JOB_RAW: if (wantsRaw(featuresOf(row))) gatherRaw(row, piece); break;
    case JOB_MASK: if (featuresOf(row) & F_MASK) maskChunk(row, piece); break;
    case JOB_SCAN: scanPiece(row, piece); break;
    case JOB_HISTOGRAM: if (readDraw(row) && wantsHistogram()) histogram(row, piece); break;
    case JOB_MOMENTS: if (readDraw(row) && (features & (F_TYPICAL | F_MIROSTAT))) moments(row, piece); break;
    case JOB_DEVIATIONS: if (readDraw(row) && (features & F_TYPICAL)) deviations(row, piece); break;
    case JOB_REST: if (readDraw(row) && strikes(row)) moments(row, piece); break;
    case JOB_DRAW: if (readDraw(row)) draw(row, piece); break;
    default: if (featuresOf(row) & F_LOGPROBS) rankChunk(row, piece);
  }
}

function scanPiece(row: u32, chunk: u32): void {
  const own = featuresOf(row);
  if (chunk == 0) {
    setFeatures(own);
    openBounds(row);
    storeBounds(row);
  }
  const x = rowLogits(row);
  const from = chunk * CHUNK;
  const to = chunkEnd(chunk);
  if (own & F_PENALTIES) clampChunk(x, from, to);
  scan(x, from, to, partOf(row, chunk), blocksOf(row));
  if (own & F_SIGMA) spread(row, chunk);
  if (own & F_LOGPROBS && !wantsRaw(own)) gatherTop(row, chunk, x);
}

/** Largest logit of each block of a chunk, and of the chunk with its lowest id; and whether there is a NaN. */
function scan(x: usize, from: u32, to: u32, part: usize, maxima: usize): void {
  let m: f32 = -Infinity;
  let where = from;
  // pmax passes over NaN, which is looked for beside it.
  let odd = f32x4.splat(0);
  for (let start = from; start < to; start += BLOCK) {
    const end = min<u32>(start + BLOCK, to);
    let a = f32x4.splat(-Infinity);
    let b = a;
    let d = a;
    let e = a;
    let c = start;
    for (; c + 16 <= end; c += 16) {
      const at: usize = x + <usize>c * 4;
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
    for (; c < end; c += 4) {
      const w = four(x, c);
      a = f32x4.pmax(a, w);
      odd = v128.or(odd, f32x4.ne(w, w));
    }
    const own = maxLanes(f32x4.pmax(f32x4.pmax(a, b), f32x4.pmax(d, e)));
    store<f32>(maxima + start / BLOCK * 4, own);
    if (own > m) {
      m = own;
      where = start;
    }
  }
  let id = where;
  if (m > -Infinity) {
    const wanted = f32x4.splat(m);
    while (!v128.any_true(f32x4.eq(four(x, id), wanted))) id += 4;
    while (load<f32>(x + <usize>id * 4) != m) id++;
  }
  store<f32>(part, m, PART_MAX);
  store<u32>(part, id, PART_ID);
  store<u32>(part, v128.any_true(odd) ? 1 : 0, PART_ODD);
}

// The best noisy logit so far, the lowest id of a tie.
let best: f32 = 0;
let bestId: u32 = 0;

function startBest(value: f32, id: u32): void {
  best = value;
  bestId = id;
}

// @ts-ignore: decorator
@inline function takeBest(value: f32, id: u32): void {
  if (value > best || (value == best && id < bestId)) {
    best = value;
    bestId = id;
  }
}

function draw(row: u32, chunk: u32): void {
  loadBounds(row);
  startDraw();
  const x = rowLogits(row);
  const maxima = blocksOf(row);
  const to = chunkEnd(chunk);
  for (let start = chunk * CHUNK; start < to; start += BLOCK) {
    if (!(load<f32>(maxima + start / BLOCK * 4) >= least)) continue;
    if (!(blockZ(maxima, start / BLOCK) >= max<f32>(leastZ, best - MOST_NOISE))) continue;
    drawRange(x, start, min<u32>(start + BLOCK, to));
  }
  const part = partOf(row, chunk);
  store<f32>(part, best, PART_BEST);
  store<u32>(part, bestId, PART_BEST_ID);
  if (features & F_MIROSTAT) moments(row, chunk);
}

/** Unless shapes are at work the largest logit is kept: the search starts from it. */
function startDraw(): void {
  if (shaped) startBest(-3.4e38, INVALID);
  else startBest(f32x4.extract_lane(noise(i32x4.splat(largestId)), 0), largestId);
}

/** Noisy logits of tokens `[from, to)`. Most are too small for any noise. */
function drawRange(x: usize, from: u32, to: u32): void {
  const closed = isClosed();
  for (let c = from; c < to; c += 4) {
    const v = four(x, c);
    const z = scaled(v);
    let keep = f32x4.ge(z, f32x4.splat(max<f32>(best - MOST_NOISE, LEAST_Z)));
    if (!v128.any_true(keep)) continue;
    const ids = idsFrom(c);
    if (closed) {
      keep = v128.and(keep, kept4(v, z, ids));
      if (!v128.any_true(keep)) continue;
    }
    keep = v128.and(keep, hopes(z, ids));
    if (!v128.any_true(keep)) continue;
    const noisy = v128.bitselect(f32x4.add(z, noise(ids)), f32x4.splat(-Infinity), keep);
    takeBest(f32x4.extract_lane(noisy, 0), c);
    takeBest(f32x4.extract_lane(noisy, 1), c + 1);
    takeBest(f32x4.extract_lane(noisy, 2), c + 2);
    takeBest(f32x4.extract_lane(noisy, 3), c + 3);
  }
}

/**
 * Which of four tokens may beat the best: a test without logarithms. `-ln(-ln u) > t` needs `1 - u < e^-t`, for
 * `1 - u <= -ln u`. A little is allowed for rounding.
 */
// @ts-ignore: decorator
@inline function hopes(z: v128, ids: v128): v128 {
  const left = v128.xor(i32x4.shr_u(randomWords(ids), 9), i32x4.splat(0x7fffff));
  const above = f32x4.mul(f32x4.convert_i32x4_s(left), f32x4.splat(1.1920928955078125e-7));
  const needed = exp4(f32x4.sub(z, f32x4.splat(best)));
  return f32x4.le(above, f32x4.mul(needed, f32x4.splat(1.001)));
}

function finish(row: u32): void {
  let id = INVALID;
  if (readRow(row)) {
    if (features & F_FORCED) {
      id = forcedToken(row);
    } else if (temperature > 0) {
      id = mergeDraws(row);
      if (features & F_MIROSTAT) mirostat(row, id);
    } else {
      id = largestId;
    }
    const state = stateOf(row);
    if (state != 0 && features != 0) absorb(state, parameter(row, P_POSITION), id);
  }
  store<u32>(result + row * 4, id);
}

function mergeDraws(row: u32): u32 {
  startBest(-3.4e38, MOST);
  for (let c: u32 = 0; c < chunks; c++) {
    const part = partOf(row, c);
    takeBest(load<f32>(part, PART_BEST), load<u32>(part, PART_BEST_ID));
  }
  return bestId;
}
