import { ROTATION_SIGNS } from '../kv-layout';
import { madd, sumLanes } from './math';

/**
 * The rotation of TurboQuant (../../turboquant/rotation.ts) of `dim` floats at `x`, in place; `inverse`: back. `rotation`:
 * [order m of the base matrix, power = dim / m, f32 scale, 0], signs, the base matrix. `spare`: `dim` floats.
 */
export function rotate(rotation: usize, x: usize, spare: usize, dim: u32, inverse: bool): void {
  const base = load<u32>(rotation);
  const power = load<u32>(rotation, 4);
  const scale = f32x4.splat(load<f32>(rotation, 8));
  const signs = rotation + ROTATION_SIGNS;
  if (!inverse) multiply(x, signs, dim);
  if (power > 1) hadamard(x, dim, power);
  if (base > 1) {
    multiplyBase(signs + dim * 4, base, power, x, spare, inverse);
    memory.copy(x, spare, dim * 4);
  }
  for (let d: u32 = 0; d < dim; d += 4) v128.store(x + d * 4, f32x4.mul(v128.load(x + d * 4), scale));
  if (inverse) multiply(x, signs, dim);
}

function multiply(x: usize, by: usize, dim: u32): void {
  for (let d: u32 = 0; d < dim; d += 4) {
    v128.store(x + d * 4, f32x4.mul(v128.load(x + d * 4), v128.load(by + d * 4)));
  }
}

/** The Walsh–Hadamard transform of runs of `power` (at least 4) floats. */
function hadamard(x: usize, dim: u32, power: u32): void {
  const end = x + dim * 4;
  const odd = f32x4(1, -1, 1, -1);
  const upper = f32x4(1, 1, -1, -1);
  for (let at = x; at < end; at += 16) {
    let v = v128.load(at);
    v = f32x4.add(v128.shuffle<i32>(v, v, 0, 0, 2, 2), f32x4.mul(v128.shuffle<i32>(v, v, 1, 1, 3, 3), odd));
    v = f32x4.add(v128.shuffle<i32>(v, v, 0, 1, 0, 1), f32x4.mul(v128.shuffle<i32>(v, v, 2, 3, 2, 3), upper));
    v128.store(at, v);
  }
  for (let half: u32 = 16; half < power * 4; half *= 2) {
    for (let from = x; from < end; from += 2 * half) {
      for (let at = from; at < from + half; at += 16) {
        const a = v128.load(at);
        const b = v128.load(at + half);
        v128.store(at, f32x4.add(a, b));
        v128.store(at + half, f32x4.sub(a, b));
      }
    }
  }
}

/** `to[i] = Σ_k M[i, k] x[k]` of runs of `power` floats, or with the transpose of M. */
function multiplyBase(matrix: usize, m: u32, power: u32, x: usize, to: usize, transposed: bool): void {
  if (power > 1) {
    const run = power * 4;
    for (let i: u32 = 0; i < m; i++) {
      for (let j: u32 = 0; j < run; j += 16) {
        let sum = f32x4.splat(0);
        for (let k: u32 = 0; k < m; k++) {
          const weight = v128.load_splat<f32>(matrix + (transposed ? k * m + i : i * m + k) * 4);
          sum = madd(weight, v128.load(x + k * run + j), sum);
        }
        v128.store(to + i * run + j, sum);
      }
    }
  } else if (transposed) {
    for (let i: u32 = 0; i < m; i += 4) {
      let sum = f32x4.splat(0);
      for (let k: u32 = 0; k < m; k++) {
        sum = madd(v128.load(matrix + (k * m + i) * 4), v128.load_splat<f32>(x + k * 4), sum);
      }
      v128.store(to + i * 4, sum);
    }
  } else {
    for (let i: u32 = 0; i < m; i++) {
      let sum = f32x4.splat(0);
      for (let k: u32 = 0; k < m; k += 4) {
        sum = madd(v128.load(matrix + (i * m + k) * 4), v128.load(x + k * 4), sum);
      }
      store<f32>(to + i * 4, sumLanes(sum));
    }
  }
}
