/** From a calibration to what a layer's keys are freed of: the vector of a KeyCentre (device/graph.ts). */

import { isFloatKv, type KvFormat } from '../device/kv.js';
import { kvFormatKind } from '../device/kv-formats/list.js';
import { ROPE_FINE, type RopeTable } from '../device/rope.js';
import type { KvCalibrationLayer } from './calibration.js';

export interface KeyCentreValues {
  /** `[3 · kvHeads · headDim]`. */
  readonly values: Float32Array;
  readonly turns: boolean;
}

/**
 * Null where keys stay float. `positions`: 0 where a device can add the query's product with the centre to the scores of each 256
 * positions; else the centre is one for all, the mean over so many positions. `headed`: the first keys of a sequence are floats.
 */
export function keyCentre(
  layer: KvCalibrationLayer,
  format: KvFormat,
  rope: RopeTable | null,
  positions: number,
  headed = false,
): KeyCentreValues | null {
  if (isFloatKv(format)) return null;
  const { kvHeads, headDim } = layer;
  const size = kvHeads * headDim;
  const values = new Float32Array(3 * size);
  for (let head = 0; head < kvHeads; head++) {
    const at = head * headDim;
    const scales = headScales(layer, at, rope, kvFormatKind(format).rotates === true, headed);
    const mean = Float64Array.from({ length: headDim }, (_, d) => centreOf(layer, at + d, headed));
    if (rope !== null) average(mean, rope, positions);
    for (let d = 0; d < headDim; d++) {
      const scale = Math.fround(scales[d]!);
      values[at + d] = scale;
      values[size + at + d] = 1 / scale;
      values[2 * size + at + d] = scale * mean[d]!;
    }
  }
  return { values, turns: positions === 0 && rope !== null };
}

/** The mean of the keys, drawn a little towards the first one where that is coded too. */
function centreOf({ mean, first }: KvCalibrationLayer, at: number, headed: boolean): number {
  return headed ? mean[at]! : mean[at]! + FIRST_IN_MEAN * (first[at]! - mean[at]!);
}

/**
 * Scales of a head, of geometric mean 1. An error counts by the queries that meet it. Where vectors are rotated before they are
 * coded, all dims get the same error, in proportion to the norm: the sum of q² / s² times that of s² k² is least at
 * s = (q² / k²)^¼. k² counts the first key for as much as it is looked at.
 */
function headScales(
  layer: KvCalibrationLayer,
  at: number,
  rope: RopeTable | null,
  rotated: boolean,
  headed: boolean,
): number[] {
  const { keys, queries, mean, first, headDim } = layer;
  const squares = Float64Array.from({ length: headDim }, (_, d) => {
    if (headed) return keys[at + d]!;
    const centre = centreOf(layer, at + d, false);
    const others = keys[at + d]! + (mean[at + d]! - centre) ** 2;
    return others + FIRST_IN_SQUARES * ((first[at + d]! - centre) ** 2 - others);
  });
  if (rope !== null) pairUp(squares, rope);
  const logs = Array.from(
    squares,
    (square, d) => Math.log((queries[at + d]! + 1e-12) / (square + 1e-12)) / 4,
  );
  const middle = logs.reduce((sum, log) => sum + log, 0) / headDim;
  return logs.map((log) => (rotated ? Math.exp(Math.min(MOST_LOG, Math.max(-MOST_LOG, log - middle))) : 1));
}

/**
 * What the first key counts for, in the mean and in the squares: queries look at it more than at any other, and without that
 * centring would cost it more than it gains the rest. Measured, docs/lab/2026-11-26-kv-quality.md.
 */
const FIRST_IN_MEAN = 0.3;
const FIRST_IN_SQUARES = 0.3;

/** The two dims of a pair have one square: their mean. */
function pairUp(values: Float64Array, { dims, style }: RopeTable): void {
  for (let i = 0; i < dims / 2; i++) {
    const [a, b] = style === 'half' ? [i, dims / 2 + i] : [2 * i, 2 * i + 1];
    const mean = (values[a]! + values[b]!) / 2;
    values[a] = mean;
    values[b] = mean;
  }
}

/** Scales stay within 1/32 and 32: a dim that is next to nothing in the calibration may be more elsewhere. */
const MOST_LOG = Math.log(32);

/** The mean over the first positions of a vector that is rotated by each; of 0 positions: over 256, without the table's factor. */
function average(x: Float64Array, { dims, style, fine, coarse }: RopeTable, positions: number): void {
  const half = dims / 2;
  const splits = Math.min(Math.max(1, Math.ceil(positions / ROPE_FINE)), coarse.length / dims);
  for (let i = 0; i < half; i++) {
    const turn = tableMean(fine, half, i, ROPE_FINE);
    const [re, im] = positions === 0 ? turn : product(turn, tableMean(coarse, half, i, splits));
    const [a, b] = style === 'half' ? [i, half + i] : [2 * i, 2 * i + 1];
    const [u, v] = [x[a]!, x[b]!];
    x[a] = u * re - v * im;
    x[b] = u * im + v * re;
  }
}

function tableMean(table: Float32Array, half: number, pair: number, rows: number): [number, number] {
  let re = 0;
  let im = 0;
  for (let r = 0; r < rows; r++) {
    re += table[(r * half + pair) * 2]! / rows;
    im += table[(r * half + pair) * 2 + 1]! / rows;
  }
  return [re, im];
}

const product = ([a, b]: [number, number], [c, d]: [number, number]): [number, number] => [
  a * c - b * d,
  a * d + b * c,
];
