/**
 * Matrix products over the layout of ../pack-layout.ts.
 *
 * A sum has one order, whatever the number of rows and threads: a tile of any height adds the same groups in the same
 * order, lane by lane, and what is summed inside a group is exact (integers) or sequential (floats).
 */
import {
  floats1x1, floats1x2, floats2x1, floats4x1, integers1x1, integers1x2, integers2x1, integers4x1, s0, s1, s2, s3, s4,
  s5, s6, s7,
} from './matmul-tiles';

/** Bytes of weights a thread takes at a time when many rows share them: they stay in its first caches. */
// @ts-ignore: decorator
@inline const PIECE_BYTES: u32 = 32768;

/**
 * `out = x · Wᵀ · factor + bias (+ residual)`.
 * [segment: at, firstRow, rows, cols, bits, group, dtype, blockBytes, factors, biases;
 * rowCountAt, x, xStride, out, outStride, residual, float, next, done]
 */
export function linear(p: usize, thread: u32, threads: u32): void {
  const at = load<u32>(p);
  const weightRows = load<u32>(p, 8);
  const cols = load<u32>(p, 12);
  const bits = load<u32>(p, 16);
  const group = load<u32>(p, 20);
  const dtype = load<u32>(p, 24);
  const size = load<u32>(p, 28);
  const rows = load<u32>(load<u32>(p, 40));
  const x = load<u32>(p, 44);
  const xStride = load<u32>(p, 48);
  const floats = bits == 0 || load<u32>(p, 64) != 0;
  const blocks = (weightRows + 7) >> 3;
  const piece = pieceBlocks(blocks, <u32>size, rows, threads);

  // Pieces are dealt as threads ask for them: one that the system holds up takes fewer.
  for (;;) {
    const first = atomic.add<u32>(p + 68, piece);
    if (first >= blocks) break;
    const end = min(first + piece, blocks);
    for (let r: u32 = 0; r < rows; r += 4) {
      const n = min<u32>(4, rows - r);
      const x0 = x + r * xStride;
      let b = first;
      if (n == 1) {
        // Two blocks at a time where that gains.
        if (!floats || bits == 0) {
          for (; b + 1 < end; b += 2) {
            const w = at + b * size;
            if (floats) floats1x2(bits, w, size, x0, cols, group, dtype);
            else integers1x2(bits, w, size, x0, cols, group, dtype);
            finish(p, r, b, s0, s1);
            finish(p, r, b + 1, s2, s3);
          }
        }
        for (; b < end; b++) {
          const w = at + b * size;
          if (floats) floats1x1(bits, w, size, x0, cols, group, dtype);
          else integers1x1(bits, w, size, x0, cols, group, dtype);
          finish(p, r, b, s0, s1);
        }
      } else if (n == 2) {
        for (; b < end; b++) {
          const w = at + b * size;
          if (floats) floats2x1(bits, w, size, x0, x0 + xStride, cols, group, dtype);
          else integers2x1(bits, w, size, x0, cols, group, dtype);
          finish(p, r, b, s0, s1);
          finish(p, r + 1, b, s2, s3);
        }
      } else {
        const x1 = x0 + xStride;
        const x2 = x1 + xStride;
        // A row that is not there is computed as the one before, and dropped.
        const x3 = n > 3 ? x2 + xStride : x2;
        for (; b < end; b++) {
          const w = at + b * size;
          if (floats) floats4x1(bits, w, size, x0, x1, x2, x3, cols, group, dtype);
          else integers4x1(bits, w, size, x0, cols, group, dtype);
          finish(p, r, b, s0, s1);
          finish(p, r + 1, b, s2, s3);
          finish(p, r + 2, b, s4, s5);
          if (n > 3) finish(p, r + 3, b, s6, s7);
        }
      }
    }
  }
  // The last to find nothing left makes the command ready for the next step.
  if (atomic.add<u32>(p + 72, 1) == threads - 1) {
    atomic.store<u32>(p + 68, 0);
    atomic.store<u32>(p + 72, 0);
  }
}

function pieceBlocks(blocks: u32, size: u32, rows: u32, threads: u32): u32 {
  if (threads == 1 && rows == 1) return blocks;
  const fair = max<u32>(2, (blocks / (threads * 8) + 1) & ~1);
  if (rows == 1) return fair;
  return min(fair, max<u32>(2, PIECE_BYTES / size));
}

/** Writes the 8 results of a row and a block. */
function finish(p: usize, row: u32, block: u32, low: v128, high: v128): void {
  const column = block * 8;
  const offset = row * load<u32>(p, 56) + column * 4;
  const out = load<u32>(p, 52) + offset;
  const base = load<u32>(p, 60);
  const factors = load<u32>(p, 32) + column * 4;
  const biases = load<u32>(p, 36) + column * 4;
  const n = load<u32>(p, 8) - column;
  let a = f32x4.add(f32x4.mul(low, v128.load(factors)), v128.load(biases));
  let b = f32x4.add(f32x4.mul(high, v128.load(factors, 16)), v128.load(biases, 16));
  if (n >= 8) {
    if (base != 0) {
      a = f32x4.add(a, v128.load(base + offset));
      b = f32x4.add(b, v128.load(base + offset, 16));
    }
    v128.store(out, a);
    v128.store(out, b, 16);
    return;
  }
  for (let i: u32 = 0; i < n; i++) {
    let v = f32x4.extract_lane(a, 0);
    if (base != 0) v += load<f32>(base + offset + i * 4);
    store<f32>(out + i * 4, v);
    a = v128.shuffle<i32>(a, b, 1, 2, 3, 4);
    b = v128.shuffle<i32>(b, b, 1, 2, 3, 3);
  }
}
