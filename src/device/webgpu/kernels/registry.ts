/** The variants of each op that has more than one, best first. The last of a list supports everything. */

import type { Capabilities, LinearShape, Variant } from '../kernel.js';
import { type AttendShape, portableItems, portableTiles } from './attend.js';
import { fastItems, fastTiles } from './attend-fast.js';
import { portableLinear } from './linear.js';
import { fastLinear } from './linear-fast.js';

export const linearVariants: readonly Variant<LinearShape>[] = [...fastLinear, ...portableLinear];

/** Attention of items leaves partials in `scratchSums` and `scratchTops`; the portable reduce merges them. */
export const attendItemsVariants: readonly Variant<AttendShape>[] = [...fastItems, portableItems];
export const attendTilesVariants: readonly Variant<AttendShape>[] = [...fastTiles, portableTiles];

/** Runs that the merge of a row's partials is cut into; one keeps the order of the tiles. */
export function reduceSlices(capabilities: Capabilities): number {
  return capabilities.deterministic || capabilities.precision !== 'default' ? 1 : 4;
}
