import type { PatchGrid } from '../../models/vision/tower.js';

/** A picture as its processor leaves it. */
export interface PatchedImage {
  readonly grid: PatchGrid;
  /** `[patches, patchValues]` of all its tiles, in the processor's order. */
  readonly patches: Float32Array;
  /** Those of the frame behind it, of a video whose two frames are seen as one. Default: a still picture. */
  readonly second?: Float32Array;
}
