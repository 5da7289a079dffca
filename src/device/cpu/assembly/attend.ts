import {
  dim, endOf, firstSeen, group, kvHeads, maxBlocks, maxRows, pieceOf, pieceStart, setUpJob, splitOf, splitStats, stats, sums, usePieces, useTable,
  useUnit,
} from './attend-job';
import { attendPiece, attendSplit, give, takeQueries } from './attend-rows';
import { merge } from './attend-softmax';
import { STEP_OUTPUTS, STEP_SEQUENCES, STEP_TOKENS } from '../opcodes';

/**
 * Attention over the paged cache.
 *
 * A context is split at multiples of 256 positions, where its float head ends, and where the tail of a query row begins. Of each split a query row takes the maximum of its scores, the
 * sum of their exponentials and the weighted sum of V; the splits are merged in order. So the arithmetic of a row
 * depends on its position alone: not on how its prompt was cut, nor on the rows and threads beside it.
 *
 * A unit of work is (sequence, tile of its tokens, KV head): the query heads that share the KV head, times the tokens
 * of the tile, are its rows, and K and V are read once for all of them. Where a tile is one token, a unit is several
 * neighbouring KV heads, so that blocks are read in longer runs. Units of one token are laid in a line by their cost and the line is cut evenly, also between the splits of a unit: then its parts are left in `partials`, one region
 * for each thread that starts such a unit, and merged by OP_ATTEND_MERGE. Units of several tokens are taken by whoever
 * is free.
 *
 * [q, out, step, seqs, seqStride, heads, kvHeads, headDim, scale, window, softcap, layer, plain, outputs, 0,
 *  tables, maxBlocks, blockShift, scratch, scratchStride, partials, partialStride, maxRows, next, done, keyMean, fine, coarse, dims,
 *  style, centresAt, floatQueriesAt, sinks, ends, tail, tailLayer, tailTables, reach, valueDim]
 * `window` 0 and `softcap` 0: none. `layer`: see ../kv-layout.ts; `plain`: f32 arithmetic on codes too. `outputs`: 0, or the address of the step's outputs if only their results
 * matter: units of several tokens that hold none are left out. `scratch`: see attentionScratch in ../commands.ts. `next`, `done`: both 0; the next
 * unit to take, and the threads that found none left. `keyMean`: 0, or the mean that was taken off the keys (attend-centre.ts).
 * `sinks`: 0, or one more score of each head. `ends`: 0, or where the step says how far each token sees. `tail`: 0, or how many of the newest
 * positions a token sees as floats, which are in a store of their own. `reach`: 0,
 * or how many positions from itself on a token sees at most.
 * `valueDim`: 0, or width of values that are a view of the keys: there is one KV head, and `kvHeads` are parts of its query heads, each a
 * unit by itself.
 */
const NEXT: usize = 92;
const DONE: usize = 96;

// The job at hand. Globals are a thread's own.
let seqs: usize = 0;
let seqStride: usize = 0;
let sequences: u32 = 0;
let tables: usize = 0;
let partials: usize = 0;
let partialStride: usize = 0;
let tileTokens: u32 = 0;
let outputs: usize = 0;
let outputCount: u32 = 0;
/** KV heads of a unit of one token. */
let span: u32 = 0;
// The line of work.
let begin: u64 = 0;
let end: u64 = 0;
let total: u64 = 0;

function setUp(p: usize, thread: u32, threads: u32): void {
  setUpJob(p, thread);
  const step: usize = load<u32>(p, 8);
  seqs = load<u32>(p, 12);
  seqStride = load<u32>(p, 16);
  tables = load<u32>(p, 60);
  partials = load<u32>(p, 80);
  partialStride = load<u32>(p, 84);
  const tokens = load<u32>(step, 4 * STEP_TOKENS);
  sequences = load<u32>(step, 4 * STEP_SEQUENCES);
  outputs = load<u32>(p, 52);
  outputCount = load<u32>(step, 4 * STEP_OUTPUTS);
  // Large tiles share reads, but there must be some for every thread.
  const fair = (tokens * kvHeads + threads * 4 - 1) / (threads * 4);
  tileTokens = max<u32>(1, min<u32>(fair, maxRows / group));
  total = 0;
  let splits: u32 = 0;
  for (let s: u32 = 0; s < sequences; s++) {
    const start = load<u32>(seqs + seqStride + s * 4);
    const length = load<u32>(seqs + 2 * seqStride + s * 4);
    const position = load<u32>(seqs + 3 * seqStride + s * 4);
    for (let t: u32 = 0; t < length; t += tileTokens) {
      if (length - t > 1 && tileTokens > 1) continue;
      const from = firstSeen(position + t);
      const to = endOf(start + t, position + t);
      total += cost(from, to) * kvHeads;
      splits += splitOf(to - 1) - splitOf(from) + 1;
    }
  }
  // As many heads as fit, but enough pieces for all threads.
  const shared = (splits * kvHeads) / (threads * 4);
  span = max<u32>(1, min<u32>(min<u32>(kvHeads, maxRows / group), shared));
  begin = line(thread, threads);
  end = line(thread + 1, threads);
}

// @ts-ignore: decorator
@inline function line(thread: u32, threads: u32): u64 {
  return (total * thread) / threads;
}

/** Work of one token on positions `[from, to)`. */
// @ts-ignore: decorator
@inline function cost(from: u32, to: u32): u64 {
  return to - from;
}

export function attend(p: usize, thread: u32, threads: u32): void {
  setUp(p, thread, threads);
  let at: u64 = 0;
  let unit: u32 = 0;
  // Units of one token cost little to pass by; those of several are counted, and the counter says whose they are.
  let taken = atomic.add<u32>(p + NEXT, 1);
  for (let s: u32 = 0; s < sequences; s++) {
    const slot = load<u32>(seqs + s * 4);
    const start = load<u32>(seqs + seqStride + s * 4);
    const length = load<u32>(seqs + 2 * seqStride + s * 4);
    const position = load<u32>(seqs + 3 * seqStride + s * 4);
    const table: usize = tables + slot * maxBlocks * 4;
    useTable(table);
    for (let t: u32 = 0; t < length; t += tileTokens) {
      const count = min<u32>(tileTokens, length - t);
      const first = position + t;
      const from = firstSeen(first);
      const to = endOf(start + t + count - 1, first + count - 1);
      if (count > 1) {
        const matters = isWanted(start + t, count);
        while (taken < unit + kvHeads) {
          if (matters) whole(table, taken - unit, 1, start + t, first, count, from, to);
          taken = atomic.add<u32>(p + NEXT, 1);
        }
        unit += kvHeads;
      } else {
        for (let h: u32 = 0; h < kvHeads; h += span) {
          const own = min<u32>(span, kvHeads - h);
          divided(table, h, own, start + t, first, from, to, at, thread, threads);
          at += cost(from, to) * own;
        }
      }
    }
  }
  if (atomic.add<u32>(p + DONE, 1) == threads - 1) {
    atomic.store<u32>(p + NEXT, 0);
    atomic.store<u32>(p + DONE, 0);
  }
}

/** Whether the results of some of these tokens are read. */
function isWanted(token: u32, count: u32): bool {
  if (outputs == 0) return true;
  for (let i: u32 = 0; i < outputCount; i++) if (load<u32>(outputs + i * 4) - token < count) return true;
  return false;
}

/** A unit that this thread does alone. */
function whole(
  table: usize, h: u32, own: u32, token: u32, first: u32, count: u32, from: u32, to: u32,
): void {
  useUnit(token, first);
  takeQueries(h, own, token, count);
  const last = splitOf(to - 1);
  const begun = splitOf(from);
  for (let split = begun; split <= last; split++) {
    attendSplit(table, h, own, split, first, count);
  }
  give(h, own, token, count);
}

/** Where a piece of a unit of one token, at `first`, and `own` KV heads begins on the line. */
// @ts-ignore: decorator
@inline function pieceAt(unitAt: u64, own: u32, first: u32, piece: u32, from: u32): u64 {
  return unitAt + cost(from, max<u32>(from, pieceStart(first, piece))) * own;
}

/** A unit of one token: the pieces of it that begin in this thread's part of the line. */
function divided(
  table: usize, h: u32, own: u32, token: u32, first: u32, from: u32, to: u32, at: u64, thread: u32, threads: u32,
): void {
  if (at >= end || at + cost(from, to) * own <= begin) return;
  usePieces(first);
  const begun = pieceOf(first, from);
  const last = pieceOf(first, to - 1);
  let a = begun;
  while (a <= last && pieceAt(at, own, first, a, from) < begin) a++;
  let b = a;
  while (b <= last && pieceAt(at, own, first, b, from) < end) b++;
  if (a == b) return;
  if (a == begun && b > last) {
    whole(table, h, own, token, first, 1, from, to);
    return;
  }
  let owner = thread;
  while (line(owner, threads) > at) owner--;
  useUnit(token, first);
  takeQueries(h, own, token, 1);
  const rows = own * group;
  let part: usize = partials + partialStride * owner + (a - begun) * rows * (dim + 4) * 4;
  for (let piece = a; piece < b; piece++) {
    // Every piece is a first one here: its sums are left alone.
    attendPiece(table, h, own, piece, first);
    for (let r: u32 = 0; r < rows; r++, part += (dim + 4) * 4) {
      store<f32>(part, load<f32>(stats + r * 8));
      store<f32>(part, load<f32>(stats + r * 8, 4), 4);
      memory.copy(part + 16, sums + r * dim * 4, dim * 4);
    }
  }
}

/** Merges the unit that begins in this thread's part of the line and ends in another's. */
export function attendMerge(p: usize, thread: u32, threads: u32): void {
  setUp(p, thread, threads);
  let at: u64 = 0;
  for (let s: u32 = 0; s < sequences; s++) {
    const start = load<u32>(seqs + seqStride + s * 4);
    const length = load<u32>(seqs + 2 * seqStride + s * 4);
    const position = load<u32>(seqs + 3 * seqStride + s * 4);
    useTable(tables + load<u32>(seqs + s * 4) * maxBlocks * 4);
    for (let t: u32 = 0; t < length; t += tileTokens) {
      if (length - t > 1 && tileTokens > 1) continue;
      const first = position + t;
      const from = firstSeen(first);
      usePieces(first);
      const begun = pieceOf(first, from);
      const to = endOf(start + t, first);
      const last = pieceOf(first, to - 1);
      for (let h: u32 = 0; h < kvHeads; h += span) {
        const own = min<u32>(span, kvHeads - h);
        const unitAt = at;
        at += cost(from, to) * own;
        if (unitAt >= end) return;
        if (unitAt < begin || pieceAt(unitAt, own, first, last, from) < end) continue;
        let part: usize = partials + partialStride * thread;
        for (let piece = begun; piece <= last; piece++) {
          for (let r: u32 = 0; r < own * group; r++, part += (dim + 4) * 4) {
            store<f32>(splitStats + r * 8, load<f32>(part));
            store<f32>(splitStats + r * 8, load<f32>(part, 4), 4);
            merge(r, part + 16, piece == begun);
          }
        }
        give(h, own, start + t, 1);
      }
    }
  }
}
