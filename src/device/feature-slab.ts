/**
 * The feature slab: rows that tokens are made of in place of embeddings. What a tower makes of a picture goes there, and the tokens of
 * the picture name rows of it: a prompt may be cut anywhere, computed again, and share the rows with others.
 */

import { KvantError } from '../errors.js';

export interface FeatureSlabSpec {
  readonly rows: number;
  /**
   * Numbers of a row. A token's hidden state is the first of them, as many as the embedding has columns; what more there is may be
   * added behind later layers.
   */
  readonly cols: number;
  /** Placement group of the embedding that the rows stand in for. Default 0. */
  readonly group?: number;
}

/** `[rows, cols]` f32 on the device. Which row is whose is the business of those who write them. */
export interface FeatureSlab {
  readonly rows: number;
  readonly cols: number;
  readonly bytes: number;
  /**
   * Fills whole rows from `first` on, `[n, cols]`. No step that was submitted and has not retired may name them.
   * `Program.store` fills them with what the device has computed.
   *
   * Errors: `shape-mismatch`.
   */
  write(first: number, data: Float32Array): void;
  /** Not while a program that was recorded with it is there. */
  dispose(): void;
}

/** Where rows of a slab go: `rows` of them, from row `from` (default 0) of a tensor on, to `first` and behind it, from column `column` (default 0) on. */
export interface FeaturePlace {
  readonly first: number;
  readonly rows: number;
  readonly column?: number;
  readonly from?: number;
}

/** The token source "row 0 of the feature slab"; row r is r more. Ids of a vocabulary lie below. */
export const FEATURE_TOKEN = 0x4000_0000;

/** Errors: `shape-mismatch`, for rows or columns beyond the slab. */
export function checkFeaturePlace(
  slab: Pick<FeatureSlab, 'rows' | 'cols'>,
  { first, rows, column = 0, from = 0 }: FeaturePlace,
  cols: number,
): void {
  const fits = [first, rows, column, from].every((n) => Number.isInteger(n) && n >= 0);
  if (fits && first + rows <= slab.rows && column + cols <= slab.cols) return;
  throw new KvantError(
    'shape-mismatch',
    `${rows} rows of ${cols} from row ${first}, column ${column}, of a feature slab of [${slab.rows}, ${slab.cols}].`,
    { where: 'features', fix: 'Write whole rows, within the slab.' },
  );
}
