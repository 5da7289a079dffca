import { scoreTile, widenKeys } from './attend-scores';
import { KIND_AFFINE, KIND_F16, KIND_TURBO, SIDE_BYTES, SIDE_CODES, SIDE_HEAD_BYTES, SIDE_KIND, SIDE_ROTATION, SIDE_VECTOR_BYTES, STORE_YOUNG } from '../kv-layout';
import { codeQuery, FACTS_BYTES, plainKeys, readTileMeta, scoreKeys, TILE_META_BYTES, turnQuery } from './attend-codes-keys';
import { addValues, plainValues, WEIGHT_TILE } from './attend-codes-values';
import { addFloats1, addFloats2, addHalves1, addHalves2, addRest, widenValues } from './attend-values';
import { TILE } from './kv';
import { exp1, exp4, madd, maxLanes, sumLanes } from './math';
import { rotate } from './rotation';

/** What one unit of attention (attend.ts) does with its rows: scores, weights and sums of a split, and merging splits. */
export const SPLIT: u32 = 256;
const SPLIT_BYTES: usize = 1024;
/** From so many rows on, f16 keys and values are widened once for all of them. */
const WIDEN_ROWS: u32 = 6;

// The job at hand. Globals are a thread's own.
let q: usize = 0;
let out: usize = 0;
let heads: u32 = 0;
export let kvHeads: u32 = 0;
export let dim: u32 = 0;
/** Query heads of a KV head. */
export let group: u32 = 0;
/** Most rows a unit may have. */
export let maxRows: u32 = 0;
let scale: f32 = 0;
let window: u32 = 0;
let softcap: f32 = 0;
let layer: usize = 0;
/** f32 arithmetic on codes too. */
let plain: bool = false;
// What the sequence at hand is stored in (../kv-layout.ts).
let keySide: usize = 0;
let valueSide: usize = 0;
let keyCodes: bool = false;
let valueCodes: bool = false;
let keys: usize = 0;
let values: usize = 0;
let keyHalf: bool = false;
let valueHalf: bool = false;
export let maxBlocks: u32 = 0;
let blockShift: u32 = 0;
let keyBytes: usize = 0;
let valueBytes: usize = 0;
// Scratch: queries, scores, sums of a split, sums so far, (maximum, sum) of both, widened keys and values.
let queries: usize = 0;
let scores: usize = 0;
let splitSums: usize = 0;
export let sums: usize = 0;
export let splitStats: usize = 0;
export let stats: usize = 0;
let wideKeys: usize = 0;
let wideValues: usize = 0;
// For codes: integer queries and what belongs to them, scales of a tile of keys, what values work in, and spare floats.
let codeQueries: usize = 0;
let codeFacts: usize = 0;
let tileMeta: usize = 0;
let spare: usize = 0;
let plainScratch: usize = 0;
let valueScratch: usize = 0;

/** Reads the parameters (attend.ts). */
export function setUpRows(p: usize, thread: u32): void {
  q = load<u32>(p);
  out = load<u32>(p, 4);
  heads = load<u32>(p, 20);
  kvHeads = load<u32>(p, 24);
  dim = load<u32>(p, 28);
  scale = load<f32>(p, 32);
  window = load<u32>(p, 36);
  softcap = load<f32>(p, 40);
  layer = load<u32>(p, 44);
  plain = load<u32>(p, 48) != 0;
  maxBlocks = load<u32>(p, 64);
  blockShift = load<u32>(p, 68);
  const scratch: usize = load<u32>(p, 72) + load<u32>(p, 76) * thread;
  maxRows = load<u32>(p, 88);
  group = heads / kvHeads;

  queries = scratch;
  scores = queries + maxRows * dim * 4;
  splitSums = scores + maxRows * SPLIT_BYTES;
  sums = splitSums + maxRows * dim * 4;
  splitStats = sums + maxRows * dim * 4;
  stats = splitStats + maxRows * 8;
  wideKeys = stats + maxRows * 8;
  wideValues = wideKeys + TILE * dim * 4;
  codeQueries = wideValues + SPLIT * 64;
  codeFacts = codeQueries + maxRows * dim * 2;
  tileMeta = codeFacts + maxRows * FACTS_BYTES;
  spare = tileMeta + TILE_META_BYTES;
  plainScratch = spare + dim * 8;
  valueScratch = plainScratch + SPLIT * 64;
}

/** Young sequences are kept in the other half of the store. */
export function useTable(table: usize): void {
  const young = load<u32>(table) >= load<u32>(layer, STORE_YOUNG);
  keySide = layer + (young ? 2 * SIDE_BYTES : 0);
  valueSide = keySide + SIDE_BYTES;
  const keyKind = load<i32>(keySide, SIDE_KIND);
  const valueKind = load<i32>(valueSide, SIDE_KIND);
  keyCodes = keyKind >= KIND_AFFINE;
  valueCodes = valueKind >= KIND_AFFINE;
  keyHalf = keyKind == KIND_F16;
  valueHalf = valueKind == KIND_F16;
  keys = load<u32>(keySide, SIDE_CODES);
  values = load<u32>(valueSide, SIDE_CODES);
  keyBytes = load<u32>(keySide, SIDE_HEAD_BYTES);
  valueBytes = load<u32>(valueSide, SIDE_HEAD_BYTES);
}

/** The first position that a token sees. */
// @ts-ignore: decorator
@inline export function firstSeen(position: u32): u32 {
  return window != 0 && position >= window ? position - window + 1 : 0;
}

/** The rows of a unit, scaled. f16 keys are 2^-112 too small: 2^100 is put here and 2^12 on the score. */
export function takeQueries(h: u32, token: u32, count: u32): void {
  if (keyCodes) {
    for (let r: u32 = 0; r < count * group; r++) {
      const from: usize = q + ((token + r / group) * heads + h * group + (r % group)) * dim * 4;
      const turned = queries + r * dim * 4;
      turnQuery(keySide, from, turned, spare, dim);
      if (!plain) codeQuery(keySide, turned, codeQueries + r * dim * 2, codeFacts + r * FACTS_BYTES, dim, scale);
      else for (let d: u32 = 0; d < dim; d++) store<f32>(turned + d * 4, load<f32>(turned + d * 4) * scale);
    }
    return;
  }
  const factor = f32x4.splat(keyHalf ? scale * <f32>1.2676506002282294e30 : scale);
  let to = queries;
  for (let i: u32 = 0; i < count; i++) {
    let from: usize = q + ((token + i) * heads + h * group) * dim * 4;
    for (let c: u32 = 0; c < group * dim; c += 4, from += 16, to += 16) {
      v128.store(to, f32x4.mul(v128.load(from), factor));
    }
  }
}

/** `sum / weight` of every row to the output. */
export function give(h: u32, token: u32, count: u32): void {
  for (let r: u32 = 0; r < count * group; r++) {
    const to: usize = out + ((token + r / group) * heads + h * group + (r % group)) * dim * 4;
    const from: usize = sums + r * dim * 4;
    const inverse = f32x4.splat(<f32>1 / load<f32>(stats + r * 8, 4));
    for (let d: u32 = 0; d < dim; d += 4) v128.store(to + d * 4, f32x4.mul(v128.load(from + d * 4), inverse));
    if (load<i32>(valueSide, SIDE_KIND) == KIND_TURBO) rotate(load<u32>(valueSide, SIDE_ROTATION), to, spare, dim, true);
  }
}

/** One split for all rows of a unit; merged into `sums` and `stats`, or put there if it is the first. */
export function attendSplit(table: usize, h: u32, split: u32, first: u32, count: u32, fresh: bool): void {
  const base = split * SPLIT;
  const a = seenFrom(first, base);
  const b = min<u32>(first + count - base, SPLIT);
  if (keyCodes && !plain) scoreCodes(table, h, base, a, b, first, count);
  else scoreSplit(table, h, base, a, b, first, count);

  for (let i: u32 = 0; i < count; i++) {
    const ra = seenFrom(first + i, base);
    const rb = seenTo(first + i, base);
    for (let g: u32 = 0; g < group; g++) {
      const r = i * group + g;
      const row = scores + r * SPLIT_BYTES;
      if (ra < rb) weigh(row, ra, rb, splitStats + r * 8);
      if (valueCodes && !plain) clearUnseen(row, ra < rb ? ra : b, ra < rb ? rb : b, a, b);
    }
  }
  memory.fill(splitSums, 0, count * group * dim * 4);
  if (!valueCodes) addSplit(table, h, base, a, b, first, count);
  else if (plain) addPlain(table, h, base, a, b, first, count);
  else {
    addValues(
      valueSide, table, h, kvHeads, blockShift, dim, base, a, b, count * group, scores, splitSums, wideValues, valueScratch,
    );
  }
  for (let i: u32 = 0; i < count; i++) {
    const from = firstSeen(first + i);
    const seen = from < base + SPLIT && first + i + 1 > base;
    if (!seen) continue;
    const starts = fresh || from >= base;
    for (let g: u32 = 0; g < group; g++) {
      const r = i * group + g;
      merge(r, splitSums + r * dim * 4, starts);
    }
  }
}

/** Zeros for what a row does not see of the tiles that [a, b) touches. */
function clearUnseen(row: usize, from: u32, to: u32, a: u32, b: u32): void {
  const begin = a & ~(WEIGHT_TILE - 1);
  const end = (b + WEIGHT_TILE - 1) & ~(WEIGHT_TILE - 1);
  memory.fill(row + begin * 4, 0, (from - begin) * 4);
  memory.fill(row + to * 4, 0, (end - to) * 4);
}

/** As scoreSplit, where keys are codes: tiles of 8. */
function scoreCodes(table: usize, h: u32, base: u32, a: u32, b: u32, first: u32, count: u32): void {
  const blockMask: u32 = (1 << blockShift) - 1;
  const vectorBytes = load<u32>(keySide, SIDE_VECTOR_BYTES);
  for (let t = a & ~7; t < b; t += 8) {
    const position = base + t;
    const i0 = position > first ? position - first : 0;
    let i1 = count;
    while (i1 > i0 && firstSeen(first + i1 - 1) >= position + 8) i1--;
    if (i0 >= i1) continue;
    const block = load<u32>(table + (position >> blockShift) * 4);
    const inBlock = position & blockMask;
    const tile: usize = keys + (block * kvHeads + h) * keyBytes + inBlock * vectorBytes;
    readTileMeta(keySide, block, h, kvHeads, inBlock, blockShift, dim, tileMeta);
    const row = i0 * group;
    scoreKeys(
      keySide, tile, codeQueries + row * dim * 2, codeFacts + row * FACTS_BYTES, tileMeta, dim, (i1 - i0) * group,
      scores + row * SPLIT_BYTES + t * 4, wideKeys,
    );
  }
}

/** Scores of keys `[a, b)` of the split for the rows that see them. */
function scoreSplit(table: usize, h: u32, base: u32, a: u32, b: u32, first: u32, count: u32): void {
  const unit: f32 = keyHalf ? 4096 : 1;
  const blockMask: u32 = (1 << blockShift) - 1;
  const keySize: u32 = keyHalf ? 2 : 4;
  for (let t = a & ~(TILE - 1); t < b; t += TILE) {
    const position = base + t;
    const block = load<u32>(table + (position >> blockShift) * 4);
    const inBlock = position & blockMask;
    const place: usize = keys + (block * kvHeads + h) * keyBytes;
    // Rows of tokens from the first that reaches this tile to the last whose window still has it.
    const i0 = position > first ? position - first : 0;
    let i1 = count;
    while (i1 > i0 && firstSeen(first + i1 - 1) >= position + TILE) i1--;
    if (i0 >= i1) continue;
    const rows = (i1 - i0) * group;
    const row = i0 * group;
    const to: usize = scores + row * SPLIT_BYTES + t * 4;
    const from: usize = queries + row * dim * 4;
    const tile = place + inBlock * dim * keySize;
    if (keyCodes) {
      for (let i: u32 = inBlock; i < inBlock + TILE; i += 8) {
        readTileMeta(keySide, block, h, kvHeads, i, blockShift, dim, tileMeta);
        const at = place + i * load<u32>(keySide, SIDE_VECTOR_BYTES);
        plainKeys(keySide, at, tileMeta, dim, plainScratch, wideKeys + (i - inBlock) * 4);
      }
      scoreTile(wideKeys, false, from, dim, rows, to, 1);
    } else if (keyHalf && rows >= WIDEN_ROWS) {
      widenKeys(tile, wideKeys, dim);
      scoreTile(wideKeys, false, from, dim, rows, to, unit);
    } else {
      scoreTile(tile, keyHalf, from, dim, rows, to, unit);
    }
  }
}

/** Scores `[a, b)` of a row to weights; their maximum and sum to `to`. */
function weigh(row: usize, a: u32, b: u32, to: usize): void {
  const from = a & ~3;
  const until = (b + 3) & ~3;
  if (softcap != 0) {
    // c tanh(s / c) = c (1 - 2 / (e^(2 s / c) + 1))
    const twice = f32x4.splat(<f32>2 / softcap);
    const cap = f32x4.splat(softcap);
    const one = f32x4.splat(1);
    for (let t = from; t < until; t += 4) {
      const e = exp4(f32x4.mul(v128.load(row + t * 4), twice));
      const tanh = f32x4.sub(one, f32x4.div(f32x4.splat(2), f32x4.add(e, one)));
      v128.store(row + t * 4, f32x4.mul(cap, tanh));
    }
  }
  for (let t = from; t < a; t++) store<f32>(row + t * 4, -Infinity);
  for (let t = b; t < until; t++) store<f32>(row + t * 4, -Infinity);
  // A NaN may be passed over here: its exponential is NaN, and so is the sum.
  let most = v128.load(row + from * 4);
  for (let t = from + 4; t < until; t += 4) most = f32x4.pmax(most, v128.load(row + t * 4));
  const m = maxLanes(most);
  const peak = f32x4.splat(m);
  // f16 values are 2^-112 too small: the weights make up for it.
  const factor = f32x4.splat(valueHalf ? <f32>5.192296858534828e33 : 1);
  let sum = f32x4.splat(0);
  for (let t = from; t < until; t += 4) {
    const e = exp4(f32x4.sub(v128.load(row + t * 4), peak));
    sum = f32x4.add(sum, e);
    v128.store(row + t * 4, f32x4.mul(e, factor));
  }
  store<f32>(to, m);
  store<f32>(to, sumLanes(sum), 4);
}

/** Weighted sums of V over `[a, b)` of the split into `splitSums`. */
function addSplit(table: usize, h: u32, base: u32, a: u32, b: u32, first: u32, count: u32): void {
  const size: u32 = valueHalf ? 2 : 4;
  const whole = dim & ~15;
  const rest = dim - whole;
  const wide = valueHalf && count * group >= WIDEN_ROWS;
  // Many rows: 16 columns of the whole split at a time, widened once. Few: a block at a time, as it lies in memory.
  if (wide) {
    for (let d: u32 = 0; d < whole; d += 16) {
      for (let t = a; t < b; ) {
        const stop = blockEnd(base, t, b);
        widenValues(valuesAt(table, h, base + t, d, 16, 2), stop - t, wideValues + t * 64);
        t = stop;
      }
      addTokens(wideValues + a * 64, false, 0, 64, a, b, base, first, count, d);
    }
    if (rest == 0) return;
  }
  for (let t = a; t < b; ) {
    const stop = blockEnd(base, t, b);
    if (!wide) {
      for (let d: u32 = 0; d < whole; d += 16) {
        addTokens(valuesAt(table, h, base + t, d, 16, size), valueHalf, 0, 16 * size, t, stop, base, first, count, d);
      }
    }
    if (rest != 0) {
      const v = valuesAt(table, h, base + t, whole, rest, size);
      addTokens(v, valueHalf, rest, rest * size, t, stop, base, first, count, whole);
    }
    t = stop;
  }
}

/** As addSplit, with codes turned into floats. */
function addPlain(table: usize, h: u32, base: u32, a: u32, b: u32, first: u32, count: u32): void {
  for (let d: u32 = 0; d < dim; d += 16) {
    plainValues(
      valueSide, table, h, kvHeads, blockShift, dim, base, a, b, d, wideValues, valueScratch, plainScratch,
    );
    addTokens(plainScratch, false, 0, 64, a, b, base, first, count, d);
  }
}

/** The end, within the split, of the block that position `t` of the split is in; at most `b`. */
// @ts-ignore: decorator
@inline function blockEnd(base: u32, t: u32, b: u32): u32 {
  const blockTokens: u32 = 1 << blockShift;
  return min<u32>(b, t + blockTokens - ((base + t) & (blockTokens - 1)));
}

/** Where `width` columns from `d` on of the V of a position lie. */
// @ts-ignore: decorator
@inline function valuesAt(table: usize, h: u32, position: u32, d: u32, width: u32, size: u32): usize {
  const blockTokens: u32 = 1 << blockShift;
  const block = load<u32>(table + (position >> blockShift) * 4);
  const inBlock = position & (blockTokens - 1);
  return values + (block * kvHeads + h) * valueBytes + (d * blockTokens + inBlock * width) * size;
}

/**
 * V of positions `[a, b)` of the split, lying in a row from `v`, for each row as far as it sees them. Rows go in pairs
 * over what both see; what one of them sees before or after goes alone, so the order of its sum stays.
 */
function addTokens(
  v: usize, half: bool, rest: u32, step: u32, a: u32, b: u32, base: u32, first: u32, count: u32, d: u32,
): void {
  const rows = count * group;
  for (let r: u32 = 0; r < rows; r += 2) {
    const i = first + r / group;
    const from = max<u32>(a, seenFrom(i, base));
    const to = min<u32>(b, seenTo(i, base));
    if (r + 1 == rows) {
      addRow(v, half, rest, step, a, from, to, r, d);
      break;
    }
    const j = first + (r + 1) / group;
    const from2 = max<u32>(a, seenFrom(j, base));
    const to2 = min<u32>(b, seenTo(j, base));
    const low = max<u32>(from, from2);
    const high = min<u32>(to, to2);
    if (rest != 0 || low >= high) {
      addRow(v, half, rest, step, a, from, to, r, d);
      addRow(v, half, rest, step, a, from2, to2, r + 1, d);
      continue;
    }
    addRow(v, half, 0, step, a, from, low, r, d);
    addRow(v, half, 0, step, a, from2, low, r + 1, d);
    const weights: usize = scores + r * SPLIT_BYTES + low * 4;
    const acc: usize = splitSums + (r * dim + d) * 4;
    if (half) addHalves2(v + (low - a) * step, weights, SPLIT_BYTES, high - low, acc, dim * 4);
    else addFloats2(v + (low - a) * step, weights, SPLIT_BYTES, high - low, acc, dim * 4);
    addRow(v, half, 0, step, a, high, to, r, d);
    addRow(v, half, 0, step, a, high, to2, r + 1, d);
  }
}

/** The part of a split, at `base`, that the token at `position` sees. */
// @ts-ignore: decorator
@inline function seenFrom(position: u32, base: u32): u32 {
  const from = firstSeen(position);
  return from > base ? from - base : 0;
}

// @ts-ignore: decorator
@inline function seenTo(position: u32, base: u32): u32 {
  return position + 1 > base ? min<u32>(position + 1 - base, SPLIT) : 0;
}

// @ts-ignore: decorator
@inline function addRow(
  v: usize, half: bool, rest: u32, step: u32, a: u32, from: u32, to: u32, r: u32, d: u32,
): void {
  if (from >= to) return;
  const at: usize = v + (from - a) * step;
  const weights: usize = scores + r * SPLIT_BYTES + from * 4;
  const acc: usize = splitSums + (r * dim + d) * 4;
  if (rest != 0) addRest(at, half, rest, weights, to - from, acc);
  else if (half) addHalves1(at, weights, to - from, acc);
  else addFloats1(at, weights, to - from, acc);
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
    memory.copy(to, part, dim * 4);
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
