import { madd } from './math';
import { lengthOf, loadTile, scanTiles, softplus, startOf, stateOf, storeTile, TILE } from './recurrent';

/**
 * The selective state space (`selective-scan` of ../../graph.ts). A thread takes columns of a state through all tokens
 * (`scanTiles`). A column's sum goes over the rows from the first to the last, whatever is beside it.
 * [what recurrent.ts says, then from 28 on: x, steps, out, decay, groups, heads, rows, cols, where matrices begin in a
 * state, least and largest Δ, scratch, bytes of it a thread, bytes of a row of steps]
 * `scratch`: the tile `[rows, TILE]`.
 */
export function selectiveScan(p: usize, thread: u32, threads: u32): void {
  scanTiles(p, thread, threads, load<u32>(p, 72) + load<u32>(p, 76) * thread, scan);
}

function scan(p: usize, s: u32, head: u32, from: u32, count: u32, tile: usize): void {
  const groups = load<u32>(p, 44);
  const heads = load<u32>(p, 48);
  const rows = load<u32>(p, 52);
  const cols = load<u32>(p, 56);
  const state: usize = stateOf(p, s) + load<u32>(p, 60) + (head * rows * cols + from) * 4;
  const bytes = count * 4;
  loadTile(p, s, state, tile, rows, cols, bytes);
  const width = (heads * cols + 2 * groups * rows) * 4;
  const group = head / (heads / groups);
  const least = <f64>load<f32>(p, 64);
  const most = <f64>load<f32>(p, 68);
  const decay: usize = load<u32>(p, 40);
  const rate = <f64>load<f32>(decay + head * 4);
  const shift = <f64>load<f32>(decay + (heads + head) * 4);
  const skip = load<f32>(decay + (2 * heads + head) * 4);
  const first = startOf(p, s);
  const end = first + lengthOf(p, s);
  for (let t = first; t < end; t++) {
    const row: usize = load<u32>(p, 28) + t * width;
    const x = row + (head * cols + from) * 4;
    const b = row + (heads * cols + group * rows) * 4;
    const c = b + groups * rows * 4;
    const dt = softplus(<f64>load<f32>(load<u32>(p, 32) + t * load<u32>(p, 80) + head * 4) + shift);
    const step = min<f64>(max<f64>(dt, least), most);
    const alpha = <f32>Math.exp(step * rate);
    const out: usize = load<u32>(p, 36) + (t * heads * cols + head * cols + from) * 4;
    if (count == TILE) four(tile, b, c, x, out, rows, alpha, <f32>step, skip);
    else
      for (let i: usize = 0; i < bytes; i += 16)
        one(tile + i, b, c, x + i, out + i, rows, alpha, <f32>step, skip);
  }
  storeTile(state, tile, rows, cols, bytes);
}

/** A token for four columns of a tile. */
function one(
  tile: usize, b: usize, c: usize, x: usize, out: usize, rows: u32, alpha: f32, step: f32, skip: f32,
): void {
  const a = f32x4.splat(alpha);
  const d = f32x4.mul(v128.load(x), f32x4.splat(step));
  let o = f32x4.splat(0);
  for (let i: u32 = 0; i < rows; i++) {
    const at: usize = tile + i * TILE * 4;
    const s = madd(v128.load32_splat(b + i * 4), d, f32x4.mul(v128.load(at), a));
    v128.store(at, s);
    o = madd(s, v128.load32_splat(c + i * 4), o);
  }
  v128.store(out, madd(f32x4.splat(skip), v128.load(x), o));
}

/** The same for the 16 columns of a whole tile, each as `one` has it. */
function four(
  tile: usize, b: usize, c: usize, x: usize, out: usize, rows: u32, alpha: f32, step: f32, skip: f32,
): void {
  const a = f32x4.splat(alpha);
  const by = f32x4.splat(step);
  const d0 = f32x4.mul(v128.load(x), by);
  const d1 = f32x4.mul(v128.load(x, 16), by);
  const d2 = f32x4.mul(v128.load(x, 32), by);
  const d3 = f32x4.mul(v128.load(x, 48), by);
  const zero = f32x4.splat(0);
  let o0 = zero, o1 = zero, o2 = zero, o3 = zero;
  for (let i: u32 = 0; i < rows; i++) {
    const at: usize = tile + i * TILE * 4;
    const input = v128.load32_splat(b + i * 4);
    const output = v128.load32_splat(c + i * 4);
    const s0 = madd(input, d0, f32x4.mul(v128.load(at), a));
    const s1 = madd(input, d1, f32x4.mul(v128.load(at, 16), a));
    const s2 = madd(input, d2, f32x4.mul(v128.load(at, 32), a));
    const s3 = madd(input, d3, f32x4.mul(v128.load(at, 48), a));
    v128.store(at, s0);
    v128.store(at, s1, 16);
    v128.store(at, s2, 32);
    v128.store(at, s3, 48);
    o0 = madd(s0, output, o0);
    o1 = madd(s1, output, o1);
    o2 = madd(s2, output, o2);
    o3 = madd(s3, output, o3);
  }
  const own = f32x4.splat(skip);
  v128.store(out, madd(own, v128.load(x), o0));
  v128.store(out, madd(own, v128.load(x, 16), o1), 16);
  v128.store(out, madd(own, v128.load(x, 32), o2), 32);
  v128.store(out, madd(own, v128.load(x, 48), o3), 48);
}
