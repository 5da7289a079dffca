import { share } from './math';

/**
 * The op `rotate` of graph.ts. A head has one rule whoever computes it: products first, then their sum, never fused.
 *
 * [x, angles, out, rowsAt, cols, heads, headDim, dims, interleaved]
 */
export function rotateRows(p: usize, thread: u32, threads: u32): void {
  const rows = load<u32>(load<u32>(p, 12));
  const cols = load<u32>(p, 16);
  const heads = load<u32>(p, 20);
  const headDim = load<u32>(p, 24);
  const dims = load<u32>(p, 28);
  const interleaved = load<u32>(p, 32) != 0;
  const half = dims / 2;
  const end = share(rows, thread + 1, threads);
  for (let r = share(rows, thread, threads); r < end; r++) {
    const x: usize = load<u32>(p) + r * cols * 4;
    const out: usize = load<u32>(p, 8) + r * cols * 4;
    const angles: usize = load<u32>(p, 4) + r * dims * 4;
    memory.copy(out, x, cols * 4);
    for (let h: u32 = 0; h < heads; h++) {
      const from = x + h * headDim * 4;
      const to = out + h * headDim * 4;
      if (interleaved) neighbours(from, to, angles, half);
      else halves(from, to, angles, half);
    }
  }
}

/** Pairs (i, i + half). */
function halves(x: usize, out: usize, angles: usize, half: u32): void {
  const far: usize = half * 4;
  let i: u32 = 0;
  for (; i + 4 <= half; i += 4) {
    const at: usize = i * 4;
    const c = v128.load(angles + at);
    const s = v128.load(angles + at + far);
    const a = v128.load(x + at);
    const b = v128.load(x + at + far);
    v128.store(out + at, f32x4.sub(f32x4.mul(a, c), f32x4.mul(b, s)));
    v128.store(out + at + far, f32x4.add(f32x4.mul(b, c), f32x4.mul(a, s)));
  }
  for (; i < half; i++) pair(x + i * 4, out + i * 4, far, angles + i * 4, far);
}

/** Pairs (2i, 2i + 1). */
function neighbours(x: usize, out: usize, angles: usize, half: u32): void {
  for (let i: u32 = 0; i < half; i++) pair(x + i * 8, out + i * 8, 4, angles + i * 4, half * 4);
}

// @ts-ignore: decorator
@inline function pair(x: usize, out: usize, apart: usize, angle: usize, sine: usize): void {
  const a = load<f32>(x);
  const b = load<f32>(x + apart);
  const c = load<f32>(angle);
  const s = load<f32>(angle + sine);
  store<f32>(out, a * c - b * s);
  store<f32>(out + apart, b * c + a * s);
}
