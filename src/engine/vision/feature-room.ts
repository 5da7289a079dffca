/** How much of the device is kept for what towers make of pictures. */

import type { Device } from '../../device/device.js';
import type { FeatureSlab } from '../../device/feature-slab.js';
import type { Model } from '../../models/load.js';

/** Most rows of pictures that are kept on the device unasked: what fits a context, of a long one a part. */
const MOST_FEATURE_ROWS = 16_384;

/** Null for a model that does not see. `bytes`: of `imageCacheBytes`. */
export function featureSlab(
  { vision }: Model,
  device: Device,
  maxContext: number,
  bytes: number | undefined,
): FeatureSlab | null {
  if (vision === null) return null;
  const { width, addedLevels } = vision.tower;
  const cols = width * (1 + addedLevels);
  const wanted =
    bytes === undefined ? undefined : Math.floor(bytes / (cols * Float32Array.BYTES_PER_ELEMENT));
  return device.createFeatureSlab({
    rows: wanted === undefined ? Math.min(maxContext, MOST_FEATURE_ROWS) : Math.max(1, wanted),
    cols,
  });
}

/** Patches a side of a token, where tokens of pictures turn by axes. */
export function axesOf({ vision }: Model): number | null {
  return vision?.axes === true ? vision.mergeSize : null;
}
