/** From the frames of a video to what the engine computes with: each two of them as a picture that moves. */

import { createHash } from 'node:crypto';
import { decodeImage } from '../../media/decode.js';
import { decodeFrames } from '../../media/decode-frames.js';
import type { RgbImage } from '../../media/image.js';
import type { ImageGrid, VideoProcessor } from '../../media/processor.js';
import { DIGEST_VERSION, digestWords, type MadePicture } from './make-picture.js';

/** A picture's file or pixels, and the field that it came in. */
export interface NamedFrame {
  readonly image: Uint8Array | RgbImage;
  readonly where: string;
}

/** Frames that were chosen, and what they are known by. */
export interface FilmFrames {
  /** A file that holds them, or each for itself: a picture's file, or pixels. */
  readonly source:
    | { readonly kind: 'file'; readonly bytes: Uint8Array; readonly indexes: readonly number[] }
    | { readonly kind: 'frames'; readonly frames: readonly NamedFrame[] };
  /** That of all frames. */
  readonly grid: ImageGrid;
  /** Of each two frames, what else tells them from others: where they stand on the axis of time. */
  readonly places: readonly string[];
}

/** Each two frames; the last one stands twice where it is alone. Errors: those of `decodeFrames` and `decodeImage`. */
export async function makeVideo(
  processor: VideoProcessor,
  { source, grid, places }: FilmFrames,
  where: string,
): Promise<MadePicture[]> {
  const made: MadePicture[] = [];
  let first: RgbImage | null = null;
  const take = (frame: RgbImage): void => {
    if (first === null) first = frame;
    else {
      made.push(pair(processor, grid, places[made.length]!, first, frame));
      first = null;
    }
  };
  if (source.kind === 'file') await decodeFrames(source.bytes, source.indexes, take, where);
  else
    for (const { image, where: at } of source.frames)
      take(image instanceof Uint8Array ? await decodeImage(image, {}, at) : image);
  if (first !== null) take(first);
  return made;
}

function pair(
  processor: VideoProcessor,
  grid: ImageGrid,
  place: string,
  first: RgbImage,
  second: RgbImage,
): MadePicture {
  const sizes = [first.width, first.height, second.width, second.height];
  const hash = createHash('sha256')
    .update(JSON.stringify([DIGEST_VERSION, 'video', sizes, grid, place, processor.settings]))
    .update('\0')
    .update(first.pixels)
    .update(second.pixels)
    .digest();
  return {
    digest: digestWords(hash),
    grid,
    patches: processor.patches(first, grid),
    ...(first === second ? {} : { second: processor.patches(second, grid) }),
  };
}
