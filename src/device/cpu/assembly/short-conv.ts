import { silu } from './elementwise';
import { madd, share } from './math';
import { lengthOf, positionOf, sequences, startOf, stateOf } from './recurrent';

/** Channels of a piece of work. */
// @ts-ignore: decorator
@inline const PIECE: u32 = 64;

/**
 * Causal convolution by channel (`short-conv` of ../../graph.ts). Pieces of work are (sequence, channels): one thread walks over all
 * tokens of its channels and owns their state.
 * [what recurrent.ts says, then from 28 on: x, out, weight, bias, channels, taps, gated, silu, scratch, bytes of it a thread,
 * bytes of a row of x]
 * `weight`: `[taps, channels]`. `scratch`: a ring of inputs, `[taps, PIECE]`.
 */
export function shortConv(p: usize, thread: u32, threads: u32): void {
  const channels = load<u32>(p, 44);
  const ring: usize = load<u32>(p, 60) + load<u32>(p, 64) * thread;
  const pieces = (channels + PIECE - 1) / PIECE;
  const units = sequences(p) * pieces;
  const end = share(units, thread + 1, threads);
  for (let unit = share(units, thread, threads); unit < end; unit++) {
    const s = unit / pieces;
    const from = (unit - s * pieces) * PIECE;
    piece(p, s, from, min<u32>(PIECE, channels - from), ring);
  }
}

function piece(p: usize, s: u32, from: u32, count: u32, ring: usize): void {
  const channels = load<u32>(p, 44);
  const taps = load<u32>(p, 48);
  const gated = load<u32>(p, 52) != 0;
  const length = lengthOf(p, s);
  const state: usize = stateOf(p, s) + from * 4;
  const bytes = count * 4;
  // Input t of the sequence's in this step lies at place (t + taps - 1) mod taps; those before it go first.
  for (let j: u32 = 0; j + 1 < taps; j++) {
    const to: usize = ring + j * PIECE * 4;
    if (positionOf(p, s) == 0) memory.fill(to, 0, bytes);
    else memory.copy(to, state + j * channels * 4, bytes);
  }
  let newest = taps - 1;
  const width: usize = load<u32>(p, 68);
  let x: usize = load<u32>(p, 28) + startOf(p, s) * width + from * 4;
  let out: usize = load<u32>(p, 32) + (startOf(p, s) * channels + from) * 4;
  for (let t: u32 = 0; t < length; t++) {
    const here: usize = ring + newest * PIECE * 4;
    if (gated) {
      for (let c: u32 = 0; c < bytes; c += 16) {
        v128.store(here + c, f32x4.mul(v128.load(x + c), v128.load(x + 8 * channels + c)));
      }
    } else memory.copy(here, x, bytes);
    newest = newest + 1 == taps ? 0 : newest + 1;
    row(p, x + 4 * channels, out, from * 4, bytes, newest, ring);
    x += width;
    out += channels * 4;
  }
  for (let j: u32 = 0; j + 1 < taps; j++) {
    newest = newest + 1 == taps ? 0 : newest + 1;
    memory.copy(state + j * channels * 4, ring + newest * PIECE * 4, bytes);
  }
}

/** One token: `oldest` is the place of the first tap's input. */
function row(p: usize, gate: usize, out: usize, from: usize, bytes: usize, oldest: u32, ring: usize): void {
  const stride: usize = load<u32>(p, 44) * 4;
  const bias: usize = load<u32>(p, 40);
  const taps = load<u32>(p, 48);
  const gated = load<u32>(p, 52) != 0;
  const active = load<u32>(p, 56) != 0;
  const weight: usize = load<u32>(p, 36) + from;
  for (let c: usize = 0; c < bytes; c += 16) {
    let sum = bias == 0 ? f32x4.splat(0) : v128.load(bias + from + c);
    let at = oldest;
    for (let j: u32 = 0; j < taps; j++) {
      sum = madd(v128.load(weight + j * stride + c), v128.load(ring + at * PIECE * 4 + c), sum);
      at = at + 1 == taps ? 0 : at + 1;
    }
    if (active) sum = silu(sum);
    v128.store(out + c, gated ? f32x4.mul(sum, v128.load(gate + c)) : sum);
  }
}
