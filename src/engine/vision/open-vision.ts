/** What the caller's side needs of a model that sees. */

import { asKvantError } from '../core-errors.js';
import type { HostInfo, WeightOrigin } from '../messages.js';
import type { EngineOptions } from '../types.js';
import { pictureAccess } from './picture-access.js';
import { PictureReader } from './picture-reader.js';

export interface Vision {
  readonly reader: PictureReader;
  readonly imageToken: number;
}

/** Null where the model does not see, or nobody knows how its pictures are made. */
export async function openVision(
  weights: WeightOrigin,
  { vision, limits }: HostInfo,
  options: EngineOptions,
): Promise<Vision | null> {
  if (vision === null || weights.kind !== 'folder') return null;
  try {
    const access = await pictureAccess(options);
    return {
      reader: await PictureReader.open(weights.path, {
        access,
        mostTokens: limits.maxContext,
        thread: options.worker ?? true,
      }),
      imageToken: vision.imageToken,
    };
  } catch (error) {
    const { message, fix } = asKvantError(error);
    options.onLog?.({ level: 'warn', message: `pictures are refused: ${message}`, fields: { fix } });
    return null;
  }
}
