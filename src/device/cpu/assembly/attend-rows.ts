import { SIDE_VECTOR_BYTES } from '../kv-layout';
import { addToMaximum, addToScores, centreScore, turnCentres } from './attend-centre';
import { codeQuery, FACTS_BYTES, readTileMeta, scoreKeys, turnQuery } from './attend-codes-keys';
import { addValues, WEIGHT_TILE } from './attend-codes-values';
import { addFloats, addLatents, addPlain, scoreFloats } from './attend-floats';
import {
  beginsWith, blockShift, codeFacts, codeQueries, dim, firstReaching, group, head, heads, isTailPiece, keyBytes, keyCodes, keyHalf, keyMean, keys,
  keySide, kvHeads, latent, low, out, partFrom, plain, q, queries, scale, scores, seenFrom, seenTo, sinks, spare, SPLIT_BYTES, splitOfPiece, splitStats,
  splitSums, stats, sums, tail, tileMeta, useBefore, useHead, useOwn, useSplit, useTail, valueCodes, valueFrom, valueScratch, valueRotation, valueSide, wideKeys,
  wideValues,
} from './attend-job';
import { merge, weigh } from './attend-softmax';
import { exp1 } from './math';
import { rotate } from './rotation';

/**
 * What one unit of attention (attend.ts) does with its rows. A unit is `count` tokens of one KV head, or one token of
 * `span` KV heads; its rows are [KV head][token][query head of the group].
 */

/** The first token of the unit at hand. */
let unitToken: u32 = 0;

/** Where the rows of a token and a KV head lie among q: floats; among the results they are as much narrower as V is. */
// @ts-ignore: decorator
@inline function rowsAt(head: u32, token: u32, width: u32 = dim): usize {
  return (token * heads + head * group) * width;
}

/** The rows of a unit, scaled. f16 keys are 2^-112 too small: 2^100 is put here and 2^12 on the score. */
export function takeQueries(h: u32, span: u32, token: u32, count: u32): void {
  unitToken = token;
  if (head != 0) {
    useHead(true);
    fillQueries(h, span, token, count);
    useHead(false);
  } else if (tail != 0) {
    useTail(0);
    fillQueries(h, span, token, count);
    useOwn();
  }
  fillQueries(h, span, token, count);
}

/** For keys as they are stored where the job is at. */
function fillQueries(h: u32, span: u32, token: u32, count: u32): void {
  const factor = f32x4.splat(keyHalf ? scale * <f32>1.2676506002282294e30 : scale);
  const bytes: usize = dim * 4;
  let to: usize = queries;
  let codes: usize = codeQueries;
  let facts: usize = codeFacts;
  for (let s: u32 = 0; s < span; s++) {
    for (let i: u32 = 0; i < count; i++) {
      let from = q + rowsAt(h + s, token + i) * 4;
      for (let g: u32 = 0; g < group; g++, from += bytes, to += bytes) {
        if (keyCodes) {
          turnQuery(keySide, from, to, spare, dim);
          if (plain) times(to, to, factor);
          else codeQuery(keySide, to, codes, facts, dim, scale);
          codes += dim * 2;
          facts += FACTS_BYTES;
        } else {
          times(from, to, factor);
        }
      }
    }
  }
}

/** `sum / weight` of every row to the output. */
export function give(h: u32, span: u32, token: u32, count: u32): void {
  const bytes: usize = dim * 4;
  const given = dim - valueFrom;
  let from: usize = sums + valueFrom * 4;
  let weight: usize = stats + 4;
  for (let s: u32 = 0; s < span; s++) {
    for (let i: u32 = 0; i < count; i++) {
      let to = out + rowsAt(h + s, token + i, given) * 4;
      for (let g: u32 = 0; g < group; g++, from += bytes, to += given * 4, weight += 8) {
        times(from, to, f32x4.splat(<f32>1 / (load<f32>(weight) + sinkWeight((h + s) * group + g, weight))), given);
        if (valueRotation != 0) rotate(valueRotation, to, spare, dim, true);
      }
    }
  }
}

/** What the sink of a head adds to the weights of a row, whose maximum lies before their sum: `e^(sink − maximum)`. */
// @ts-ignore: decorator
@inline function sinkWeight(head: u32, weight: usize): f32 {
  return sinks == 0 ? 0 : exp1(load<f32>(sinks + head * 4) - load<f32>(weight - 4));
}

/** A row times a number. */
// @ts-ignore: decorator
@inline function times(from: usize, to: usize, factor: v128, width: u32 = dim): void {
  for (const end = from + width * 4; from < end; from += 16, to += 16) v128.store(to, f32x4.mul(v128.load(from), factor));
}

/**
 * One split for all rows of a unit; merged into `sums` and `stats`, or put there if it is the first. What rows see before their tails goes
 * first, for all of them: so each row's parts are in the order of their positions.
 */
export function attendSplit(table: usize, h: u32, span: u32, split: u32, first: u32, count: u32): void {
  const base = useSplit(split);
  if (tail == 0) {
    attendPart(table, h, span, base, first, count, false);
    return;
  }
  useBefore();
  attendPart(table, h, span, base, first, count, false);
  attendPart(useTail(table), h, span, base, first, count, false);
}

/** A piece (attend-job.ts) of a unit of one token, by itself. */
export function attendPiece(table: usize, h: u32, span: u32, piece: u32, first: u32): void {
  const base = useSplit(splitOfPiece(piece));
  let blocks = table;
  if (isTailPiece(piece)) blocks = useTail(table);
  else if (tail != 0) useBefore();
  attendPart(blocks, h, span, base, first, 1, true);
}

/** What rows see of the part at hand of the split at `base`. `fresh`: it is put there for each of them. */
function attendPart(table: usize, h: u32, span: u32, base: u32, first: u32, count: u32, fresh: bool): void {
  const a = seenFrom(first, base);
  const b = seenTo(first + count - 1, base);
  if (a >= b) return;
  const own = count * group;
  if (keyCodes && !plain) scoreCodes(table, h, span, base, a, b, first, count);
  else for (let s: u32 = 0; s < span; s++) scoreFloats(table, h + s, s * own, base, a, b, first, count);

  // As takeQueries says.
  const unit: f32 = keyHalf ? 4096 : 1;
  if (keyMean != 0) turnCentres(h, span, base);
  for (let r: u32 = 0; r < span * own; r++) {
    const position = first + (r % own) / group;
    const ra = seenFrom(position, base);
    const rb = seenTo(position, base);
    const row = scores + r * SPLIT_BYTES;
    if (ra < rb) {
      const more: f32 = keyMean == 0 ? 0 : centreScore(h, r / own, unitToken + (r % own) / group, r % group);
      if (keyMean != 0) addToScores(r, ra, rb, more, unit);
      weigh(row, ra, rb, splitStats + r * 8, unit);
      if (keyMean != 0) addToMaximum(r, more);
    }
    if (valueCodes && !plain) clearUnseen(row, ra < rb ? ra : b, ra < rb ? rb : b, a, b);
  }
  memory.fill(splitSums, 0, span * own * dim * 4);
  if (valueCodes && !plain) {
    addValues(
      valueSide, table, h, span, kvHeads, blockShift, dim, base, a, b, own, scores, splitSums, wideValues, valueScratch,
    );
  } else {
    for (let s: u32 = 0; s < span; s++) {
      if (latent) addLatents(table, h + s, s * own, base, a, b, first, count);
      else if (valueCodes) addPlain(table, h + s, s * own, base, a, b, first, count);
      else addFloats(table, h + s, s * own, base, a, b, first, count);
    }
    // A head's or a tail's, among those that are stored rotated.
    if (!valueCodes && valueRotation != 0) {
      for (let r: u32 = 0; r < span * own; r++) rotate(valueRotation, splitSums + r * dim * 4, spare, dim, false);
    }
  }
  for (let r: u32 = 0; r < span * own; r++) {
    const position = first + (r % own) / group;
    if (seenFrom(position, base) >= seenTo(position, base)) continue;
    merge(r, splitSums + r * dim * 4, fresh || beginsWith(position, base + low));
  }
}

/** Zeros for what a row does not see of the tiles that [a, b) touches. */
function clearUnseen(row: usize, from: u32, to: u32, a: u32, b: u32): void {
  const begin = a & ~(WEIGHT_TILE - 1);
  const end = (b + WEIGHT_TILE - 1) & ~(WEIGHT_TILE - 1);
  memory.fill(row + begin * 4, 0, (from - begin) * 4);
  memory.fill(row + to * 4, 0, (end - to) * 4);
}

/**
 * Scores of keys `[a, b)` of the split in integers, for the rows that see them. Tiles of 8 tokens, and of each all heads
 * of the unit: a block is read as it lies in memory.
 */
function scoreCodes(
  table: usize, h: u32, span: u32, base: u32, a: u32, b: u32, first: u32, count: u32,
): void {
  const blockMask: u32 = (1 << blockShift) - 1;
  const vectorBytes = load<u32>(keySide, SIDE_VECTOR_BYTES);
  for (let t = a & ~7; t < b; t += 8) {
    const position = base + t;
    // Rows of tokens from the first that reaches this tile to the last whose window still has it.
    const i0 = firstReaching(first, count, position);
    let i1 = count;
    while (i1 > i0 && partFrom(first + i1 - 1) >= position + 8) i1--;
    if (i0 >= i1) continue;
    const block = load<u32>(table + (position >> blockShift) * 4);
    const inBlock = position & blockMask;
    let tile: usize = keys + (block * kvHeads + h) * keyBytes + inBlock * vectorBytes;
    for (let s: u32 = 0; s < span; s++, tile += keyBytes) {
      readTileMeta(keySide, block, h + s, kvHeads, inBlock, blockShift, dim, tileMeta);
      const row = s * count * group + i0 * group;
      scoreKeys(
        keySide, tile, codeQueries + row * dim * 2, codeFacts + row * FACTS_BYTES, tileMeta, dim, (i1 - i0) * group,
        scores + row * SPLIT_BYTES + t * 4, wideKeys,
      );
    }
  }
}
