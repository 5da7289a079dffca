/**
 * The reference of every KV format, in float64, from the rules of src/device/kv.ts: how a K or V vector is stored, and
 * what is read back. Rounding to f16 is exact; all else is float64, so a device may choose a neighbouring code where a
 * value lies within the error of its f32 arithmetic of a decision (see `margin`).
 */
import type { KvFormat } from '../../src/device/kv.js';
import { turboCodebook } from '../../src/device/turboquant/codebooks.js';
import { type KvSide, rotate, turboRotation, unrotate } from '../../src/device/turboquant/rotation.js';
import { roundF16 } from './numbers.js';

export type { KvSide } from '../../src/device/turboquant/rotation.js';

/** The largest finite f16. */
const F16_MAX = 65504;

export interface StoredVector {
  /** What attention reads, `[head_dim]`. */
  readonly decoded: Float64Array;
  /** One for each value; empty for floats. */
  readonly codes: Uint8Array;
  /** Affine: one for each group. */
  readonly scales: Float64Array;
  readonly biases: Float64Array;
  /** TurboQuant: the f16 as stored. */
  readonly norm: number;
  /**
   * How far the closest value is from where its code would change, in steps of the code (affine) or in units of the
   * rotated unit vector (TurboQuant); 0 where f32 arithmetic may round the norm to the neighbouring f16, which moves a whole key by 2^−11.
   * Infinite where nothing decides.
   */
  readonly margin: number;
}

/** What attention reads of `x` once it is stored, `[head_dim]`. */
export function storeVector(format: KvFormat, side: KvSide, x: ArrayLike<number>): Float64Array {
  return encodeVector(format, side, x).decoded;
}

/** Rules of kinds that a test adds to the lists. */
export const ADDED_RULES = new Map<string, (x: Float64Array) => StoredVector>();

export function encodeVector(format: KvFormat, side: KvSide, x: ArrayLike<number>): StoredVector {
  const none = {
    codes: new Uint8Array(0),
    scales: new Float64Array(0),
    biases: new Float64Array(0),
    norm: 0,
  };
  if (format.kind === 'float') {
    const round = format.dtype === 'f16' ? roundF16 : Math.fround;
    return { ...none, decoded: rounded(x, round), margin: Number.POSITIVE_INFINITY };
  }
  const finite = rounded(x, (value) =>
    Number.isNaN(value) ? 0 : Math.min(F16_MAX, Math.max(-F16_MAX, value)),
  );
  const added = ADDED_RULES.get(format.kind);
  if (added !== undefined) return added(finite);
  if (format.kind === 'affine') return { ...none, ...affine(finite, format.bits, format.groupSize) };
  return { ...none, ...turbo(finite, format.bits, side, format.plainKeys !== true) };
}

function rounded(x: ArrayLike<number>, round: (value: number) => number): Float64Array {
  const out = new Float64Array(x.length);
  for (let d = 0; d < out.length; d++) out[d] = round(x[d]!);
  return out;
}

function affine(x: Float64Array, bits: number, groupSize: number) {
  const most = 2 ** bits - 1;
  const groups = Math.ceil(x.length / groupSize);
  const codes = new Uint8Array(x.length);
  const scales = new Float64Array(groups);
  const biases = new Float64Array(groups);
  const decoded = new Float64Array(x.length);
  let margin = Number.POSITIVE_INFINITY;
  for (let g = 0; g < groups; g++) {
    const members = x.subarray(g * groupSize, (g + 1) * groupSize);
    const low = Math.min(...members);
    const bias = roundF16(low);
    const scale = roundF16((Math.max(...members) - low) / most);
    scales[g] = scale;
    biases[g] = bias;
    members.forEach((value, i) => {
      const at = scale === 0 ? 0 : (value - bias) / scale;
      const code = Math.min(most, Math.max(0, roundHalfEven(at)));
      if (scale !== 0 && at > 0 && at < most) margin = Math.min(margin, Math.abs(at - Math.floor(at) - 0.5));
      codes[g * groupSize + i] = code;
      decoded[g * groupSize + i] = code * scale + bias;
    });
  }
  return { codes, scales, biases, decoded, margin };
}

function turbo(x: Float64Array, bits: number, side: KvSide, corrects: boolean) {
  const headDim = x.length;
  const { centroids, midpoints } = turboCodebook(headDim, bits, side);
  const rotation = turboRotation(headDim, side);
  let squares = 0;
  for (let d = 0; d < headDim; d++) squares += x[d]! * x[d]!;
  const length = Math.sqrt(squares);
  const unit = length === 0 ? x : x.map((value) => value / length);
  const rotated = rotate(rotation, unit);
  const codes = new Uint8Array(headDim);
  let margin = Number.POSITIVE_INFINITY;
  let likeness = 0;
  for (let d = 0; d < headDim; d++) {
    const value = rotated[d]!;
    const code = codeOf(midpoints, value);
    // Midpoints rise, so one of the two beside a value is the closest.
    if (code > 0) margin = Math.min(margin, Math.abs(midpoints[code - 1]! - value));
    if (code < midpoints.length) margin = Math.min(margin, Math.abs(midpoints[code]! - value));
    codes[d] = code;
    likeness += value * centroids[code]!;
  }
  const stored = length === 0 ? 0 : side === 'key' && corrects ? length / likeness : length;
  const norm = roundF16(Math.min(F16_MAX, stored));
  // f32 sums of so many products are off by a few units of 2^−24.
  const off = 2 ** -22;
  if (roundF16(stored * (1 - off)) !== roundF16(stored * (1 + off))) margin = 0;
  const scaled = new Float64Array(headDim);
  for (let d = 0; d < headDim; d++) scaled[d] = centroids[codes[d]!]! * norm;
  return { codes, norm, decoded: unrotate(rotation, scaled), margin };
}

/** How many midpoints lie below a value. */
function codeOf(midpoints: ArrayLike<number>, value: number): number {
  let low = 0;
  let high = midpoints.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (midpoints[middle]! < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

function roundHalfEven(x: number): number {
  const down = Math.floor(x);
  const rest = x - down;
  return rest > 0.5 || (rest === 0.5 && down % 2 === 1) ? down + 1 : down;
}
