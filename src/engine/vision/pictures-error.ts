/** Why the core refuses the pictures of a request. */

import { KvantError } from '../../errors.js';
import type { VisionOptions } from '../core-options.js';
import type { CoreRequest } from '../sequence.js';

/** Pictures that no room of the device would ever hold together. */
export function picturesError(
  { pictures = [] }: CoreRequest,
  vision: VisionOptions | null,
): KvantError | null {
  if (pictures.length === 0) return null;
  if (vision === null)
    return new KvantError('unsupported-content', 'This model reads text only.', {
      kind: 'unsupported',
      where: 'messages',
      fix: 'Leave the pictures out, or describe them in text.',
    });
  const tokens = pictures.reduce((sum, picture) => sum + picture.tokens, 0);
  const { ahead } = vision;
  const { rows } = vision.features;
  const large = ahead === null ? undefined : pictures.find((picture) => picture.tokens > ahead);
  if (large !== undefined)
    return new KvantError(
      'image-too-large',
      `A picture is ${large.tokens} tokens; a step has room for ${ahead} of one.`,
      { kind: 'invalid-request', where: 'messages', fix: 'Send a smaller picture.' },
    );
  if (tokens <= rows) return null;
  return new KvantError(
    'image-too-large',
    `The pictures of the request are ${tokens} tokens together; there is room for ${rows}.`,
    {
      kind: 'invalid-request',
      where: 'messages',
      fix: 'Send fewer or smaller pictures, or start the engine with a larger imageCacheBytes.',
    },
  );
}

/** Times of a video that the context has no positions for. */
export function videoTooLong(positions: number): KvantError {
  return new KvantError(
    'video-too-long',
    `The videos of the request take longer than the ${positions} positions of the context reach.`,
    { kind: 'invalid-request', where: 'messages', fix: 'Send a shorter video.' },
  );
}
