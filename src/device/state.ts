/**
 * State of recurrent layers. A layer has, for each slot of state, numbers of a fixed count, all f32: the inputs that its
 * convolution still looks back on, oldest first, `[taps − 1, channels]`, and then a matrix for each head, `[heads, rows, cols]`. Slots are
 * the blocks of the layer's KvPool: a sequence has one, the first entry of its block table. At position 0 a sequence begins
 * from nothing, whatever its slot holds, so slots need not be cleared.
 */

import { KvantError } from '../errors.js';
import type { NodeOf } from './graph.js';

export interface StateShape {
  /** Null: no convolution. */
  readonly conv: { readonly channels: number; readonly taps: number } | null;
  /** Null: no matrices. */
  readonly matrix: { readonly heads: number; readonly rows: number; readonly cols: number } | null;
}

/** Numbers before the matrices. */
export function stateMatrixAt({ conv }: StateShape): number {
  return conv === null ? 0 : conv.channels * (conv.taps - 1);
}

/** Bytes of a slot in one layer: whole vectors of four numbers. */
export function stateBytes(shape: StateShape): number {
  const { matrix } = shape;
  const numbers = stateMatrixAt(shape) + (matrix === null ? 0 : matrix.heads * matrix.rows * matrix.cols);
  return Math.ceil(numbers / 4) * 16;
}

/** Errors: `shape-mismatch`, unless a layer's state is what its node works on. */
export function checkConv({ layer, taps, out }: NodeOf<'short-conv'>, { conv }: StateShape): void {
  if (conv?.channels === out.cols && conv.taps === taps) return;
  const got = conv === null ? 'none' : `${conv.taps} taps of ${conv.channels}`;
  throw new KvantError(
    'shape-mismatch',
    `shortConv: layer ${layer} has ${taps} taps of ${out.cols} channels, its state is for ${got}.`,
    { where: 'shortConv', fix: 'Compile the graph with the KV pools that were made for its model.' },
  );
}

/** Errors: `shape-mismatch`, unless a layer's state is what its node works on. */
export function checkScan(
  { op, layer, heads, rows, cols }: NodeOf<'gated-delta' | 'selective-scan'>,
  { matrix }: StateShape,
): void {
  if (matrix?.heads === heads && matrix.rows === rows && matrix.cols === cols) return;
  const got = matrix === null ? 'none' : `${matrix.heads} of ${matrix.rows} × ${matrix.cols}`;
  const where = op === 'gated-delta' ? 'gatedDelta' : 'selectiveScan';
  throw new KvantError(
    'shape-mismatch',
    `${where}: layer ${layer} has ${heads} heads of ${rows} × ${cols}, its state is for ${got}.`,
    { where, fix: 'Compile the graph with the KV pools that were made for its model.' },
  );
}
