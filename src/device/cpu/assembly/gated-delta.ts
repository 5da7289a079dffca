import { madd, sumLanes } from './math';
import { lengthOf, loadTile, positionOf, scanTiles, softplus, startOf, stateOf, storeTile, TILE } from './recurrent';

/**
 * The gated delta rule (`gated-delta` of ../../graph.ts). A thread takes columns of a state through all tokens (`scanTiles`). A
 * column's sums go over the rows from the first to the last, whatever is beside it.
 * [what recurrent.ts says, then from 28 on: qkv, gates, out, decay, keyHeads, heads, rows, cols, where matrices begin in a
 * state, rows^-½, scratch, bytes of it a thread, bytes of a row of gates]
 * `scratch`: the tile `[rows, TILE]`, then q and k of a token.
 */
export function gatedDelta(p: usize, thread: u32, threads: u32): void {
  scanTiles(p, thread, threads, load<u32>(p, 68) + load<u32>(p, 72) * thread, scan);
}

function scan(p: usize, s: u32, head: u32, from: u32, count: u32, tile: usize): void {
  const keyHeads = load<u32>(p, 44);
  const heads = load<u32>(p, 48);
  const rows = load<u32>(p, 52);
  const cols = load<u32>(p, 56);
  const state: usize = stateOf(p, s) + load<u32>(p, 60) + (head * rows * cols + from) * 4;
  const bytes = count * 4;
  // One token takes the state where it lies.
  const inPlace = count == TILE && lengthOf(p, s) == 1 && positionOf(p, s) != 0;
  if (!inPlace) loadTile(p, s, state, tile, rows, cols, bytes);
  const q: usize = tile + TILE * rows * 4;
  const k: usize = q + rows * 4;
  const width = (2 * keyHeads * rows + heads * cols) * 4;
  const decay: usize = load<u32>(p, 40);
  const rate = load<f32>(decay + head * 4);
  const shift = load<f32>(decay + (heads + head) * 4);
  const keyHead = head / (heads / keyHeads);
  const first = startOf(p, s);
  const end = first + lengthOf(p, s);
  for (let t = first; t < end; t++) {
    const x: usize = load<u32>(p, 28) + t * width;
    unit(x + keyHead * rows * 4, q, rows, load<f32>(p, 64));
    unit(x + (keyHeads + keyHead) * rows * 4, k, rows, 1);
    const gates: usize = load<u32>(p, 32) + t * load<u32>(p, 76);
    const beta = <f32>(1 / (1 + Math.exp(-(<f64>load<f32>(gates + head * 4)))));
    const alpha = <f32>Math.exp(<f64>rate * softplus(<f64>load<f32>(gates + (heads + head) * 4) + <f64>shift));
    const v: usize = x + (2 * keyHeads * rows + head * cols + from) * 4;
    const out: usize = load<u32>(p, 36) + (t * heads * cols + head * cols + from) * 4;
    if (inPlace) four(state, cols * 4, q, k, v, out, rows, alpha, beta);
    else if (count == TILE) four(tile, TILE * 4, q, k, v, out, rows, alpha, beta);
    else for (let c: usize = 0; c < bytes; c += 16) one(tile + c, q, k, v + c, out + c, rows, alpha, beta);
  }
  if (!inPlace) storeTile(state, tile, rows, cols, bytes);
}

/** `x / √(Σx² + 1e-6) · by` */
function unit(x: usize, to: usize, count: u32, by: f32): void {
  let sum = f32x4.splat(0);
  for (let i: u32 = 0; i < count; i += 4) sum = madd(v128.load(x + i * 4), v128.load(x + i * 4), sum);
  const scale = f32x4.splat(by / sqrt<f32>(sumLanes(sum) + <f32>1e-6));
  for (let i: u32 = 0; i < count; i += 4) v128.store(to + i * 4, f32x4.mul(v128.load(x + i * 4), scale));
}

/** A token for four columns of a tile. */
function one(tile: usize, q: usize, k: usize, v: usize, out: usize, rows: u32, alpha: f32, beta: f32): void {
  const a = f32x4.splat(alpha);
  let r = f32x4.splat(0);
  for (let i: u32 = 0; i < rows; i++) {
    const at: usize = tile + i * TILE * 4;
    const s = f32x4.mul(v128.load(at), a);
    v128.store(at, s);
    r = madd(s, v128.load32_splat(k + i * 4), r);
  }
  const d = f32x4.mul(f32x4.sub(v128.load(v), r), f32x4.splat(beta));
  let o = f32x4.splat(0);
  for (let i: u32 = 0; i < rows; i++) {
    const at: usize = tile + i * TILE * 4;
    const s = madd(v128.load32_splat(k + i * 4), d, v128.load(at));
    v128.store(at, s);
    o = madd(s, v128.load32_splat(q + i * 4), o);
  }
  v128.store(out, o);
}

/**
 * The same for the 16 columns of a whole tile, each as `one` has it. `stride`: bytes from row to row. What has decayed is not stored between
 * the two loops but computed twice, which gives the same bits.
 */
function four(
  tile: usize, stride: usize, q: usize, k: usize, v: usize, out: usize, rows: u32, alpha: f32, beta: f32,
): void {
  const a = f32x4.splat(alpha);
  const zero = f32x4.splat(0);
  let r0 = zero, r1 = zero, r2 = zero, r3 = zero;
  let at = tile;
  for (let i: u32 = 0; i < rows; i++, at += stride) {
    const by = v128.load32_splat(k + i * 4);
    r0 = madd(f32x4.mul(v128.load(at), a), by, r0);
    r1 = madd(f32x4.mul(v128.load(at, 16), a), by, r1);
    r2 = madd(f32x4.mul(v128.load(at, 32), a), by, r2);
    r3 = madd(f32x4.mul(v128.load(at, 48), a), by, r3);
  }
  const b = f32x4.splat(beta);
  const d0 = f32x4.mul(f32x4.sub(v128.load(v), r0), b);
  const d1 = f32x4.mul(f32x4.sub(v128.load(v, 16), r1), b);
  const d2 = f32x4.mul(f32x4.sub(v128.load(v, 32), r2), b);
  const d3 = f32x4.mul(f32x4.sub(v128.load(v, 48), r3), b);
  let o0 = zero, o1 = zero, o2 = zero, o3 = zero;
  at = tile;
  for (let i: u32 = 0; i < rows; i++, at += stride) {
    const key = v128.load32_splat(k + i * 4);
    const query = v128.load32_splat(q + i * 4);
    const s0 = madd(key, d0, f32x4.mul(v128.load(at), a));
    const s1 = madd(key, d1, f32x4.mul(v128.load(at, 16), a));
    const s2 = madd(key, d2, f32x4.mul(v128.load(at, 32), a));
    const s3 = madd(key, d3, f32x4.mul(v128.load(at, 48), a));
    v128.store(at, s0);
    v128.store(at, s1, 16);
    v128.store(at, s2, 32);
    v128.store(at, s3, 48);
    o0 = madd(s0, query, o0);
    o1 = madd(s1, query, o1);
    o2 = madd(s2, query, o2);
    o3 = madd(s3, query, o3);
  }
  v128.store(out, o0);
  v128.store(out, o1, 16);
  v128.store(out, o2, 32);
  v128.store(out, o3, 48);
}
