/** The variants of each op that has more than one, best first. The last of a list supports everything. */

import type { LinearShape, Variant } from '../kernel.js';
import { type AttendShape, portableItems, portableTiles } from './attend.js';
import { portableLinear } from './linear.js';

export const linearVariants: readonly Variant<LinearShape>[] = [...portableLinear];

/** Attention of items leaves partials in `scratchSums` and `scratchTops`; the portable reduce merges them. */
export const attendItemsVariants: readonly Variant<AttendShape>[] = [portableItems];
export const attendTilesVariants: readonly Variant<AttendShape>[] = [portableTiles];
