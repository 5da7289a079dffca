/**
 * The random rotation of TurboQuant. It spreads what a few strong channels hold over all coordinates, so that one
 * scalar codebook fits every coordinate of every vector (Zandieh et al., "TurboQuant", arXiv 2504.19874; the
 * randomised Hadamard form is that of Ailon and Chazelle's fast Johnson–Lindenstrauss transform).
 *
 * A rotation is fixed by head_dim and side for all models, layers and heads: stored bytes mean the same everywhere.
 * All that makes it is integer arithmetic, + − × ÷ and √, which every machine computes alike.
 */

import { KvantError } from '../../errors.js';
import { PALEY_ORDERS, type PaleyOrder, paleyHadamard } from './hadamard.js';

export type KvSide = 'key' | 'value';

/**
 * `y = scale · (M ⊗ H) (signs ∘ x)`, and back `x = signs ∘ scale · (Mᵀ ⊗ H) y`. Coordinate `d = i · power + j`: M acts
 * over i, H over j. H is the Walsh–Hadamard matrix of order `power` in natural order, `H[j, k] = (−1)^popcount(j & k)`.
 */
export interface Rotation {
  readonly headDim: number;
  /** `[headDim]` of ±1. */
  readonly signs: Float32Array;
  /** Order m of M: 1, 12, 20 or 28 for a Hadamard M; headDim where M is a dense orthogonal matrix. */
  readonly base: number;
  /** `[m, m]` row-major. Entries ±1 for a Hadamard M. */
  readonly matrix: Float32Array;
  /** headDim / m, a power of two. */
  readonly power: number;
  /** `1/√headDim`; 1 where M is dense. */
  readonly scale: number;
}

/** Seeds of the three streams of random words; to each is added headDim. */
const SEEDS = { key: 0x6b5f_0000, value: 0x765f_0000, dense: 0x645f_0000 } as const;

const made = new Map<string, Rotation>();

/**
 * The rotation of a head of `headDim`, for keys or for values. Where headDim is `m · 2^k` with m of 1, 12, 20 or 28 it is
 * a Hadamard matrix of full width after random signs; elsewhere a dense orthogonal matrix after random signs.
 *
 * Signs: word i of splitmix32 seeded with `SEEDS[side] + headDim`; −1 where its top bit is set.
 *
 * Errors: `head-dim-unsupported` (internal: the layer policy asks for no rotation it cannot have).
 */
export function turboRotation(headDim: number, side: KvSide): Rotation {
  if (!Number.isInteger(headDim) || headDim < 1 || headDim > 1024)
    throw new KvantError('head-dim-unsupported', `There is no rotation of width ${headDim}.`, {
      kind: 'internal',
      where: 'turboquant',
      fix: 'Keep layers of this head_dim in a float format.',
    });
  const name = `${side} ${headDim}`;
  let rotation = made.get(name);
  if (rotation === undefined) {
    rotation = makeRotation(headDim, side);
    made.set(name, rotation);
  }
  return rotation;
}

function makeRotation(headDim: number, side: KvSide): Rotation {
  const next = splitmix32(SEEDS[side] + headDim);
  const signs = Float32Array.from({ length: headDim }, () => (next() >>> 31 ? -1 : 1));
  const base = baseOrder(headDim);
  const matrix =
    base === 1
      ? Float32Array.of(1)
      : isPaley(base)
        ? paleyHadamard(base)
        : denseOrthogonal(headDim, SEEDS.dense + headDim);
  const dense = base === headDim && !isPaley(base) && base !== 1;
  return { headDim, signs, base, matrix, power: headDim / base, scale: dense ? 1 : 1 / Math.sqrt(headDim) };
}

/** The order of M: what is left of headDim when powers of two are taken out, down to an order that has a matrix. */
function baseOrder(headDim: number): number {
  const odd = headDim / (headDim & -headDim);
  if (odd === 1) return 1;
  return isPaley(odd * 4) && headDim % (odd * 4) === 0 ? odd * 4 : headDim;
}

function isPaley(order: number): order is PaleyOrder {
  return (PALEY_ORDERS as readonly number[]).includes(order);
}

/**
 * Gram–Schmidt over rows of near-normal numbers (sums of twelve uniforms), each row made orthogonal twice ("twice is
 * enough", Parlett), so that it is orthogonal to the last bit of f64 before it is rounded to f32.
 */
function denseOrthogonal(size: number, seed: number): Float32Array {
  const next = splitmix32(seed);
  const rows: Float64Array[] = [];
  for (let r = 0; r < size; r++) {
    const row = new Float64Array(size);
    for (let c = 0; c < size; c++) {
      let sum = -6;
      for (let k = 0; k < 12; k++) sum += next() / 2 ** 32;
      row[c] = sum;
    }
    for (let pass = 0; pass < 2; pass++) for (const other of rows) subtract(row, other, dot(row, other));
    const norm = Math.sqrt(dot(row, row));
    for (let c = 0; c < size; c++) row[c] = row[c]! / norm;
    rows.push(row);
  }
  return Float32Array.from(rows.flatMap((row) => [...row]));
}

function dot(a: Float64Array, b: Float64Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i]! * b[i]!;
  return sum;
}

function subtract(row: Float64Array, other: Float64Array, factor: number): void {
  for (let i = 0; i < row.length; i++) row[i] = row[i]! - factor * other[i]!;
}

/** Words of 32 bits: a Weyl sequence through a mixer (the 32-bit form of SplitMix, Steele et al. 2014). */
function splitmix32(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x9e3779b9) >>> 0;
    let z = state;
    z = Math.imul(z ^ (z >>> 16), 0x85ebca6b);
    z = Math.imul(z ^ (z >>> 13), 0xc2b2ae35);
    return (z ^ (z >>> 16)) >>> 0;
  };
}

/** `x` rotated, in f64. For the host and for tests; devices have kernels of their own. */
export function rotate(rotation: Rotation, x: ArrayLike<number>): Float64Array {
  const signed = Float64Array.from({ length: rotation.headDim }, (_, d) => x[d]! * rotation.signs[d]!);
  return product(rotation, signed, false);
}

/** What `rotate` made of x, back to x, in f64. */
export function unrotate(rotation: Rotation, y: ArrayLike<number>): Float64Array {
  const x = product(rotation, Float64Array.from(y), true);
  for (let d = 0; d < x.length; d++) x[d] = x[d]! * rotation.signs[d]!;
  return x;
}

/** `scale · (M ⊗ H) x`, or with Mᵀ. Overwrites x. */
function product(rotation: Rotation, x: Float64Array, transposed: boolean): Float64Array {
  const { headDim, base, power, matrix, scale } = rotation;
  for (let half = 1; half < power; half *= 2) {
    for (let start = 0; start < headDim; start += 2 * half) {
      for (let j = start; j < start + half; j++) {
        const a = x[j]!;
        const b = x[j + half]!;
        x[j] = a + b;
        x[j + half] = a - b;
      }
    }
  }
  const out = new Float64Array(headDim);
  for (let i = 0; i < base; i++) {
    for (let k = 0; k < base; k++) {
      const weight = matrix[transposed ? k * base + i : i * base + k]! * scale;
      for (let j = 0; j < power; j++) out[i * power + j]! += weight * x[k * power + j]!;
    }
  }
  return out;
}
