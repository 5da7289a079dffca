/**
 * The codebooks of TurboQuant: 2^bits centroids that are least-squares optimal (S. Lloyd 1957, J. Max 1960) for one
 * coordinate of a random unit vector in R^D, whose density is `f(t) ∝ (1 − t²)^((D−3)/2)` on (−1, 1). The tables are made
 * by scripts/make-codebooks.mjs; f is even, so the upper half of each is kept.
 *
 * The code of a coordinate is the number of midpoints strictly below it.
 */

import { KvantError } from '../../errors.js';
import { CODEBOOK_TABLES } from './codebook-tables.js';
import type { KvSide } from './rotation.js';

/** Widths of codes that have tables. */
export const TURBO_BITS = [2, 3, 4, 8] as const;

/**
 * Up to 4 bits the centroids are whole multiples of a unit, and kernels hold them exactly in 8 bits. It costs less than 0.5 % of
 * the squared error at 4 bits, and less below.
 */
const GREATEST = 127;
/**
 * Of 3 bits they are the same integers for every head_dim, ones that kernels can compute of their codes (code-fields.ts): at most
 * 0.1 % of the squared error from head_dim 64 on, 0.6 % at 16.
 */
const EIGHT_LEVELS: readonly number[] = [13, 39, 69, 111];

/**
 * So they are of values of 4 bits at head_dim 128: 1.85 % of the squared error, of which the first 0.1 % any integers cost. They are
 * symmetric about −1/2.
 */
const SIXTEEN_LEVELS: readonly number[] = [3, 11, 20, 28, 38, 49, 65, 86];

/** Their greatest centroid as a multiple of the optimum's: for the least squared error. */
const SIXTEEN_TOP = 1.00407;

/** The integer centroids above zero that kernels compute, ascending; null where they are those nearest to the optimum. */
function computedLevels(headDim: number, bits: number, side: KvSide): readonly number[] | null {
  if (bits === 3) return EIGHT_LEVELS;
  return computesSixteen(headDim, bits, side) ? SIXTEEN_LEVELS : null;
}

/** Whether codes are of 4 bits with centroids that kernels compute of their numbers (code-fields.ts). */
export function computesSixteen(headDim: number, bits: number, side: KvSide): boolean {
  return bits === 4 && headDim === 128 && side === 'value';
}

/** The integer of the greatest centroid, of up to 4 bits. */
export function greatestInteger(headDim: number, bits: number, side: KvSide): number {
  return computedLevels(headDim, bits, side)?.at(-1) ?? GREATEST;
}

export interface Codebook {
  /** `[2^bits]`, ascending; `centroids[2^bits − 1 − i] = −centroids[i]`, or for values of 4 bits at head_dim 128 a unit less. */
  readonly centroids: Float32Array;
  /** `[2^bits − 1]`: half-way between neighbours, rounded to f32. The middle one is 0, for those half a unit below. */
  readonly midpoints: Float32Array;
}

const made = new Map<string, Codebook>();

/** Whether TurboQuant can keep heads of this width: multiples of 8 up to 256. */
export function hasTurboCodebook(headDim: number): boolean {
  return Object.hasOwn(CODEBOOK_TABLES, headDim);
}

/** Errors: `head-dim-unsupported` (internal: the layer policy asks for no codebook that is not there). */
export function turboCodebook(headDim: number, bits: number, side: KvSide): Codebook {
  const name = `${headDim} ${bits} ${side}`;
  let codebook = made.get(name);
  if (codebook === undefined) {
    codebook = readCodebook(headDim, bits, side);
    made.set(name, codebook);
  }
  return codebook;
}

function readCodebook(headDim: number, bits: number, side: KvSide): Codebook {
  const table = CODEBOOK_TABLES[headDim];
  const at = (TURBO_BITS as readonly number[]).indexOf(bits);
  if (table === undefined || at < 0)
    throw new KvantError(
      'head-dim-unsupported',
      `There is no codebook of ${bits} bits for head_dim ${headDim}.`,
      {
        kind: 'internal',
        where: 'turboquant',
        fix: 'Keep layers of this head_dim in a float format.',
      },
    );
  // A table holds the positive halves one after the other, in the order of TURBO_BITS, as little-endian f32.
  const bytes = Uint8Array.from(atob(table), (c) => c.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const skipped = TURBO_BITS.slice(0, at).reduce((sum, b) => sum + 2 ** (b - 1), 0);
  const half = 2 ** (bits - 1);
  const centroids = new Float32Array(2 * half);
  const levels = computedLevels(headDim, bits, side);
  const below = computesSixteen(headDim, bits, side) ? 1 : 0;
  const top = view.getFloat32((skipped + half - 1) * 4, true);
  const unit = (top * (below === 1 ? SIXTEEN_TOP : 1)) / greatestInteger(headDim, bits, side);
  for (let i = 0; i < half; i++) {
    const optimum = view.getFloat32((skipped + i) * 4, true);
    const integer = levels?.[i] ?? Math.round(optimum / unit);
    centroids[half + i] = bits < 8 ? Math.fround(integer * unit) : optimum;
    centroids[half - 1 - i] = bits < 8 ? -Math.fround((integer + below) * unit) : -optimum;
  }
  const midpoints = Float32Array.from(
    { length: 2 * half - 1 },
    (_, i) => (centroids[i]! + centroids[i + 1]!) / 2,
  );
  return { centroids, midpoints };
}
