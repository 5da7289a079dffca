/** The variants of each op that has more than one, best first. The last of a list supports everything. */

import type { LinearShape, Variant } from '../kernel.js';
import { portableLinear } from './linear.js';

export const linearVariants: readonly Variant<LinearShape>[] = [...portableLinear];
