import {
  KIND_CODES, KIND_F16, SIDE_BYTES, SIDE_CODES, SIDE_HEAD_BYTES, SIDE_KIND, SIDE_ROTATION, STORE_FLOAT_START, STORE_HEAD,
} from '../kv-layout';
import { FACTS_BYTES, TILE_META_BYTES } from './attend-codes-keys';
import { TILE } from './kv';

/** The attention a thread is at (attend.ts): its parameters, how its sequence is stored, its scratch. */
export const SPLIT: u32 = 256;
export const SPLIT_BYTES: usize = 1024;

// Globals are a thread's own.
export let q: usize = 0;
export let out: usize = 0;
export let heads: u32 = 0;
export let kvHeads: u32 = 0;
export let dim: u32 = 0;
/** Query heads of a KV head. */
export let group: u32 = 0;
/** V is a view of K, from this dim on: there is one KV head, and `kvHeads` are parts of its query heads. */
export let latent: bool = false;
export let valueFrom: u32 = 0;
/** Most rows a unit may have. */
export let maxRows: u32 = 0;
export let scale: f32 = 0;
export let window: u32 = 0;
export let softcap: f32 = 0;
export let layer: usize = 0;
/** f32 arithmetic on codes too. */
export let plain: bool = false;
export let maxBlocks: u32 = 0;
export let blockShift: u32 = 0;
// What the sequence at hand is stored in (../kv-layout.ts).
export let keySide: usize = 0;
export let valueSide: usize = 0;
export let keyCodes: bool = false;
export let valueCodes: bool = false;
/** The rotation of V, 0 without. */
export let valueRotation: usize = 0;
export let keys: usize = 0;
export let values: usize = 0;
export let keyHalf: bool = false;
export let valueHalf: bool = false;
export let keyBytes: usize = 0;
export let valueBytes: usize = 0;
// Scratch: queries, scores, sums of a split, sums so far, (maximum, sum) of both, widened keys and values.
export let queries: usize = 0;
export let scores: usize = 0;
export let splitSums: usize = 0;
export let sums: usize = 0;
export let splitStats: usize = 0;
export let stats: usize = 0;
export let wideKeys: usize = 0;
export let wideValues: usize = 0;
// For codes: integer queries and what belongs to them, scales of a tile of keys, spare floats, what values work in.
export let codeQueries: usize = 0;
export let codeFacts: usize = 0;
export let tileMeta: usize = 0;
export let spare: usize = 0;
export let plainScratch: usize = 0;
export let valueScratch: usize = 0;
// The mean of keys that was taken off them (KeyCentre of ../../graph.ts), 0 without; what it rotates by; rotated, of a unit's heads.
export let keyMean: usize = 0;
export let centreDims: u32 = 0;
export let centreStyle: u32 = 0;
export let fine: usize = 0;
export let coarse: usize = 0;
export let centres: usize = 0;
/** `[heads]` one more score of each head, 0 without. */
export let sinks: usize = 0;
/** `[tokens]` behind the last position that each token of the step sees; 0: its own. */
let ends: usize = 0;
/** No token sees so many positions ahead; 0: any number. */
let reach: u32 = 0;
/** Where among them position 0 of the unit at hand would be. */
let unitEnds: usize = 0;

/** Tokens of a float head; queries for floats of it and of a tail, and those for all others. */
export let head: u32 = 0;
let floatQueries: usize = 0;
let ownQueries: usize = 0;
/** Keys and values of the sequence at hand, but for its head and tail. */
let ownSide: usize = 0;

/** Newest positions that each token sees as floats, beside what is stored of all; 0: none. */
export let tail: u32 = 0;
/** How they are stored, and how far their block tables lie from the others. */
let tailLayer: usize = 0;
let tailShift: usize = 0;
const WHOLE: u32 = 0;
const BEFORE: u32 = 1;
const TAIL: u32 = 2;
/** What is looked at of the split at hand: what each row sees before its tail, the tail, or all. */
let part: u32 = WHOLE;
// Of a unit of one token: the split that its tail begins in, and whether that is within it.
let tailSplit: u32 = 0xffffffff;
let tailCuts: bool = false;

/** What the split at hand has of its 256 positions. */
export let low: u32 = 0;
export let high: u32 = SPLIT;

/** Reads the parameters (attend.ts). */
export function setUpJob(p: usize, thread: u32): void {
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
  latent = load<u32>(p, 152) != 0;
  valueFrom = latent ? dim - load<u32>(p, 152) : 0;

  queries = scratch;
  ownQueries = queries;
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
  keyMean = load<u32>(p, 100);
  fine = load<u32>(p, 104);
  coarse = load<u32>(p, 108);
  centreDims = load<u32>(p, 112);
  centreStyle = load<u32>(p, 116);
  centres = scratch + load<u32>(p, 120);
  floatQueries = scratch + load<u32>(p, 124);
  sinks = load<u32>(p, 128);
  ends = load<u32>(p, 132);
  head = load<u32>(layer, STORE_HEAD);
  tail = load<u32>(p, 136);
  tailLayer = load<u32>(p, 140);
  tailShift = load<u32>(p, 144) - load<u32>(p, 60);
  reach = load<u32>(p, 148);
  part = WHOLE;
  tailSplit = 0xffffffff;
  tailCuts = false;
  low = 0;
  high = SPLIT;
}

/**
 * Splits begin at multiples of 256 positions, and where the float head ends: all of a split is stored alike.
 */
// @ts-ignore: decorator
@inline export function splitOf(position: u32): u32 {
  return position / SPLIT + (head % SPLIT != 0 && position >= head ? 1 : 0);
}

// @ts-ignore: decorator
@inline export function splitStart(split: u32): u32 {
  if (head % SPLIT == 0 || split <= head / SPLIT) return split * SPLIT;
  return split == head / SPLIT + 1 ? head : (split - 1) * SPLIT;
}

/** Makes it the split at hand; returns the multiple of 256 that it lies behind. */
export function useSplit(split: u32): u32 {
  const start = splitStart(split);
  const base = start & ~(SPLIT - 1);
  low = start - base;
  high = splitStart(split + 1) - base;
  if (head != 0) useHead(start < head);
  else if (tail != 0) useOwn();
  return base;
}

/** The first of the newest positions that a token sees as floats. */
// @ts-ignore: decorator
@inline function tailStart(position: u32): u32 {
  return position >= tail ? position - tail + 1 : 0;
}

/** A unit of one token, at `position`: its pieces are its splits, the one that its tail begins in parted there. */
export function usePieces(position: u32): void {
  if (tail == 0) return;
  const start = tailStart(position);
  tailSplit = splitOf(start);
  tailCuts = start != splitStart(tailSplit);
}

// @ts-ignore: decorator
@inline export function pieceOf(position: u32, at: u32): u32 {
  const split = splitOf(at);
  return split + (tailCuts && at >= tailStart(position) ? 1 : 0);
}

/** Where a piece of the token at `position` begins. */
// @ts-ignore: decorator
@inline export function pieceStart(position: u32, piece: u32): u32 {
  if (!tailCuts || piece <= tailSplit) return splitStart(piece);
  return piece == tailSplit + 1 ? tailStart(position) : splitStart(piece - 1);
}

/** Whether a piece is of the tail; its split. */
// @ts-ignore: decorator
@inline export function isTailPiece(piece: u32): bool {
  return piece >= tailSplit && (!tailCuts || piece > tailSplit);
}

// @ts-ignore: decorator
@inline export function splitOfPiece(piece: u32): u32 {
  return tailCuts && piece > tailSplit ? piece - 1 : piece;
}

/** Looks at what rows see of a split before their tails. */
export function useBefore(): void {
  part = BEFORE;
}

/** Looks at their tails; answers where the block table of the sequence with `table` is for these. */
export function useTail(table: usize): usize {
  part = TAIL;
  useFloats(tailLayer);
  return table + tailShift;
}


/** How the head is stored, or what is behind it. */
export function useHead(within: bool): void {
  ownSide = layer;
  if (within) useFloats(layer + 2 * SIDE_BYTES);
  else useOwn();
}

/** What is neither head nor tail. */
export function useOwn(): void {
  useSides(ownSide);
  queries = ownQueries;
}

/** Floats of a sequence whose others may be codes. */
function useFloats(side: usize): void {
  useSides(side);
  // Sums are merged as those of the others are.
  valueRotation = load<u32>(ownSide + SIDE_BYTES, SIDE_ROTATION);
  queries = floatQueries;
}

/** A job on floats that lie in scratch alone: what weigh and merge (attend-softmax.ts) look at. `width`: floats of a row of sums. */
export function setUpPlain(width: u32, statsAt: usize, sumsAt: usize, splitStatsAt: usize): void {
  dim = width;
  latent = false;
  softcap = 0;
  valueHalf = false;
  stats = statsAt;
  sums = sumsAt;
  splitStats = splitStatsAt;
}

/** FloatStart sequences are kept in the other half of the store. */
export function useTable(table: usize): void {
  if (head != 0) return;
  ownSide = layer + (load<u32>(table) >= load<u32>(layer, STORE_FLOAT_START) ? 2 * SIDE_BYTES : 0);
  useSides(ownSide);
}

/** `side`: of the keys; that of the values follows. */
function useSides(side: usize): void {
  keySide = side;
  valueSide = keySide + SIDE_BYTES;
  const keyKind = load<i32>(keySide, SIDE_KIND);
  const valueKind = load<i32>(valueSide, SIDE_KIND);
  keyCodes = keyKind >= KIND_CODES;
  valueCodes = valueKind >= KIND_CODES;
  keyHalf = keyKind == KIND_F16;
  valueHalf = valueKind == KIND_F16;
  valueRotation = load<u32>(valueSide, SIDE_ROTATION);
  keys = load<u32>(keySide, SIDE_CODES);
  values = load<u32>(valueSide, SIDE_CODES);
  keyBytes = load<u32>(keySide, SIDE_HEAD_BYTES);
  valueBytes = load<u32>(valueSide, SIDE_HEAD_BYTES);
  if (!latent) return;
  // Codes are read as floats, once for scores and once for sums.
  valueSide = keySide;
  valueCodes = false;
  valueHalf = keyHalf;
  valueRotation = 0;
}

/** The stored head of a part of the query heads, and how many there are. */
// @ts-ignore: decorator
@inline export function storedHead(h: u32): u32 {
  return latent ? 0 : h;
}

// @ts-ignore: decorator
@inline export function storedHeads(): u32 {
  return latent ? 1 : kvHeads;
}

/** The first position that a token sees. */
// @ts-ignore: decorator
@inline export function firstSeen(position: u32): u32 {
  return window != 0 && position >= window ? position - window + 1 : 0;
}

// @ts-ignore: decorator
@inline function capped(end: u32, position: u32): u32 {
  return reach == 0 ? end : min<u32>(end, position + reach);
}

/** Behind the last position that a token of the step sees, itself at `position`. Along a sequence it never falls. */
// @ts-ignore: decorator
@inline export function endOf(token: u32, position: u32): u32 {
  return ends == 0 ? position + 1 : capped(load<u32>(ends + token * 4), position);
}

/** The unit at hand: a token of it, and its position. */
// @ts-ignore: decorator
@inline export function useUnit(token: u32, position: u32): void {
  unitEnds = ends + token * 4 - position * 4;
}

/** As endOf, of a token of the unit at hand. */
// @ts-ignore: decorator
@inline export function seenEnd(position: u32): u32 {
  return ends == 0 ? position + 1 : capped(load<u32>(unitEnds + position * 4), position);
}

/** The first position that the token at `position` sees of the part at hand, and behind the last one. */
// @ts-ignore: decorator
@inline export function partFrom(position: u32): u32 {
  const from = firstSeen(position);
  return part == TAIL ? max<u32>(from, tailStart(position)) : from;
}

// @ts-ignore: decorator
@inline export function partEnd(position: u32): u32 {
  const end = seenEnd(position);
  return part == BEFORE ? min<u32>(end, tailStart(position)) : end;
}

/** Whether what a token sees begins in the part at hand, from `start` on. */
// @ts-ignore: decorator
@inline export function beginsWith(position: u32, start: u32): bool {
  const from = firstSeen(position);
  return from >= start && (part != TAIL || from >= tailStart(position));
}

/** Of `count` tokens from `first` on the first one that sees as far as `position` of the part at hand: how many are before it. */
// @ts-ignore: decorator
@inline export function firstReaching(first: u32, count: u32, position: u32): u32 {
  if (part == BEFORE) return position + tail > first ? position + tail - first : 0;
  if (ends == 0) return position > first ? position - first : 0;
  let i: u32 = 0;
  while (i < count && seenEnd(first + i) <= position) i++;
  return i;
}

/** The part of a split, at `base`, that the token at `position` sees. */
// @ts-ignore: decorator
@inline export function seenFrom(position: u32, base: u32): u32 {
  const from = partFrom(position);
  return max<u32>(low, from > base ? from - base : 0);
}

// @ts-ignore: decorator
@inline export function seenTo(position: u32, base: u32): u32 {
  const end = partEnd(position);
  return end > base ? min<u32>(end - base, high) : 0;
}
