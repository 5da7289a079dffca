import { normScale } from './elementwise';
import { loadPart, madd, share, storePart, sumLanes } from './math';

// @ts-ignore: decorator
@inline const LAYER: u32 = 1;
// @ts-ignore: decorator
@inline const COPY: u32 = 2;

/**
 * `groups` runs of `width` columns from column `from`, each normed by itself, times weight, plus bias (0: none).
 * [x, out, weight, bias, rowsAt, cols, from, width, groups, eps, kind], kind 0: rms, 1: layer, 2: a copy.
 */
export function norm(p: usize, thread: u32, threads: u32): void {
  const x = load<u32>(p);
  const out = load<u32>(p, 4);
  const weight = load<u32>(p, 8);
  const bias = load<u32>(p, 12);
  const rows = load<u32>(load<u32>(p, 16));
  const cols = load<u32>(p, 20);
  const from = load<u32>(p, 24);
  const width = load<u32>(p, 28);
  const groups = load<u32>(p, 32);
  const eps = load<f32>(p, 36);
  const kind = load<u32>(p, 40);
  const end = share(rows * groups, thread + 1, threads);
  for (let i = share(rows * groups, thread, threads); i < end; i++) {
    const row = i / groups;
    const group = i - row * groups;
    const at: usize = (row * cols + from + group * width) * 4;
    if (kind == COPY) {
      memory.copy(out + at, x + at, width * 4);
      continue;
    }
    const own: usize = group * width * 4;
    const mean: f32 = kind == LAYER ? meanOf(x + at, width) : 0;
    const by = kind == LAYER ? scaleAbout(mean, x + at, width, eps) : normScale(x + at, width, eps);
    write(x + at, mean, by, weight == 0 ? 0 : weight + own, bias == 0 ? 0 : bias + own, out + at, width);
  }
}

/** The order of the sum depends on `cols` alone. */
function meanOf(x: usize, cols: u32): f32 {
  let s0 = f32x4.splat(0);
  let s1 = s0;
  let c: u32 = 0;
  for (; c + 8 <= cols; c += 8) {
    s0 = f32x4.add(s0, v128.load(x + c * 4));
    s1 = f32x4.add(s1, v128.load(x + c * 4, 16));
  }
  if (c + 4 <= cols) {
    s0 = f32x4.add(s0, v128.load(x + c * 4));
    c += 4;
  }
  if (c < cols) s1 = f32x4.add(s1, loadPart(x + c * 4, cols - c));
  return sumLanes(f32x4.add(s0, s1)) / <f32>cols;
}

/** What `x - mean` is to be multiplied with. */
function scaleAbout(mean: f32, x: usize, cols: u32, eps: f32): f32 {
  const about = f32x4.splat(mean);
  let s0 = f32x4.splat(0);
  let s1 = s0;
  let c: u32 = 0;
  for (; c + 8 <= cols; c += 8) {
    const a = f32x4.sub(v128.load(x + c * 4), about);
    const b = f32x4.sub(v128.load(x + c * 4, 16), about);
    s0 = madd(a, a, s0);
    s1 = madd(b, b, s1);
  }
  if (c + 4 <= cols) {
    const a = f32x4.sub(v128.load(x + c * 4), about);
    s0 = madd(a, a, s0);
    c += 4;
  }
  let sum = sumLanes(f32x4.add(s0, s1));
  for (; c < cols; c++) {
    const a = load<f32>(x + c * 4) - mean;
    sum += a * a;
  }
  return <f32>1 / sqrt<f32>(sum / <f32>cols + eps);
}

function write(x: usize, mean: f32, by: f32, weight: usize, bias: usize, out: usize, cols: u32): void {
  const about = f32x4.splat(mean);
  const scale = f32x4.splat(by);
  let c: u32 = 0;
  for (; c + 4 <= cols; c += 4) {
    let v = f32x4.mul(f32x4.sub(v128.load(x + c * 4), about), scale);
    if (weight != 0) v = f32x4.mul(v, v128.load(weight + c * 4));
    if (bias != 0) v = f32x4.add(v, v128.load(bias + c * 4));
    v128.store(out + c * 4, v);
  }
  if (c < cols) {
    const n = cols - c;
    let v = f32x4.mul(f32x4.sub(loadPart(x + c * 4, n), about), scale);
    if (weight != 0) v = f32x4.mul(v, loadPart(weight + c * 4, n));
    if (bias != 0) v = f32x4.add(v, loadPart(bias + c * 4, n));
    storePart(out + c * 4, v, n);
  }
}
