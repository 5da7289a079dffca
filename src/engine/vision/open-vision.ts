/** What the caller's side needs of a model that sees. */

import { parseModelConfig } from '../../models/families.js';
import { readJsonObject } from '../../text/json-file.js';
import { asKvantError } from '../core-errors.js';
import type { HostInfo, WeightOrigin } from '../messages.js';
import type { EngineOptions } from '../types.js';
import { pictureAccess } from './picture-access.js';
import { PictureReader } from './picture-reader.js';

export interface Vision {
  readonly reader: PictureReader;
  readonly imageToken: number;
  /** What the chat template writes for a picture; null: the image token. */
  readonly placeholder: string | null;
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
    // The engine's thread has the same definition; functions do not pass between threads.
    const json = await readJsonObject(weights.path, 'config.json', 'model-config');
    const { vision: definition } = parseModelConfig(json ?? {}, undefined, undefined, options.hfOverrides);
    if (definition === null) return null;
    return {
      reader: await PictureReader.open(weights.path, definition, {
        access,
        mostTokens: limits.maxContext,
        thread: options.worker ?? true,
      }),
      imageToken: definition.imageToken,
      placeholder: definition.placeholder,
    };
  } catch (error) {
    const { message, fix } = asKvantError(error);
    options.onLog?.({ level: 'warn', message: `pictures are refused: ${message}`, fields: { fix } });
    return null;
  }
}
