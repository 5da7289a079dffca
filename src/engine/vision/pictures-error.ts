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
  const { rows } = vision.features;
  if (tokens <= rows) return null;
  return new KvantError(
    'image-too-large',
    `The pictures of the request are ${tokens} tokens together; there is room for ${rows}.`,
    { kind: 'invalid-request', where: 'messages', fix: 'Send fewer or smaller pictures.' },
  );
}
