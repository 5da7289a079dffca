import { share } from './math';

/**
 * What kernels of recurrent layers share: the sequences of a step and their slots of state. Parameters begin with
 * [sequencesAt, seqs, seqStride, tables, table bytes of a slot, states, bytes of a state]. `seqs`: arrays slot, start, length,
 * position, `seqStride` bytes apart.
 */

// @ts-ignore: decorator
@inline export function sequences(p: usize): u32 {
  return load<u32>(load<u32>(p));
}

// @ts-ignore: decorator
@inline function field(p: usize, s: u32, which: u32): u32 {
  return load<u32>(load<u32>(p, 4) + which * load<u32>(p, 8) + s * 4);
}

/** Index of a sequence's first token in the step. */
// @ts-ignore: decorator
@inline export function startOf(p: usize, s: u32): u32 {
  return field(p, s, 1);
}

// @ts-ignore: decorator
@inline export function lengthOf(p: usize, s: u32): u32 {
  return field(p, s, 2);
}

// @ts-ignore: decorator
@inline export function positionOf(p: usize, s: u32): u32 {
  return field(p, s, 3);
}

/** Address of a sequence's state. */
// @ts-ignore: decorator
@inline export function stateOf(p: usize, s: u32): usize {
  const block = load<u32>(load<u32>(p, 12) + field(p, s, 0) * load<u32>(p, 16));
  return load<u32>(p, 20) + block * load<u32>(p, 24);
}

/** Columns of a head's state that one thread takes through all tokens. */
// @ts-ignore: decorator
@inline export const TILE: u32 = 16;

/** Takes `count` columns of a head's state, from `from` on, through all tokens of sequence `s`. `tile`: room for them. */
type Scan = (p: usize, s: u32, head: u32, from: u32, count: u32, tile: usize) => void;

/**
 * The pieces (sequence, head, TILE columns of its state) that are a thread's. Parameters have the heads at 48 and the columns of a
 * state at 56. `scratch`: the thread's own.
 */
export function scanTiles(p: usize, thread: u32, threads: u32, scratch: usize, scan: Scan): void {
  const heads = load<u32>(p, 48);
  const cols = load<u32>(p, 56);
  const tiles = (cols + TILE - 1) / TILE;
  const units = sequences(p) * heads * tiles;
  const end = share(units, thread + 1, threads);
  for (let unit = share(units, thread, threads); unit < end; unit++) {
    const tile = unit % tiles;
    const head = (unit / tiles) % heads;
    scan(p, unit / tiles / heads, head, tile * TILE, min<u32>(TILE, cols - tile * TILE), scratch);
  }
}

/** `bytes` of each row of a state, at `state`, as a tile of rows of TILE numbers: zeros where a sequence begins. */
export function loadTile(p: usize, s: u32, state: usize, tile: usize, rows: u32, cols: u32, bytes: u32): void {
  const fresh = positionOf(p, s) == 0;
  for (let i: u32 = 0; i < rows; i++) {
    const row: usize = tile + i * TILE * 4;
    if (fresh) memory.fill(row, 0, bytes);
    else memory.copy(row, state + i * cols * 4, bytes);
  }
}

export function storeTile(state: usize, tile: usize, rows: u32, cols: u32, bytes: u32): void {
  for (let i: u32 = 0; i < rows; i++) memory.copy(state + i * cols * 4, tile + i * TILE * 4, bytes);
}

/** `ln(1 + e^x)` */
// @ts-ignore: decorator
@inline export function softplus(x: f64): f64 {
  return x > 40 ? x : Math.log1p(Math.exp(x));
}
