/** The variants of each op that has more than one, best first. The last of a list supports everything. */

import type { Capabilities, LinearShape, Variant } from '../kernel.js';
import { type AttendShape, portableItems, portableTiles } from './attend.js';
import { fastItems, fastTiles } from './attend-fast.js';
import { latentItems, latentTiles } from './attend-latent.js';
import { reduceLanes } from './attend-reduce.js';
import { portableLinear } from './linear.js';
import { fastLinear } from './linear-fast.js';

export const linearVariants: readonly Variant<LinearShape>[] = [...fastLinear, ...portableLinear];

/** Attention of items leaves partials in `scratchSums` and `scratchTops`; the portable reduce merges them. */
export const attendItemsVariants: readonly Variant<AttendShape>[] = [
  ...fastItems,
  latentItems,
  portableItems,
];
export const attendTilesVariants: readonly Variant<AttendShape>[] = [
  ...fastTiles,
  latentTiles,
  portableTiles,
];

/** Rows that leave most of a device idle when their partials are merged, and slices for them. */
const FEW_ROWS = 4;
const SLICES_OF_FEW = 10;

/**
 * Runs that the merge of a row's partials is cut into; one keeps the order of the tiles. More of them for few rows: measured on
 * an H200, 4.7 µs in place of 5.3 for 4 rows of 20,000 tokens (4.9 with eight, 5.0 with sixteen), but eight take 10 in place of 5 for 32 rows of 4,000.
 */
export function reduceSlices(capabilities: Capabilities, rows: number, headDim: number): number {
  if (capabilities.deterministic || capabilities.precision !== 'default') return 1;
  const few = rows <= FEW_ROWS && SLICES_OF_FEW * reduceLanes(headDim) <= capabilities.workgroupThreads;
  return few ? SLICES_OF_FEW : 4;
}
