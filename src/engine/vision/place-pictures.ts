/** Pictures and videos of a conversation on their way into its tokens, and back out with their places. */

import type { PictureTokens } from '../texts/placeholders.js';
import type { Vision } from './open-vision.js';
import type { ReadPicture } from './picture-reader.js';
import type { PromptPicture, TokenRun } from './pictures.js';

const isVideo = ({ times }: ReadPicture): boolean => times !== undefined;

/** What stands for pictures, then what stands for videos, of a model that reads them. */
export function pictureKinds(
  { imageToken, placeholder, asText, video }: Pick<Vision, 'imageToken' | 'placeholder' | 'asText' | 'video'>,
  read: readonly ReadPicture[],
): readonly PictureTokens[] {
  const pieces = (videos: boolean) => read.filter((one) => isVideo(one) === videos).map((one) => one.pieces);
  const pictures = { token: imageToken, placeholder, asText, pieces: pieces(false) };
  if (video === null) return [pictures];
  const { token, rowToken = token, marks } = video;
  return [pictures, { token, rowToken, placeholder: null, marks, pieces: pieces(true) }];
}

/** All pictures in the order of their places; of a video each two frames for themselves. `runs`: of each kind, in its order. */
export function placePictures(
  read: readonly ReadPicture[],
  runs: readonly (readonly (readonly TokenRun[])[])[],
): readonly PromptPicture[] {
  const next = [0, 0];
  const placed = read.flatMap((one): PromptPicture[] => {
    const kind = isVideo(one) ? 1 : 0;
    const own = runs[kind]![next[kind]!++]!;
    const { made, times = null, tokens } = one;
    if (kind === 0)
      return [{ ...made[0]!, tokens, first: own[0]!.first, ...(own.length > 1 && { runs: own }) }];
    return made.map((pair, i) => ({
      ...pair,
      ...own[i]!,
      ...(times === null ? {} : { film: { time: times[i]!, goesOn: i > 0 } }),
    }));
  });
  return placed.sort((a, b) => a.first - b.first);
}
