import { readTileMeta, plainKeys } from './attend-codes-keys';
import { plainValues } from './attend-codes-values';
import {
  blockShift, dim, firstReaching, group, keyBytes, keyCodes, keyHalf, keys, keySide, kvHeads, partFrom, plainScratch, queries, scores,
  seenFrom, seenTo, SPLIT_BYTES, splitSums, storedHead, storedHeads, tileMeta, valueBytes, valueFrom, valueHalf, values, valueScratch,
  valueSide, wideKeys, wideValues,
} from './attend-job';
import { scoreTile, widenKeys } from './attend-scores';
import { addFloats1, addFloats2, addFloats6, addHalves1, addHalves2, addRest, widenValues } from './attend-values';
import { SIDE_VECTOR_BYTES } from '../kv-layout';
import { TILE } from './kv';
import { storeTransposed } from './math';

/**
 * Scores and weighted sums of a split in f32: of floats, and of codes where f32 arithmetic is asked for. `row`: the first
 * of the head's rows.
 */
/** From so many rows on, f16 keys and values are widened once for all of them, and f32 values brought together. */
const WIDEN_ROWS: u32 = 6;

/** Scores of keys `[a, b)` of the split for the rows that see them. */
export function scoreFloats(
  table: usize, h: u32, firstRow: u32, base: u32, a: u32, b: u32, first: u32, count: u32,
): void {
  const blockMask: u32 = (1 << blockShift) - 1;
  const keySize: u32 = keyHalf ? 2 : 4;
  for (let t = a & ~(TILE - 1); t < b; t += TILE) {
    const position = base + t;
    const block = load<u32>(table + (position >> blockShift) * 4);
    const inBlock = position & blockMask;
    const place: usize = keys + (block * storedHeads() + storedHead(h)) * keyBytes;
    // Rows of tokens from the first that reaches this tile to the last whose window still has it.
    const i0 = firstReaching(first, count, position);
    let i1 = count;
    while (i1 > i0 && partFrom(first + i1 - 1) >= position + TILE) i1--;
    if (i0 >= i1) continue;
    const rows = (i1 - i0) * group;
    const row = firstRow + i0 * group;
    const to: usize = scores + row * SPLIT_BYTES + t * 4;
    const from: usize = queries + row * dim * 4;
    const tile = place + inBlock * dim * keySize;
    if (keyCodes) {
      plainTile(place, block, h, inBlock);
      scoreTile(wideKeys, false, from, dim, rows, to);
    } else if (keyHalf && rows >= WIDEN_ROWS) {
      widenKeys(tile, wideKeys, dim);
      scoreTile(wideKeys, false, from, dim, rows, to);
    } else {
      scoreTile(tile, keyHalf, from, dim, rows, to);
    }
  }
}

/** The 16 keys of codes from token `inBlock` of a block on as floats, to `wideKeys`. `place`: of the head in the block. */
function plainTile(place: usize, block: u32, h: u32, inBlock: u32): void {
  for (let i: u32 = inBlock; i < inBlock + TILE; i += 8) {
    readTileMeta(keySide, block, storedHead(h), storedHeads(), i, blockShift, dim, tileMeta);
    const at = place + i * load<u32>(keySide, SIDE_VECTOR_BYTES);
    plainKeys(keySide, at, tileMeta, dim, plainScratch, wideKeys + (i - inBlock) * 4);
  }
}

/**
 * Weighted sums of V over `[a, b)` of the split into `splitSums`, where V is a view of K: a tile of 16 keys is brought into the order of
 * values, 16 columns at a time, once for all rows. `valueDim` is a multiple of 16.
 */
export function addLatents(
  table: usize, h: u32, firstRow: u32, base: u32, a: u32, b: u32, first: u32, count: u32,
): void {
  const blockMask: u32 = (1 << blockShift) - 1;
  for (let t = a & ~(TILE - 1); t < b; t += TILE) {
    const block = load<u32>(table + ((base + t) >> blockShift) * 4);
    const inBlock = (base + t) & blockMask;
    const place: usize = keys + block * keyBytes;
    let from: usize = wideKeys + valueFrom * 64;
    if (keyCodes) plainTile(place, block, h, inBlock);
    else if (keyHalf) widenKeys(place + (inBlock * dim + valueFrom * TILE) * 2, from, dim - valueFrom);
    else from = place + (inBlock * dim + valueFrom * TILE) * 4;
    const low = max<u32>(a, t);
    const high = min<u32>(b, t + TILE);
    for (let d = valueFrom; d < dim; d += 16, from += 1024) {
      for (let i: usize = 0; i < 256; i += 64) {
        for (let j: usize = 0; j < 64; j += 16) turnFour(from + i * 4 + j, wideValues + j * 16 + i / 4);
      }
      addTokens(wideValues + (low - t) * 64, false, 0, 64, low, high, base, first, count, firstRow, d);
    }
  }
}

/** Four times four floats, rows 64 bytes apart, transposed. */
// @ts-ignore: decorator
@inline function turnFour(from: usize, to: usize): void {
  storeTransposed(v128.load(from), v128.load(from, 64), v128.load(from, 128), v128.load(from, 192), to, 64);
}

/** Weighted sums of V over `[a, b)` of the split into `splitSums`. */
export function addFloats(
  table: usize, h: u32, firstRow: u32, base: u32, a: u32, b: u32, first: u32, count: u32,
): void {
  const size: u32 = valueHalf ? 2 : 4;
  const whole = dim & ~15;
  const rest = dim - whole;
  const wide = count * group >= WIDEN_ROWS;
  // Many rows: 16 columns of the whole split at a time, widened once. Few: a block at a time, as it lies in memory.
  if (wide) {
    for (let d: u32 = 0; d < whole; d += 16) {
      for (let t = a; t < b; ) {
        const stop = blockEnd(base, t, b);
        const from = valuesAt(table, h, base + t, d, 16, size);
        if (valueHalf) widenValues(from, stop - t, wideValues + t * 64);
        else memory.copy(wideValues + t * 64, from, (stop - t) * 64);
        t = stop;
      }
      addTokens(wideValues + a * 64, false, 0, 64, a, b, base, first, count, firstRow, d);
    }
    if (rest == 0) return;
  }
  for (let t = a; t < b; ) {
    const stop = blockEnd(base, t, b);
    if (!wide) {
      for (let d: u32 = 0; d < whole; d += 16) {
        addTokens(valuesAt(table, h, base + t, d, 16, size), valueHalf, 0, 16 * size, t, stop, base, first, count, firstRow, d);
      }
    }
    if (rest != 0) {
      const v = valuesAt(table, h, base + t, whole, rest, size);
      addTokens(v, valueHalf, rest, rest * size, t, stop, base, first, count, firstRow, whole);
    }
    t = stop;
  }
}

/** As addFloats, with codes turned into floats. */
export function addPlain(
  table: usize, h: u32, firstRow: u32, base: u32, a: u32, b: u32, first: u32, count: u32,
): void {
  for (let d: u32 = 0; d < dim; d += 16) {
    plainValues(
      valueSide, table, h, kvHeads, blockShift, dim, base, a, b, d, wideValues, valueScratch, plainScratch,
    );
    addTokens(plainScratch, false, 0, 64, a, b, base, first, count, firstRow, d);
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
 * V of positions `[a, b)` of the split, lying in a row from `v`, for each row as far as it sees them. Rows go six or two
 * at a time over what all of them see; what some of them see before or after goes row by row, so the order of each sum
 * stays.
 */
function addTokens(
  v: usize, half: bool, rest: u32, step: u32, a: u32, b: u32, base: u32, first: u32, count: u32, firstRow: u32, d: u32,
): void {
  const rows = count * group;
  for (let r: u32 = 0, n: u32 = 0; r < rows; r += n) {
    n = rest != 0 ? 1 : !half && rows - r >= 6 ? 6 : min<u32>(2, rows - r);
    // Later rows see from later on, and farther.
    const i = first + r / group;
    const j = first + (r + n - 1) / group;
    const from = max<u32>(a, seenFrom(i, base));
    const to = min<u32>(b, seenTo(j, base));
    // What they see may begin behind b: then it is none of this piece.
    const low = min<u32>(b, max<u32>(a, seenFrom(j, base)));
    const high = max<u32>(low, min<u32>(b, seenTo(i, base)));
    if (from < low) addApart(v, half, rest, step, a, from, low, base, first, firstRow, r, n, d);
    if (low < high) {
      const row = firstRow + r;
      const at = v + (low - a) * step;
      const weights: usize = scores + row * SPLIT_BYTES + low * 4;
      const acc: usize = splitSums + (row * dim + d) * 4;
      if (n == 6) {
        addFloats6(at, weights, SPLIT_BYTES, high - low, acc, dim * 4);
        addFloats6(at + 32, weights, SPLIT_BYTES, high - low, acc + 32, dim * 4);
      } else if (n == 2) {
        if (half) addHalves2(at, weights, SPLIT_BYTES, high - low, acc, dim * 4);
        else addFloats2(at, weights, SPLIT_BYTES, high - low, acc, dim * 4);
      } else {
        addRow(v, half, rest, step, a, low, high, row, d);
      }
    }
    if (high < to) addApart(v, half, rest, step, a, high, to, base, first, firstRow, r, n, d);
  }
}

/** What each of `n` rows from `r` on sees of positions `[low, high)`. */
function addApart(
  v: usize, half: bool, rest: u32, step: u32, a: u32, low: u32, high: u32, base: u32, first: u32, firstRow: u32, r: u32,
  n: u32, d: u32,
): void {
  for (const end = r + n; r < end; r++) {
    const position = first + r / group;
    const from = max<u32>(low, seenFrom(position, base));
    const to = min<u32>(high, seenTo(position, base));
    addRow(v, half, rest, step, a, from, to, firstRow + r, d);
  }
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
