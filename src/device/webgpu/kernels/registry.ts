/** The variants of each op that has more than one, best first. The last of a list supports everything. */

import type { LinearShape, Variant } from '../kernel.js';
import { type AttendShape, portableItems, portableTiles } from './attend.js';
import { fastItems, fastTiles } from './attend-fast.js';
import { portableLinear } from './linear.js';
import { fastLinear } from './linear-fast.js';

export const linearVariants: readonly Variant<LinearShape>[] = [...fastLinear, ...portableLinear];

/** Attention of items leaves partials in `scratchSums` and `scratchTops`; the portable reduce merges them. */
export const attendItemsVariants: readonly Variant<AttendShape>[] = [...fastItems, portableItems];
export const attendTilesVariants: readonly Variant<AttendShape>[] = [...fastTiles, portableTiles];
