/**
 * Products with stacks of experts. What `route` gave is a list of pairs (row, expert), of which there are k for each row. They are
 * sorted by expert, each expert's in the order of the rows, so that an expert is one product of all its rows; the products
 * are those of matmul.ts, with the same order of sums for any number of rows. At the end a row adds up what its experts made,
 * in the order of their ids.
 *
 * The pairs, once sorted, have **places**: those of an expert follow one another from a multiple of 4 on, for a tile may be
 * computed with a row too many. The list of them (`pairs`):
 *
 *     [experts that were chosen, pairs, 0, 0] | for each of those [expert, first place, pairs, pairs before] |
 *     room of a word an expert | row of each place | place of each pair (row, slot)
 */
import { CLAMPED, clampedPart, gluPart } from './elementwise';
import { madd, share } from './math';
import { chunkRows, floatPiece, integerPiece, panelPiece, pieceBlocks, SUM_BYTES } from './matmul';
import { PANEL_ROWS, quantizePart, tileRows } from './quantize-rows';

/** Words of a product's parameters that are the same for one matrix and a stack; matmul.ts. */
// @ts-ignore: decorator
@inline const PRODUCT_BYTES: u32 = 84;
/** Columns that a row is added up in at a time: what is dealt to threads. */
// @ts-ignore: decorator
@inline const SUM_COLS: u32 = 256;

/**
 * Sorts the pairs; one thread does.
 * [rowsAt, route, k, experts, pairs, rows of places, places of pairs]
 */
export function expertPairs(p: usize, thread: u32, threads: u32): void {
  if (thread != 0) return;
  const rows = load<u32>(load<u32>(p));
  const k = load<u32>(p, 8);
  const experts = load<u32>(p, 12);
  const pairs = load<u32>(p, 16);
  const rowOf = load<u32>(p, 20);
  let placeOf = load<u32>(p, 24);
  const counts = pairs + 16 + experts * 16;
  memory.fill(counts, 0, experts * 4);
  const stride = k * 8;
  let from = load<u32>(p, 4);
  for (let r: u32 = 0; r < rows; r++, from += stride) {
    for (let j: u32 = 0; j < k; j++) {
      const at = counts + expertOf(from + j * 4, experts) * 4;
      store<u32>(at, load<u32>(at) + 1);
    }
  }
  let entry = pairs + 16;
  let chosen: u32 = 0;
  let first: u32 = 0;
  let before: u32 = 0;
  for (let e: u32 = 0; e < experts; e++) {
    const count = load<u32>(counts + e * 4);
    if (count == 0) continue;
    store<u32>(entry, e);
    store<u32>(entry, first, 4);
    store<u32>(entry, count, 8);
    store<u32>(entry, before, 12);
    entry += 16;
    chosen++;
    store<u32>(counts + e * 4, first);
    first += (count + 3) & ~3;
    before += count;
  }
  store<u32>(pairs, chosen);
  store<u32>(pairs, before, 4);
  from = load<u32>(p, 4);
  for (let r: u32 = 0; r < rows; r++, from += stride) {
    for (let j: u32 = 0; j < k; j++, placeOf += 4) {
      const at = counts + expertOf(from + j * 4, experts) * 4;
      const place = load<u32>(at);
      store<u32>(at, place + 1);
      store<u32>(rowOf + place * 4, r);
      store<u32>(placeOf, place);
    }
  }
}

/** Ids are numbers; none is beyond the last, whatever stands there. */
// @ts-ignore: decorator
@inline function expertOf(at: usize, experts: u32): u32 {
  return min(<u32>load<f32>(at), experts - 1);
}

/**
 * Rows for a product, at their places: of x, or glus of what the product before left at the place. Quantised as its tiles want
 * them, or as they are (group 0).
 *
 * [pairs, rows of places, x, cols, group, out, bytes of a row of it; glu: 0 or 1 and its activation, alpha and limit of the clamped one,
 *  spare, bytes of it for each thread]
 */
export function expertRows(p: usize, thread: u32, threads: u32): void {
  const pairs = load<u32>(p);
  const rowOf = load<u32>(p, 4);
  const x = load<u32>(p, 8);
  const cols = load<u32>(p, 12);
  const quantised = load<u32>(p, 16);
  const group = quantised != 0 ? quantised : cols;
  const out: usize = load<u32>(p, 20);
  const stride = load<u32>(p, 24);
  const kind = load<u32>(p, 28);
  const alpha = load<f32>(p, 32);
  const limit = load<f32>(p, 36);
  const spare: usize = load<u32>(p, 40) + thread * load<u32>(p, 44);
  const groups = cols / group;
  const chosen = load<u32>(pairs);
  const all = load<u32>(pairs, 4);
  const end = share(all * groups, thread + 1, threads);
  let i = share(all * groups, thread, threads);
  let entry = pairs + 16;
  const last = entry + chosen * 16;
  while (i < end) {
    // The expert of the pair.
    while (entry + 16 < last && load<u32>(entry + 16, 12) * groups <= i) entry += 16;
    const first = load<u32>(entry, 4);
    const count = load<u32>(entry, 8);
    const before = load<u32>(entry, 12);
    const until = min((before + count) * groups, end);
    const most = tileRows(count);
    for (; i < until; i++) {
      const pair = i / groups;
      const g = i - pair * groups;
      const row = pair - before;
      const place = first + row;
      const to = out + place * stride;
      if (kind == 0) {
        const from = x + (load<u32>(rowOf + place * 4) * cols + g * group) * 4;
        if (quantised != 0) quantizePart(from, cols, group, g, count, row, out + first * stride, stride, most);
        else memory.copy(to, from, cols * 4);
      } else {
        const gate = x + (place * 2 * cols + g * group) * 4;
        const made = quantised != 0 ? spare : to;
        if (kind == CLAMPED) clampedPart(gate, gate + cols * 4, made, group, alpha, limit);
        else gluPart(kind - 1, gate, gate + cols * 4, made, group);
        if (quantised != 0) quantizePart(spare, cols, group, g, count, row, out + first * stride, stride, most);
      }
    }
  }
}

/**
 * The products of all places with their experts.
 * As `linear` of matmul.ts, but that [pairs] stands where a row count would, [rows of an expert] where a residual would, and at the end
 * [room for the parameters of one expert's product, bytes of it for each thread].
 */
export function expertLinear(p: usize, thread: u32, threads: u32): void {
  const pairs = load<u32>(p, 40);
  const n = load<u32>(p, 60);
  const q: usize = load<u32>(p, 84) + thread * load<u32>(p, 88);
  const blocks = n >> 3;
  const size = load<u32>(p, 28);
  const floats = load<u32>(p, 16) == 0 || load<u32>(p, 64) != 0;
  const chosen = load<u32>(pairs);
  const room = load<u32>(p, 80);
  const panel = load<u32>(p, 76) + thread * room;
  // Of an expert's rows, on the average.
  const each = (load<u32>(pairs, 4) + chosen - 1) / max<u32>(chosen, 1);
  const piece = min(pieceBlocks(blocks * chosen, size, each, threads), blocks);
  const pieces = (blocks + piece - 1) / piece;
  memory.copy(q, p, PRODUCT_BYTES);
  store<u32>(q, n, 8);
  store<u32>(q, 0, 60);
  for (;;) {
    const unit = atomic.add<u32>(p + 68, 1);
    const a = unit / pieces;
    if (a >= chosen) break;
    const entry = pairs + 16 + a * 16;
    const expert = load<u32>(entry);
    const place = load<u32>(entry, 4);
    const rows = load<u32>(entry, 8);
    store<u32>(q, load<u32>(p) + expert * blocks * size);
    store<u32>(q, load<u32>(p, 32) + expert * n * 4, 32);
    store<u32>(q, load<u32>(p, 36) + expert * n * 4, 36);
    store<u32>(q, load<u32>(p, 44) + place * load<u32>(p, 48), 44);
    store<u32>(q, load<u32>(p, 52) + place * load<u32>(p, 56), 52);
    const first = (unit - a * pieces) * piece;
    const end = min(first + piece, blocks);
    if (floats) floatPiece(q, first, end, rows);
    else if (rows < PANEL_ROWS) integerPiece(q, first, end, 0, rows);
    else {
      const most = chunkRows(rows);
      for (let row: u32 = 0; row < rows; row += most) {
        for (let b = first; b < end; b += 2) {
          const after: usize = b + 2 < end ? load<u32>(q) + (b + 2) * size : 0;
          panelPiece(q, b, min(b + 2, end), row, min(row + most, rows), panel, panel + room - SUM_BYTES, after);
        }
      }
    }
  }
  if (atomic.add<u32>(p + 72, 1) == threads - 1) {
    atomic.store<u32>(p + 68, 0);
    atomic.store<u32>(p + 72, 0);
  }
}

/**
 * `Σ_j weight_j · y[place of (row, j)] (+ residual)`, j rising.
 * [rowsAt, route, k, places of pairs, y, cols, out, residual]
 */
export function expertSum(p: usize, thread: u32, threads: u32): void {
  const rows = load<u32>(load<u32>(p));
  const k = load<u32>(p, 8);
  const y: usize = load<u32>(p, 16);
  const cols = load<u32>(p, 20);
  const residual: usize = load<u32>(p, 28);
  const parts = (cols + SUM_COLS - 1) / SUM_COLS;
  const end = share(rows * parts, thread + 1, threads);
  for (let i = share(rows * parts, thread, threads); i < end; i++) {
    const r = i / parts;
    const first = (i - r * parts) * SUM_COLS;
    const route: usize = load<u32>(p, 4) + r * k * 8;
    const places: usize = load<u32>(p, 12) + r * k * 4;
    const until = min(first + SUM_COLS, cols);
    for (let c = first; c < until; c += 4) {
      let sum = f32x4.mul(v128.load32_splat(route + k * 4), v128.load(y + (load<u32>(places) * cols + c) * 4));
      for (let j: u32 = 1; j < k; j++) {
        const part = v128.load(y + (load<u32>(places + j * 4) * cols + c) * 4);
        sum = madd(v128.load32_splat(route + (k + j) * 4), part, sum);
      }
      const at = (r * cols + c) * 4;
      if (residual != 0) sum = f32x4.add(sum, v128.load(residual + at));
      v128.store(load<u32>(p, 24) + at, sum);
    }
  }
}
