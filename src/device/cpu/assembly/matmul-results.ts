/**
 * How a product's sums become its results: `sum · factor + bias (+ residual)`, written by blocks of 8 columns. `p`: the words of the command, as
 * `linear` of matmul.ts has them.
 */

/** Writes the results of up to 4 rows (at least 3) and a block. */
export function finish4(
  p: usize, row: u32, block: u32, n: u32,
  v0: v128, v1: v128, v2: v128, v3: v128, v4: v128, v5: v128, v6: v128, v7: v128,
): void {
  const column = block * 8;
  if (n < 4 || load<u32>(p, 8) - column < 8) {
    finish(p, row, block, v0, v1);
    finish(p, row + 1, block, v2, v3);
    finish(p, row + 2, block, v4, v5);
    if (n > 3) finish(p, row + 3, block, v6, v7);
    return;
  }
  const stride = load<u32>(p, 56);
  let at = load<u32>(p, 52) + row * stride + column * 4;
  // What is added lies as far from the result as the first residual from the first result; 0 where there is none.
  let base = load<u32>(p, 60);
  const far = base != 0 ? base - load<u32>(p, 52) : 0;
  const factors = load<u32>(p, 32) + column * 4;
  const biases = load<u32>(p, 36) + column * 4;
  const c0 = v128.load(factors);
  const c1 = v128.load(factors, 16);
  const d0 = v128.load(biases);
  const d1 = v128.load(biases, 16);
  storeRow(at, base, far, c0, c1, d0, d1, v0, v1);
  at += stride;
  storeRow(at, base, far, c0, c1, d0, d1, v2, v3);
  at += stride;
  storeRow(at, base, far, c0, c1, d0, d1, v4, v5);
  at += stride;
  storeRow(at, base, far, c0, c1, d0, d1, v6, v7);
}

// @ts-ignore: decorator
@inline function storeRow(
  at: usize, base: u32, far: u32, c0: v128, c1: v128, d0: v128, d1: v128, low: v128, high: v128,
): void {
  let a = f32x4.add(f32x4.mul(low, c0), d0);
  let b = f32x4.add(f32x4.mul(high, c1), d1);
  if (base != 0) {
    a = f32x4.add(a, v128.load(at + far));
    b = f32x4.add(b, v128.load(at + far, 16));
  }
  v128.store(at, a);
  v128.store(at, b, 16);
}

/**
 * Writes the results of a tile of `n` rows and a block from its sums, times 8 floats at `times`. `added`: what is added to the first of whole blocks, 64 bytes a row
 * (gatherResidual).
 */
export function finishTile(p: usize, row: u32, n: u32, block: u32, times: usize, sums: usize, added: usize): void {
  const column = block * 8;
  const end = sums + n * 32;
  if (load<u32>(p, 8) - column < 8) {
    const t0 = v128.load(times);
    const t1 = v128.load(times, 16);
    for (; sums != end; sums += 32, row++) {
      finish(p, row, block, f32x4.mul(v128.load(sums), t0), f32x4.mul(v128.load(sums, 16), t1));
    }
    return;
  }
  const stride = load<u32>(p, 56);
  let at = load<u32>(p, 52) + row * stride + column * 4;
  const factors = load<u32>(p, 32) + column * 4;
  const biases = load<u32>(p, 36) + column * 4;
  const c0 = f32x4.mul(v128.load(factors), v128.load(times));
  const c1 = f32x4.mul(v128.load(factors, 16), v128.load(times, 16));
  const d0 = v128.load(biases);
  const d1 = v128.load(biases, 16);
  if (load<u32>(p, 60) == 0) {
    for (; sums != end; sums += 32, at += stride) {
      v128.store(at, f32x4.add(f32x4.mul(v128.load(sums), c0), d0));
      v128.store(at, f32x4.add(f32x4.mul(v128.load(sums, 16), c1), d1), 16);
    }
  } else {
    for (; sums != end; sums += 32, at += stride, added += 64) {
      v128.store(at, f32x4.add(f32x4.add(f32x4.mul(v128.load(sums), c0), d0), v128.load(added)));
      v128.store(at, f32x4.add(f32x4.add(f32x4.mul(v128.load(sums, 16), c1), d1), v128.load(added, 16)), 16);
    }
  }
}

/** Writes the 8 results of a row and a block. */
export function finish(p: usize, row: u32, block: u32, low: v128, high: v128): void {
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
