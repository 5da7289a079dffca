/** From the bytes of a file to what the engine computes with: decoded, resized, cut into patches, and given a digest. */

import { createHash } from 'node:crypto';
import { decodeImage } from '../../media/decode.js';
import type { ImageGrid, ImageProcessor } from '../../media/processor.js';

/** What a digest stands for changes with this. */
export const DIGEST_VERSION = 1;

export interface MadePicture {
  /** Of pixels, size and processor: eight words. */
  readonly digest: Uint32Array;
  readonly grid: ImageGrid;
  /** `[rows · cols, patchValues]`, in memory of its own. */
  readonly patches: Float32Array<ArrayBuffer>;
  /** Those of the second of two frames of a video, likewise. Absent: a still picture. */
  readonly second?: Float32Array<ArrayBuffer>;
}

export const digestWords = (hash: Buffer): Uint32Array =>
  Uint32Array.from({ length: 8 }, (_, i) => hash.readUInt32BE(i * 4));

/** Errors: those of `decodeImage`, and `invalid-image` of the processor. */
export async function makePicture(
  processor: ImageProcessor,
  bytes: Uint8Array,
  where: string,
): Promise<MadePicture> {
  const image = await decodeImage(bytes, {}, where);
  const grid = processor.grid(image.width, image.height);
  const hash = createHash('sha256')
    .update(JSON.stringify([DIGEST_VERSION, image.width, image.height, processor.settings]))
    .update('\0')
    .update(image.pixels)
    .digest();
  return { digest: digestWords(hash), grid, patches: processor.patches(image) };
}
