import { exp4, loadPart, madd, share, storePart, sumLanes } from './math';

/** `x / sqrt(mean(x²) + eps) · weight`. [x, out, weight, rowsAt, cols, eps] */
export function rmsNorm(p: usize, thread: u32, threads: u32): void {
  const x = load<u32>(p);
  const out = load<u32>(p, 4);
  const weight = load<u32>(p, 8);
  const rows = load<u32>(load<u32>(p, 12));
  const cols = load<u32>(p, 16);
  const eps = load<f32>(p, 20);
  const end = share(rows, thread + 1, threads);
  for (let r = share(rows, thread, threads); r < end; r++) {
    const at: usize = r * cols * 4;
    normRow(x + at, weight, out + at, cols, eps);
  }
}

/** One row, or one head of q or k. */
export function normRow(x: usize, weight: usize, out: usize, cols: u32, eps: f32): void {
  normPart(x, weight, normScale(x, cols, eps), out, cols);
}

/** What a row is to be multiplied with. The order of the sum depends on `cols` alone. */
export function normScale(x: usize, cols: u32, eps: f32): f32 {
  let s0 = f32x4.splat(0);
  let s1 = s0;
  let s2 = s0;
  let s3 = s0;
  let c: u32 = 0;
  for (; c + 16 <= cols; c += 16) {
    const at = x + c * 4;
    const a = v128.load(at);
    const b = v128.load(at, 16);
    const d = v128.load(at, 32);
    const e = v128.load(at, 48);
    s0 = madd(a, a, s0);
    s1 = madd(b, b, s1);
    s2 = madd(d, d, s2);
    s3 = madd(e, e, s3);
  }
  for (; c + 4 <= cols; c += 4) {
    const a = v128.load(x + c * 4);
    s0 = madd(a, a, s0);
  }
  if (c < cols) {
    const a = loadPart(x + c * 4, cols - c);
    s1 = madd(a, a, s1);
  }
  const sum = sumLanes(f32x4.add(f32x4.add(s0, s1), f32x4.add(s2, s3)));
  return <f32>1 / sqrt<f32>(sum / <f32>cols + eps);
}

/** `count` columns of a row, by its scale. */
export function normPart(x: usize, weight: usize, by: f32, out: usize, count: u32): void {
  const scale = f32x4.splat(by);
  let c: u32 = 0;
  for (; c + 4 <= count; c += 4) {
    const v = f32x4.mul(f32x4.mul(v128.load(x + c * 4), scale), v128.load(weight + c * 4));
    v128.store(out + c * 4, v);
  }
  if (c < count) {
    const n = count - c;
    const v = f32x4.mul(f32x4.mul(loadPart(x + c * 4, n), scale), loadPart(weight + c * 4, n));
    storePart(out + c * 4, v, n);
  }
}

/** Columns a piece of elementwise work has: small enough that one row is shared by the threads. */
// @ts-ignore: decorator
@inline const PIECE: u32 = 256;

/** `act(gate) · up`. [x, out, rowsAt, half, activation] with x `[rows, 2 half]`, activations in the order of graph.ts. */
export function glu(p: usize, thread: u32, threads: u32): void {
  const x = load<u32>(p);
  const out = load<u32>(p, 4);
  const rows = load<u32>(load<u32>(p, 8));
  const half = load<u32>(p, 12);
  const activation = load<u32>(p, 16);
  const pieces = (half + PIECE - 1) / PIECE;
  const end = share(rows * pieces, thread + 1, threads);
  for (let i = share(rows * pieces, thread, threads); i < end; i++) {
    const r = i / pieces;
    const from = (i - r * pieces) * PIECE;
    const count = min<u32>(PIECE, half - from);
    const gate: usize = x + (r * half * 2 + from) * 4;
    const to: usize = out + (r * half + from) * 4;
    gluPart(activation, gate, gate + half * 4, to, count);
  }
}

/** `count` columns. */
export function gluPart(activation: u32, gate: usize, up: usize, out: usize, count: u32): void {
  if (activation == 0) gluPiece<Silu>(gate, up, out, count);
  else if (activation == 1) gluPiece<Gelu>(gate, up, out, count);
  else if (activation == 2) gluPiece<GeluTanh>(gate, up, out, count);
  else if (activation == 3) gluPiece<Relu>(gate, up, out, count);
  else gluPiece<Relu2>(gate, up, out, count);
}

/** 1 and the place behind the activations of graph.ts: the clamped one, which experts alone have. */
export const CLAMPED: u32 = 6;

/** `(clamp(up, ±limit) + 1) · g / (1 + e^(−alpha g))` with `g = min(gate, limit)`; `count` a multiple of 4. */
export function clampedPart(gate: usize, up: usize, out: usize, count: u32, alpha: f32, limit: f32): void {
  const most = f32x4.splat(limit);
  const least = f32x4.splat(-limit);
  const by = f32x4.splat(-alpha);
  const one = f32x4.splat(1);
  for (let c: u32 = 0; c < count; c += 4) {
    const g = f32x4.min(v128.load(gate + c * 4), most);
    const u = f32x4.max(f32x4.min(v128.load(up + c * 4), most), least);
    const swish = f32x4.div(g, f32x4.add(one, exp4(f32x4.mul(g, by))));
    v128.store(out + c * 4, f32x4.mul(f32x4.add(u, one), swish));
  }
}

// The type parameter picks the activation when the kernel is compiled.
class Silu {}
class Gelu {}
class GeluTanh {}
class Relu {}
class Relu2 {}
class Xielu {}
class QuickGelu {}

// @ts-ignore: decorator
@inline function activate<A>(x: v128): v128 {
  if (idof<A>() == idof<Silu>()) return silu(x);
  if (idof<A>() == idof<Gelu>()) return gelu(x);
  if (idof<A>() == idof<GeluTanh>()) return geluTanh(x);
  if (idof<A>() == idof<QuickGelu>()) return quickGelu(x);
  const positive = f32x4.max(x, f32x4.splat(0));
  if (idof<A>() == idof<Relu2>()) return f32x4.mul(positive, positive);
  return positive;
}

function gluPiece<A>(gate: usize, up: usize, out: usize, count: u32): void {
  let c: u32 = 0;
  for (; c + 4 <= count; c += 4) {
    v128.store(out + c * 4, f32x4.mul(activate<A>(v128.load(gate + c * 4)), v128.load(up + c * 4)));
  }
  if (c < count) {
    const n = count - c;
    storePart(out + c * 4, f32x4.mul(activate<A>(loadPart(gate + c * 4, n)), loadPart(up + c * 4, n)), n);
  }
}

/** `x / (1 + e^-x)` */
// @ts-ignore: decorator
@inline export function silu(x: v128): v128 {
  return f32x4.div(x, f32x4.add(f32x4.splat(1), exp4(f32x4.neg(x))));
}

/** `x / (1 + e^-1.702x)` */
// @ts-ignore: decorator
@inline function quickGelu(x: v128): v128 {
  return f32x4.div(x, f32x4.add(f32x4.splat(1), exp4(f32x4.mul(x, f32x4.splat(-1.702)))));
}

/** `x / 2 · (1 + tanh u)` is `x / (1 + e^-2u)`, `u = √(2/π) (x + 0.044715 x³)`. */
// @ts-ignore: decorator
@inline export function geluTanh(x: v128): v128 {
  const cube = f32x4.mul(f32x4.mul(x, x), x);
  const u = madd(cube, f32x4.splat(0.044715), x);
  const e = exp4(f32x4.mul(u, f32x4.splat(-1.5957691216)));
  return f32x4.div(x, f32x4.add(f32x4.splat(1), e));
}

/**
 * `x Φ(x)`, Φ by the complementary error function of Abramowitz and Stegun 7.1.26 (absolute error 1.5e-7), which is
 * taken of |x| so that the tail on the left keeps its relative precision.
 */
// @ts-ignore: decorator
@inline function gelu(x: v128): v128 {
  const z = f32x4.mul(f32x4.abs(x), f32x4.splat(0.70710678));
  const t = f32x4.div(f32x4.splat(1), madd(z, f32x4.splat(0.3275911), f32x4.splat(1)));
  let q = madd(t, f32x4.splat(1.061405429), f32x4.splat(-1.453152027));
  q = madd(q, t, f32x4.splat(1.421413741));
  q = madd(q, t, f32x4.splat(-0.284496736));
  q = madd(q, t, f32x4.splat(0.254829592));
  q = f32x4.mul(f32x4.mul(q, t), exp4(f32x4.neg(f32x4.mul(z, z))));
  const left = f32x4.mul(q, f32x4.splat(0.5));
  const right = f32x4.sub(f32x4.splat(1), left);
  return f32x4.mul(x, v128.bitselect(left, right, f32x4.lt(x, f32x4.splat(0))));
}

/** `act(x)`. [x, out, rowsAt, cols, activation, parameters], activations in the order of graph.ts. */
export function act(p: usize, thread: u32, threads: u32): void {
  const x = load<u32>(p);
  const out = load<u32>(p, 4);
  const count = load<u32>(load<u32>(p, 8)) * load<u32>(p, 12);
  const activation = load<u32>(p, 16);
  const parameters = load<u32>(p, 20);
  const pieces = (count + PIECE - 1) / PIECE;
  const end = min<u32>(share(pieces, thread + 1, threads) * PIECE, count);
  const from = share(pieces, thread, threads) * PIECE;
  if (from >= end) return;
  const at = x + from * 4;
  const to = out + from * 4;
  if (activation == 0) actPiece<Silu>(at, to, end - from, 0);
  else if (activation == 1) actPiece<Gelu>(at, to, end - from, 0);
  else if (activation == 2) actPiece<GeluTanh>(at, to, end - from, 0);
  else if (activation == 3) actPiece<Relu>(at, to, end - from, 0);
  else if (activation == 4) actPiece<Relu2>(at, to, end - from, 0);
  else if (activation == 5) actPiece<Xielu>(at, to, end - from, parameters);
  else actPiece<QuickGelu>(at, to, end - from, 0);
}

function actPiece<A>(x: usize, out: usize, count: u32, parameters: usize): void {
  let c: u32 = 0;
  for (; c + 4 <= count; c += 4) v128.store(out + c * 4, activateBy<A>(v128.load(x + c * 4), parameters));
  if (c < count) storePart(out + c * 4, activateBy<A>(loadPart(x + c * 4, count - c), parameters), count - c);
}

// @ts-ignore: decorator
@inline function activateBy<A>(x: v128, parameters: usize): v128 {
  return idof<A>() == idof<Xielu>() ? xielu(x, parameters) : activate<A>(x);
}

/**
 * `αp x² + β x` above 0, else `(e^m - 1 - m + (m - x)) αn + β x` with m = min(x, eps). [αp, αn, β, eps]
 * Near 0 `e^m - 1 - m` is summed as a series, of which nothing cancels.
 */
// @ts-ignore: decorator
@inline function xielu(x: v128, parameters: usize): v128 {
  const alphaP = v128.load32_splat(parameters);
  const alphaN = v128.load32_splat(parameters, 4);
  const line = f32x4.mul(v128.load32_splat(parameters, 8), x);
  const m = f32x4.min(x, v128.load32_splat(parameters, 12));
  let q = madd(m, f32x4.splat(2.4801587e-5), f32x4.splat(1.9841270e-4));
  q = madd(q, m, f32x4.splat(1.3888889e-3));
  q = madd(q, m, f32x4.splat(8.3333333e-3));
  q = madd(q, m, f32x4.splat(4.1666667e-2));
  q = madd(q, m, f32x4.splat(1.6666667e-1));
  q = madd(q, m, f32x4.splat(0.5));
  const near = f32x4.mul(f32x4.mul(m, m), q);
  const far = f32x4.sub(f32x4.sub(exp4(m), f32x4.splat(1)), m);
  const curve = v128.bitselect(near, far, f32x4.gt(m, f32x4.splat(-0.5)));
  const below = madd(f32x4.add(curve, f32x4.sub(m, x)), alphaN, line);
  const above = madd(f32x4.mul(x, x), alphaP, line);
  return v128.bitselect(above, below, f32x4.gt(x, f32x4.splat(0)));
}

/** `a + b`. [a, b, out, rowsAt, cols] */
export function add(p: usize, thread: u32, threads: u32): void {
  const a = load<u32>(p);
  const b = load<u32>(p, 4);
  const out = load<u32>(p, 8);
  const count = load<u32>(load<u32>(p, 12)) * load<u32>(p, 16);
  const pieces = (count + PIECE - 1) / PIECE;
  const end = min<u32>(share(pieces, thread + 1, threads) * PIECE, count);
  let c = share(pieces, thread, threads) * PIECE;
  for (; c + 4 <= end; c += 4) v128.store(out + c * 4, f32x4.add(v128.load(a + c * 4), v128.load(b + c * 4)));
  for (; c < end; c++) store<f32>(out + c * 4, load<f32>(a + c * 4) + load<f32>(b + c * 4));
}

/** `c tanh(y / c)` with `y = x · factor`, by `1 - 2 / (e^(2 y / c) + 1)`. */
// @ts-ignore: decorator
@inline function capped(y: v128, cap: f32): v128 {
  const e = exp4(f32x4.mul(y, f32x4.splat(<f32>2 / cap)));
  const one = f32x4.splat(1);
  const tanh = f32x4.sub(one, f32x4.div(f32x4.splat(2), f32x4.add(e, one)));
  return f32x4.mul(f32x4.splat(cap), tanh);
}

/** `x · factor`, capped where `cap` is not 0. [x, out, rowsAt, cols, factor, cap] */
export function scale(p: usize, thread: u32, threads: u32): void {
  const x = load<u32>(p);
  const out = load<u32>(p, 4);
  const count = load<u32>(load<u32>(p, 8)) * load<u32>(p, 12);
  const factor = f32x4.splat(load<f32>(p, 16));
  const cap = load<f32>(p, 20);
  const pieces = (count + PIECE - 1) / PIECE;
  const end = min<u32>(share(pieces, thread + 1, threads) * PIECE, count);
  let c = share(pieces, thread, threads) * PIECE;
  for (; c + 4 <= end; c += 4) {
    const y = f32x4.mul(v128.load(x + c * 4), factor);
    v128.store(out + c * 4, cap == 0 ? y : capped(y, cap));
  }
  if (c < end) {
    const y = f32x4.mul(loadPart(x + c * 4, end - c), factor);
    storePart(out + c * 4, cap == 0 ? y : capped(y, cap), end - c);
  }
}

/** The rows the host wants. [x, out, outputs, rowsAt, cols] with `outputs` the address of their indices. */
export function selectOutputs(p: usize, thread: u32, threads: u32): void {
  const x = load<u32>(p);
  const out = load<u32>(p, 4);
  const outputs = load<u32>(p, 8);
  const rows = load<u32>(load<u32>(p, 12));
  const bytes = load<u32>(p, 16) * 4;
  const each = load<u32>(p, 20);
  const end = share(rows, thread + 1, threads);
  for (let r = share(rows, thread, threads); r < end; r++) {
    const from = x + load<u32>(outputs + r * 4) * each * bytes;
    if (each == 1) memory.copy(out + r * bytes, from, bytes);
    else meanOfRows(from, each, bytes, out + r * bytes);
  }
}

/** The mean of `count` rows, summed in their order. */
function meanOfRows(from: usize, count: u32, bytes: usize, to: usize): void {
  const factor = f32x4.splat(<f32>1 / <f32>count);
  for (let c: usize = 0; c < bytes; c += 16) {
    let sum = v128.load(from + c);
    for (let i: usize = 1; i < count; i++) sum = f32x4.add(sum, v128.load(from + i * bytes + c));
    v128.store(to + c, f32x4.mul(sum, factor));
  }
}
