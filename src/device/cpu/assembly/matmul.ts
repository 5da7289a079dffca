/**
 * Matrix products over the layout of ../pack-layout.ts.
 *
 * A sum has one order, whatever the number of rows and threads: a tile of any height adds the same groups in the same
 * order, lane by lane, and what is summed inside a group is exact (integers) or sequential (floats).
 *
 * Measured: docs/lab/2026-11-21-cpu.md.
 */
import {
  expand, floats1x1, floats1x2, floats2x1, floats4x1, integers1x1, integers1x2, integers1x4, integers2x1, integers2x2,
  integers4x1, isPaired, panelDots, panelOnce, panelRuns, panelScaled, panelWide, runBytes, s0, s1, s2, s3, s4, s5, s6, s7,
} from './matmul-tiles';
import { besideEachOther, FLOAT_ROWS, floatBlocks, floatTile, widenBlock } from './matmul-floats';
import { finish, finish4, finishTile } from './matmul-results';
import { anyLarge, PANEL_ROWS, tileRows } from './quantize-rows';
import { scalePanel } from './scale-panel';

/** Bytes of weights a thread works on at a time when several tiles of rows share them: they stay in its caches. */
// @ts-ignore: decorator
@inline const PIECE_BYTES: u32 = 24576;
/** Most rows of a tile of integerTiles and floatPiece. */
// @ts-ignore: decorator
@inline const TILE_ROWS: u32 = 4;
// @ts-ignore: decorator
@inline const PAGE_BYTES: u32 = 4096;
/**
 * Most rows that pass a panel before the next block; more are split evenly. With more, activations come from beyond the
 * second cache, and so do the cache lines of the results of which the block before has written one half.
 */
// @ts-ignore: decorator
@inline const CHUNK_ROWS: u32 = 264;
/** From so many rows on it pays to make scales integers. */
// @ts-ignore: decorator
@inline const SCALED_ROWS: u32 = 32;
/** The bits of a code in a panel, in the word of a format (linear-commands.ts): 0 for floats, 2…8. */
// @ts-ignore: decorator
@inline const WIDTH: u32 = 15;
const ONES = memory.data<f32>([1, 1, 1, 1, 1, 1, 1, 1], 16);
/** Bytes at the end of a thread's panel: the sums of a tile, and before them powers of two. */
// @ts-ignore: decorator
@inline export const SUM_BYTES: u32 = 208;
// @ts-ignore: decorator
@inline const BY_BYTES: u32 = 64;

/**
 * `out = x · Wᵀ · factor + bias (+ residual)`.
 * [segment: at, firstRow, rows, cols, format, group, dtype, blockBytes, factors, biases;
 * rowCountAt, x, xStride, out, outStride, residual, float, next, done, panels, bytes of a panel]
 */
export function linear(p: usize, thread: u32, threads: u32): void {
  const blocks = (load<u32>(p, 8) + 7) >> 3;
  const size = load<u32>(p, 28);
  const rows = load<u32>(load<u32>(p, 40));
  const floats = load<u32>(p, 16) == 0 || load<u32>(p, 64) != 0;
  const panels = !floats && rows >= PANEL_ROWS;
  // Pieces are dealt as threads ask for them: one that the system holds up takes fewer.
  if (panels) panelPieces(p, blocks, rows, thread, threads);
  else if (floats && load<u32>(p, 16) == 0 && load<u32>(p, 80) != 0 && rows >= FLOAT_ROWS)
    floatPieces(p, blocks, rows, thread);
  else {
    let first = atomic.load<u32>(p + 68);
    while (first < blocks) {
      const end = min(first + pieceAt(first, blocks, size, rows, threads), blocks);
      const found = atomic.cmpxchg<u32>(p + 68, first, end);
      if (found != first) {
        first = found;
        continue;
      }
      if (floats) floatPiece(p, first, end, rows);
      else integerPiece(p, first, end, 0, rows);
      first = atomic.load<u32>(p + 68);
    }
  }
  // The last to find nothing left makes the command ready for the next step.
  if (atomic.add<u32>(p + 72, 1) == threads - 1) {
    atomic.store<u32>(p + 68, 0);
    atomic.store<u32>(p + 72, 0);
  }
}

export function pieceBlocks(blocks: u32, size: u32, rows: u32, threads: u32): u32 {
  if (threads == 1 && rows == 1) return blocks;
  const eighth = blocks / (threads * 8);
  // Whole wide tiles, where there are enough of them for all threads.
  const fair = eighth < 3 ? 2 : (eighth + 2) & ~3;
  // One tile of rows reads every block once.
  if (rows <= TILE_ROWS) return fair;
  return min(fair, max<u32>(2, PIECE_BYTES / size & ~1));
}

/** Blocks of the piece that begins with block `first`: the fewer are left the less, so that all threads end at once. */
function pieceAt(first: u32, blocks: u32, size: u32, rows: u32, threads: u32): u32 {
  if (rows > TILE_ROWS || threads == 1) return pieceBlocks(blocks, size, rows, threads);
  const part = (blocks - first) / (threads * 2);
  return part < 4 ? 2 : part & ~3;
}

/** Pieces are pairs of blocks, whose results share cache lines, and a chunk of rows. */
function panelPieces(p: usize, blocks: u32, rows: u32, thread: u32, threads: u32): void {
  const at = load<u32>(p);
  const size = load<u32>(p, 28);
  const room = load<u32>(p, 80);
  const panel = load<u32>(p, 76) + thread * room;
  const each = panelBlocks(blocks, rows, threads);
  const across = (blocks + each - 1) / each;
  const most = chunkRows(rows);
  const pieces = across * ((rows + most - 1) / most);
  for (;;) {
    const piece = atomic.add<u32>(p + 68, 1);
    if (piece >= pieces) break;
    const chunk = piece / across;
    const first = (piece - chunk * across) * each;
    const end = min(first + each, blocks);
    const row = chunk * most;
    for (let b = first; b < end; b += 2) {
      // What is likely to be next: of this piece, else of the piece that nobody has yet.
      let then = b + 2;
      if (then >= end) {
        const other = atomic.load<u32>(p + 68);
        then = other < pieces ? (other % across) * each : blocks;
      }
      const after: usize = then < blocks ? at + then * size : 0;
      panelPiece(p, b, min(b + 2, end), row, min(row + most, rows), panel, panel + room - SUM_BYTES, after);
    }
  }
}

/** Blocks of a piece. Few rows take more of them: which block comes next is then known, and it is fetched ahead. */
function panelBlocks(blocks: u32, rows: u32, threads: u32): u32 {
  if (rows >= SCALED_ROWS) return 2;
  return max<u32>(2, min<u32>(8, blocks / (threads * 8)) & ~1);
}

/** Rows of a chunk: whole tiles. */
export function chunkRows(rows: u32): u32 {
  const chunks = (rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
  const high = tileRows(PANEL_ROWS);
  return ((rows + chunks - 1) / chunks + high - 1) / high * high;
}

/** Block by block, which is unpacked to `panel` and stays in the first cache while the rows pass by. `after`: the block that is read next, or 0. */
export function panelPiece(p: usize, first: u32, end: u32, row: u32, rows: u32, panel: usize, sums: usize, after: usize): void {
  const at = load<u32>(p);
  const cols = load<u32>(p, 12);
  const format = load<u32>(p, 16);
  const bits = format & WIDTH;
  const group = load<u32>(p, 20);
  const dtype = load<u32>(p, 24);
  const size = load<u32>(p, 28);
  const x = load<u32>(p, 44);
  const xStride = load<u32>(p, 48);
  const high = tileRows(PANEL_ROWS);
  const tiles = row + (rows - row) / high * high;
  const by = sums - BY_BYTES;
  const added = panel + cols * (RELAXED && bits < 8 ? 8 : 16) + cols / group * 64;
  if (load<u32>(p, 60) != 0) gatherResidual(p, first, row, tiles, added);
  // The next block is fetched while the rows pass: some cache lines with each group of each tile.
  const near = (size / max<u32>(1, (tiles - row) / high * (cols / group)) & ~63) + 64;
  for (let b = first; b < end; b++) {
    expand(format, at + b * size, panel, cols, group, dtype);
    let ahead: usize = b + 1 < end ? at + (b + 1) * size : after;
    const last: usize = ahead == 0 ? 0 : ahead + size;
    let scaled = false;
    if (RELAXED && !DOT && rows - row >= SCALED_ROWS && format <= 4 && dtype != 0) {
      scaled = scalePanel(panel, cols, group, by);
      if (!scaled) expand(format, at + b * size, panel, cols, group, dtype);
    }
    for (let r = row; r < tiles; r += high) {
      const times = panelTile(panel, x + r * xStride, sums, cols, group, bits, ahead, last, near, scaled ? by : 0);
      ahead += cols / group * near;
      finishTile(p, r, high, b, times, sums, added + (r - row) * 64 + (b - first) * 32);
    }
  }
  if (tiles < rows) integerPiece(p, first, end, tiles, rows);
}

/**
 * Rows `[row, end)` of what is added to two blocks from block `first` on, as far as there are whole blocks. One after another they would be
 * waited for, each at the end of a tile; here the memory is asked for many at a time.
 */
function gatherResidual(p: usize, first: u32, row: u32, end: u32, to: usize): void {
  const stride = load<u32>(p, 56);
  const column = first * 8;
  const columns = load<u32>(p, 8) - column;
  if (columns < 8) return;
  let at = load<u32>(p, 60) + row * stride + column * 4;
  const two = columns >= 16;
  for (let r = row; r < end; r++, at += stride, to += 64) {
    v128.store(to, v128.load(at));
    v128.store(to, v128.load(at, 16), 16);
    if (two) {
      v128.store(to, v128.load(at, 32), 32);
      v128.store(to, v128.load(at, 48), 48);
    }
  }
}

/** The sums of a tile; what they are to be multiplied with. `by`: see scale-panel.ts, 0 if the scales of the panel are floats. */
// @ts-ignore: decorator
@inline function panelTile(
  panel: usize, x: usize, sums: usize, cols: u32, group: u32, bits: u32, ahead: usize, last: usize, near: u32,
  by: usize,
): usize {
  if (DOT) panelDots(panel, x, sums, cols, group, bits, 0, ahead, last, near);
  else if (!RELAXED) panelWide(panel, x, sums, cols, group, bits, 0, ahead, last, near);
  else {
    const bytes = group * 8;
    let run = min(runBytes(bits), bytes);
    const nibbles = bits == 4 || bits == 8;
    const large = (by != 0 || (nibbles && run < bytes)) && anyLarge(x, cols, group);
    // Most codes are so small that 64 columns with nibbles fit.
    if (nibbles && run < bytes && !large) run *= 2;
    if (run == bytes && by != 0 && !large) {
      panelScaled(panel, x, sums, cols, group, bits, run, ahead, last, near);
      return by;
    }
    if (run == bytes && by == 0 && bits < 8) panelOnce(panel, x, sums, cols, group, bits, run, ahead, last, near);
    else panelRuns(panel, x, sums, cols, group, bits, run, ahead, last, near, by);
  }
  return ONES;
}

// @ts-ignore: decorator
@inline export function integerPiece(p: usize, first: u32, end: u32, row: u32, rows: u32): void {
  touchFactors(p, first, end);
  for (let r = row; r < rows; r += 4) integerTiles(p, first, end, r, rows);
}

/** What touchFactors has loaded: so that the loads are made. */
let touched: u32 = 0;

/** Factors and biases of a piece are asked for at once. One after another they would be waited for, behind each tile. */
function touchFactors(p: usize, first: u32, end: u32): void {
  const far = load<u32>(p, 36) - load<u32>(p, 32);
  let seen: u32 = 0;
  const last = load<u32>(p, 32) + end * 32;
  for (let at = load<u32>(p, 32) + first * 32; at < last; at += 64) seen |= load<u8>(at) | <u32>load<u8>(at + far);
  touched = seen;
}

/**
 * Blocks between those that a tile reads side by side, of `most`. The farther apart, the longer each of these places is read on and on, as
 * what fetches memory ahead wants it; nor shall all of them come to the end of a page at once.
 */
// @ts-ignore: decorator
@inline function apart(most: u32, size: u32): u32 {
  return most > 1 && (most * size) % PAGE_BYTES == 0 ? most - 1 : most;
}

/** Up to 4 rows from row r on. */
function integerTiles(p: usize, first: u32, end: u32, r: u32, rows: u32): void {
  const at = load<u32>(p);
  const cols = load<u32>(p, 12);
  const format = load<u32>(p, 16);
  const group = load<u32>(p, 20);
  const dtype = load<u32>(p, 24);
  const size = load<u32>(p, 28);
  const x = load<u32>(p, 44) + r * load<u32>(p, 48);
  const n = min<u32>(4, rows - r);
  let b = first;
  if (n > 2) {
    for (; b < end; b++) {
      integers4x1(format, at + b * size, size, x, cols, group, dtype);
      finish4(p, r, b, n, s0, s1, s2, s3, s4, s5, s6, s7);
    }
  } else if (n == 2) {
    if (RELAXED && isPaired(format)) {
      while (b + 1 < end) {
        const far = apart((end - b) >> 1, size);
        for (const until = b + far; b < until; b++) {
          integers2x2(format, at + b * size, far * size, x, cols, group, dtype);
          finish(p, r, b, s0, s1);
          finish(p, r, b + far, s2, s3);
          finish(p, r + 1, b, s4, s5);
          finish(p, r + 1, b + far, s6, s7);
        }
        b += far;
      }
    }
    for (; b < end; b++) {
      integers2x1(format, at + b * size, size, x, cols, group, dtype);
      finish(p, r, b, s0, s1);
      finish(p, r + 1, b, s2, s3);
    }
  } else {
    while (b + 3 < end) {
      const far = apart((end - b) >> 2, size);
      for (const until = b + far; b < until; b++) {
        integers1x4(format, at + b * size, far * size, x, cols, group, dtype);
        finish(p, r, b, s0, s1);
        finish(p, r, b + far, s2, s3);
        finish(p, r, b + 2 * far, s4, s5);
        finish(p, r, b + 3 * far, s6, s7);
      }
      b += 3 * far;
    }
    while (b + 1 < end) {
      const far = apart((end - b) >> 1, size);
      for (const until = b + far; b < until; b++) {
        integers1x2(format, at + b * size, far * size, x, cols, group, dtype);
        finish(p, r, b, s0, s1);
        finish(p, r, b + far, s2, s3);
      }
      b += far;
    }
    if (b < end) {
      integers1x1(format, at + b * size, size, x, cols, group, dtype);
      finish(p, r, b, s0, s1);
    }
  }
}

/** Pieces are some blocks, widened, and a chunk of rows. */
function floatPieces(p: usize, blocks: u32, rows: u32, thread: u32): void {
  const at = load<u32>(p);
  const cols = load<u32>(p, 12);
  const dtype = load<u32>(p, 24);
  const size = load<u32>(p, 28);
  const x = load<u32>(p, 44);
  const xStride = load<u32>(p, 48);
  const each = floatBlocks(cols);
  const panel = load<u32>(p, 76) + thread * load<u32>(p, 80);
  const tile = panel + each * cols * 32;
  const sums = tile + cols * 16;
  const across = (blocks + each - 1) / each;
  const most = chunkRows(rows);
  const pieces = across * ((rows + most - 1) / most);
  for (;;) {
    const piece = atomic.add<u32>(p + 68, 1);
    if (piece >= pieces) break;
    const chunk = piece / across;
    const first = (piece - chunk * across) * each;
    const end = min(first + each, blocks);
    for (let b = first; b < end; b++) widenBlock(dtype, at + b * size, panel + (b - first) * cols * 32, cols);
    const last = min((chunk + 1) * most, rows);
    for (let r = chunk * most; r < last; r += 4) {
      // A row that is not there is computed as the one before, and dropped.
      const n = min<u32>(4, last - r);
      const x0 = x + r * xStride;
      const x1 = n > 1 ? x0 + xStride : x0;
      const x2 = n > 2 ? x1 + xStride : x1;
      const x3 = n > 3 ? x2 + xStride : x2;
      besideEachOther(x0, x1, x2, x3, tile, cols);
      for (let b = first; b < end; b++) {
        floatTile(panel + (b - first) * cols * 32, tile, sums, cols);
        for (let i: u32 = 0; i < n; i++)
          finish(p, r + i, b, v128.load(sums + 32 * i), v128.load(sums + 32 * i, 16));
      }
    }
  }
}

export function floatPiece(p: usize, first: u32, end: u32, rows: u32): void {
  const at = load<u32>(p);
  const cols = load<u32>(p, 12);
  const format = load<u32>(p, 16);
  const group = load<u32>(p, 20);
  const dtype = load<u32>(p, 24);
  const size = load<u32>(p, 28);
  const xStride = load<u32>(p, 48);
  for (let r: u32 = 0; r < rows; r += 4) {
    const x0 = load<u32>(p, 44) + r * xStride;
    const n = min<u32>(4, rows - r);
    let b = first;
    if (n > 2) {
      const x2 = x0 + 2 * xStride;
      // A row that is not there is computed as the one before, and dropped.
      const x3 = n > 3 ? x2 + xStride : x2;
      for (; b < end; b++) {
        floats4x1(format, at + b * size, size, x0, x0 + xStride, x2, x3, cols, group, dtype);
        finish4(p, r, b, n, s0, s1, s2, s3, s4, s5, s6, s7);
      }
    } else if (n == 2) {
      for (; b < end; b++) {
        floats2x1(format, at + b * size, size, x0, x0 + xStride, cols, group, dtype);
        finish(p, r, b, s0, s1);
        finish(p, r + 1, b, s2, s3);
      }
    } else {
      if (format == 0) {
        for (; b + 1 < end; b += 2) {
          floats1x2(format, at + b * size, size, x0, cols, group, dtype);
          finish(p, r, b, s0, s1);
          finish(p, r, b + 1, s2, s3);
        }
      }
      for (; b < end; b++) {
        floats1x1(format, at + b * size, size, x0, cols, group, dtype);
        finish(p, r, b, s0, s1);
      }
    }
  }
}
