import {
  BLOCK, BOUNDS_BYTES, CHUNK, F_FORCED, F_LOGPROBS, F_MIROSTAT, F_PENALTIES, F_PROCESSED, F_SIGMA, F_TYPICAL, F_XTC,
  HISTOGRAM_BYTES, PART_BYTES, P_CHOICE, P_FEATURES, P_FORCED, P_POSITION, P_SEED_HIGH, P_SEED_LOW, P_TEMPERATURE,
  P_TOP_K, P_TOP_P, SPAN, S_RAW, TOP_BYTES, W_BLOCKS, W_BOUNDS, W_CHUNKS, W_HISTOGRAMS, W_LISTS, W_LISTS_STRIDE,
  W_LOGITS, W_OUTPUT_SLOTS, W_PARTS, W_RESULT, W_ROWS_AT, W_SAMPLING, W_SAMPLING_STRIDE, W_SLOTS, W_STATES, W_TOPS,
  W_VOCAB,
} from '../sample-words';

/**
 * What the jobs of the sampler share: where things lie, and the row at hand. A global belongs to one thread: every
 * thread has its own instance.
 */
export let logits: usize = 0;
export let vocab: u32 = 0;
export let rows: u32 = 0;
export let chunks: u32 = 0;
export let spans: u32 = 0;
/** Blocks of a row. */
export let blocks: u32 = 0;
export let result: usize = 0;
/** Lists of this thread. */
export let lists: usize = 0;
let sampling: usize = 0;
let stride: usize = 0;
let parts: usize = 0;
let blockMaxima: usize = 0;
let allBounds: usize = 0;
let histograms: usize = 0;
let tops: usize = 0;
let outputSlots: usize = 0;
let states: usize = 0;
let slots: u32 = 0;

// What a scan notes of a chunk: its largest logit and the lowest id that has it, and whether something in it makes
// the row invalid; then the best draw, or sums over what the row keeps of the chunk.
export const PART_MAX: usize = 0;
export const PART_ID: usize = 4;
export const PART_ODD: usize = 8;
export const PART_FINITE: usize = 12;
export const PART_BEST: usize = 16;
export const PART_BEST_ID: usize = 20;
export const PART_BEFORE: usize = 24;
/** Σ e^z, Σ z e^z. */
export const PART_SUM: usize = 32;
export const PART_MOMENT: usize = 40;
/** Mean of the finite logits, and the sum of their squared distances from it. */
export const PART_MEAN: usize = 48;
export const PART_SQUARES: usize = 56;

export const MOST: u32 = 0xffffffff;
export const INVALID: u32 = 0xffffffff;
/** Less than any z of a finite logit that weighs anything. */
export const LEAST_Z: f32 = -3.4e38;
/** Tokens further from the largest than this weigh nothing: 2^18 of them come to 2.5e-8. */
export const FAINT: f32 = -30;

export function setUp(p: usize, thread: u32): void {
  logits = word(p, W_LOGITS);
  vocab = word(p, W_VOCAB);
  rows = load<u32>(word(p, W_ROWS_AT));
  chunks = word(p, W_CHUNKS);
  spans = (vocab + SPAN - 1) / SPAN;
  blocks = (vocab + BLOCK - 1) / BLOCK;
  sampling = word(p, W_SAMPLING);
  stride = word(p, W_SAMPLING_STRIDE);
  parts = word(p, W_PARTS);
  blockMaxima = word(p, W_BLOCKS);
  allBounds = word(p, W_BOUNDS);
  histograms = word(p, W_HISTOGRAMS);
  tops = word(p, W_TOPS);
  lists = word(p, W_LISTS) + thread * word(p, W_LISTS_STRIDE);
  result = word(p, W_RESULT);
  outputSlots = word(p, W_OUTPUT_SLOTS);
  states = word(p, W_STATES);
  slots = word(p, W_SLOTS);
}

// @ts-ignore: decorator
@inline export function word(at: usize, index: u32): u32 {
  return load<u32>(at + index * 4);
}

// @ts-ignore: decorator
@inline export function parameter(row: u32, column: u32): u32 {
  return load<u32>(sampling + column * stride + row * 4);
}

// @ts-ignore: decorator
@inline export function number(row: u32, column: u32): f32 {
  return load<f32>(sampling + column * stride + row * 4);
}

// @ts-ignore: decorator
@inline export function featuresOf(row: u32): u32 {
  return parameter(row, P_FEATURES);
}

// @ts-ignore: decorator
@inline export function rowLogits(row: u32): usize {
  return logits + <usize>row * vocab * 4;
}

// @ts-ignore: decorator
@inline export function partOf(row: u32, chunk: u32): usize {
  return parts + (row * chunks + chunk) * PART_BYTES;
}

// @ts-ignore: decorator
@inline export function topOf(row: u32, chunk: u32): usize {
  return tops + (row * chunks + chunk) * TOP_BYTES;
}

// @ts-ignore: decorator
@inline export function blocksOf(row: u32): usize {
  return blockMaxima + row * blocks * 4;
}

// @ts-ignore: decorator
@inline export function boundsOf(row: u32): usize {
  return allBounds + row * BOUNDS_BYTES;
}

// @ts-ignore: decorator
@inline export function histogramOf(row: u32, span: u32): usize {
  return histograms + (row * spans + span) * HISTOGRAM_BYTES;
}

/** The state of a row's slot, 0 if it has none. */
export function stateOf(row: u32): usize {
  const slot = word(outputSlots, row);
  return slot < slots ? word(states, slot) : 0;
}

/** Whether a row's log-probabilities are of logits that its penalties change. */
// @ts-ignore: decorator
@inline export function wantsRaw(features: u32): bool {
  return (features & (F_LOGPROBS | F_PROCESSED)) == F_LOGPROBS && (features & F_PENALTIES) != 0;
}

/** The logits that a row's log-probabilities are of. */
export function sourceOf(row: u32): usize {
  if (!wantsRaw(featuresOf(row))) return rowLogits(row);
  const state = stateOf(row);
  return state == 0 ? 0 : word(state, S_RAW);
}

// The row at hand, its parameters, and what the scan found.
export let features: u32 = 0;
/** 0: nothing is drawn. */
export let temperature: f32 = 0;
export let inverse: f32 = 0;
export let topK: u32 = 0;
export let topP: f32 = 1;
export let largest: f32 = 0;
export let largestId: u32 = 0;
// The row's words of the random number (random.ts), before the token enters.
export let seedX: u32 = 0;
export let seedY: u32 = 0;
export let seedZ: u32 = 0;

/** Reads a row's parameters and merges what the scan found. False if there is nothing to draw from. */
export function readRow(row: u32): bool {
  features = featuresOf(row);
  temperature = features & F_FORCED ? 0 : number(row, P_TEMPERATURE);
  topK = parameter(row, P_TOP_K);
  topP = number(row, P_TOP_P);
  if (features & F_MIROSTAT) {
    features &= ~(F_TYPICAL | F_SIGMA | F_XTC);
    topK = 0;
    topP = 1;
  }
  if (topK >= vocab) topK = 0;
  largest = -Infinity;
  largestId = 0;
  for (let c: u32 = 0; c < chunks; c++) {
    const part = partOf(row, c);
    if (load<u32>(part, PART_ODD) != 0) return false;
    const m = load<f32>(part, PART_MAX);
    if (m > largest) {
      largest = m;
      largestId = load<u32>(part, PART_ID);
    }
  }
  if (abs<f32>(largest) == Infinity) return false;
  if (temperature > 0) {
    inverse = min<f32>(<f32>1 / temperature, 3e38);
    seedX = parameter(row, P_SEED_LOW) * 1664525 + 1013904223;
    seedY = (parameter(row, P_SEED_HIGH) ^ (parameter(row, P_CHOICE) * 0x9e3779b9)) * 1664525 + 1013904223;
    seedZ = parameter(row, P_POSITION) * 1664525 + 1013904223;
  }
  return true;
}

export function setFeatures(value: u32): void {
  features = value;
}

/** As readRow, and true only if the row draws. */
export function readDraw(row: u32): bool {
  return readRow(row) && temperature > 0;
}

export function forcedToken(row: u32): u32 {
  return parameter(row, P_FORCED);
}

/** z of four logits. */
// @ts-ignore: decorator
@inline export function scaled(x: v128): v128 {
  return f32x4.mul(f32x4.sub(x, f32x4.splat(largest)), f32x4.splat(inverse));
}

/** z of a block's largest logit. */
// @ts-ignore: decorator
@inline export function blockZ(maxima: usize, block: u32): f32 {
  return (load<f32>(maxima + block * 4) - largest) * inverse;
}

/** Four logits from token c on; -∞ behind the last. */
// @ts-ignore: decorator
@inline export function four(x: usize, c: u32): v128 {
  return c + 4 <= vocab ? v128.load(x + <usize>c * 4) : rest(x, c);
}

function rest(x: usize, c: u32): v128 {
  let v = f32x4.splat(-Infinity);
  v = f32x4.replace_lane(v, 0, load<f32>(x + <usize>c * 4));
  if (c + 1 < vocab) v = f32x4.replace_lane(v, 1, load<f32>(x + <usize>c * 4, 4));
  if (c + 2 < vocab) v = f32x4.replace_lane(v, 2, load<f32>(x + <usize>c * 4, 8));
  return v;
}

// @ts-ignore: decorator
@inline export function idsFrom(c: u32): v128 {
  return i32x4.add(i32x4.splat(c), i32x4(0, 1, 2, 3));
}

// @ts-ignore: decorator
@inline export function chunkEnd(chunk: u32): u32 {
  return min<u32>((chunk + 1) * CHUNK, vocab);
}
