import { exp4, share } from './math';

/** Stands for a NaN where experts are compared: behind all numbers, before what is left out. */
const LOWEST: f32 = -3.4e38;

/**
 * Chooses experts: RouteSpec of graph.ts. A row is one thread's, and every sum of it goes from the first to the last.
 *
 * [logits, out, rowsAt, experts, k, sigmoid, bias, groups, kept, two, normalise, least, add, scale, scratch, bytes of it
 * for each thread, scales of experts or 0]
 */
export function route(p: usize, thread: u32, threads: u32): void {
  const rows = load<u32>(load<u32>(p, 8));
  const experts = load<u32>(p, 12);
  const k = load<u32>(p, 16);
  const scores: usize = load<u32>(p, 56) + thread * load<u32>(p, 60);
  const end = share(rows, thread + 1, threads);
  for (let r = share(rows, thread, threads); r < end; r++) {
    const x: usize = load<u32>(p) + r * experts * 4;
    if (load<u32>(p, 20) != 0) sigmoids(x, scores, experts);
    else softmax(x, scores, experts);
    keysOf(p, scores, experts);
    choose(p, scores, experts, k, load<u32>(p, 4) + r * k * 8);
  }
}

// @ts-ignore: decorator
@inline function exp(x: f32): f32 {
  return f32x4.extract_lane(exp4(f32x4.splat(x)), 0);
}

function sigmoids(x: usize, scores: usize, experts: u32): void {
  for (let i: u32 = 0; i < experts; i++) store<f32>(scores + i * 4, <f32>1 / (<f32>1 + exp(-load<f32>(x + i * 4))));
}

function softmax(x: usize, scores: usize, experts: u32): void {
  let top = load<f32>(x);
  for (let i: u32 = 1; i < experts; i++) top = max(top, load<f32>(x + i * 4));
  let sum: f32 = 0;
  for (let i: u32 = 0; i < experts; i++) {
    const e = exp(load<f32>(x + i * 4) - top);
    store<f32>(scores + i * 4, e);
    sum += e;
  }
  for (let i: u32 = 0; i < experts; i++) store<f32>(scores + i * 4, load<f32>(scores + i * 4) / sum);
}

/** What experts are chosen by, behind the scores. Those of groups that are not kept become -Infinity. */
function keysOf(p: usize, scores: usize, experts: u32): void {
  const bias = load<u32>(p, 24);
  const keys = scores + experts * 4;
  for (let i: u32 = 0; i < experts; i++) {
    const key = load<f32>(scores + i * 4) + (bias == 0 ? 0 : load<f32>(bias + i * 4));
    store<f32>(keys + i * 4, key == key ? max(key, LOWEST) : LOWEST);
  }
  const groups = load<u32>(p, 28);
  if (groups == 0) return;
  const kept = load<u32>(p, 32);
  const two = load<u32>(p, 36) != 0;
  const each = experts / groups;
  const values = keys + experts * 4;
  for (let g: u32 = 0; g < groups; g++) {
    let first: f32 = -Infinity;
    let second: f32 = -Infinity;
    for (let i = g * each; i < (g + 1) * each; i++) {
      const key = load<f32>(keys + i * 4);
      if (key > first) {
        second = first;
        first = key;
      } else if (key > second) second = key;
    }
    store<f32>(values + g * 4, two ? first + second : first);
  }
  for (let g: u32 = 0; g < groups; g++) {
    const value = load<f32>(values + g * 4);
    let before: u32 = 0;
    for (let h: u32 = 0; h < groups; h++) {
      const other = load<f32>(values + h * 4);
      if (other > value || (other == value && h < g)) before++;
    }
    if (before < kept) continue;
    for (let i = g * each; i < (g + 1) * each; i++) store<f32>(keys + i * 4, -Infinity);
  }
}

function choose(p: usize, scores: usize, experts: u32, k: u32, out: usize): void {
  const keys = scores + experts * 4;
  for (let n: u32 = 0; n < k; n++) {
    let best: u32 = experts;
    let top: f32 = 0;
    for (let i: u32 = 0; i < experts; i++) {
      const key = load<f32>(keys + i * 4);
      // What was chosen before is NaN, and no comparison with it holds.
      if (key > top || (best == experts && key == key)) {
        best = i;
        top = key;
      }
    }
    store<f32>(keys + best * 4, NaN);
  }
  let n: u32 = 0;
  let sum: f32 = 0;
  for (let i: u32 = 0; i < experts; i++) {
    const key = load<f32>(keys + i * 4);
    if (key == key) continue;
    const score = load<f32>(scores + i * 4);
    store<f32>(out + n * 4, <f32>i);
    store<f32>(out + (k + n) * 4, score);
    sum += score;
    n++;
  }
  let by = load<f32>(p, 52);
  if (load<u32>(p, 40) != 0) by /= max(sum, load<f32>(p, 44)) + load<f32>(p, 48);
  const scales: usize = load<u32>(p, 64);
  for (let i: u32 = 0; i < k; i++) {
    const own: f32 = scales == 0 ? 1 : load<f32>(scales + <u32>load<f32>(out + i * 4) * 4);
    store<f32>(out + (k + i) * 4, load<f32>(out + (k + i) * 4) * by * own);
  }
}
