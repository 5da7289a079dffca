import type { PatchGrid } from '../../models/vision/tower.js';

/** A picture as its processor leaves it. */
export interface PatchedImage {
  readonly grid: PatchGrid;
  /** `[patches, patchValues]` of all its tiles, in the processor's order. */
  readonly patches: Float32Array;
  /** Those of the frame behind it, of a video whose two frames are seen as one. Default: a still picture. */
  readonly second?: Float32Array;
}

/**
 * What a message gives away with its pictures, so that it copies nothing. Shared memory would do as well, but its size does not hurry
 * the garbage collector of a thread that makes little else.
 */
export function givenAway(
  pictures: readonly {
    readonly patches: Float32Array<ArrayBuffer>;
    readonly second?: Float32Array<ArrayBuffer>;
  }[],
): ArrayBuffer[] {
  const buffers = pictures.flatMap(({ patches, second }) =>
    second === undefined ? [patches.buffer] : [patches.buffer, second.buffer],
  );
  return [...new Set(buffers)];
}
