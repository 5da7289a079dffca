/** Tokens of a picture that are made of several rows of what its tower saw: lines that end in a row of the checkpoint, rows between rows. */

import type { TokenRows } from '../../models/vision/tower.js';
import type { Pace } from './pace.js';

/** Numbers that are added up before others have a turn: some milliseconds. */
const TURN = 2 ** 21;

/**
 * `[tokens, width]`. Sums are taken in f64, tap by tap, and rounded once.
 *
 * @param seen `[n, width]` the tower's rows
 * @param constants `[m, width]` the rows that are numbered behind them
 */
export async function tokensOf(
  { taps, rows, weights }: TokenRows,
  seen: Float32Array,
  constants: Float32Array | undefined,
  width: number,
  pace: Pace,
): Promise<Float32Array> {
  const tokens = rows.length / taps;
  const out = new Float32Array(tokens * width);
  const rowOf = (row: number): Float32Array => {
    const from = row * width;
    if (from < seen.length) return seen.subarray(from, from + width);
    return constants!.subarray(from - seen.length, from - seen.length + width);
  };
  if (weights === null) {
    rows.forEach((row, token) => {
      out.set(rowOf(row), token * width);
    });
    return out;
  }
  const sum = new Float64Array(width);
  let added = 0;
  for (let token = 0; token < tokens; token++) {
    sum.fill(0);
    for (let tap = token * taps; tap < (token + 1) * taps; tap++) {
      const weight = weights[tap]!;
      if (weight === 0) continue;
      const row = rowOf(rows[tap]!);
      for (let i = 0; i < width; i++) sum[i]! += weight * row[i]!;
      added += width;
    }
    out.set(sum, token * width);
    if (added < TURN) continue;
    added = 0;
    if (pace.stepMs !== null) await pace.turn();
  }
  return out;
}
