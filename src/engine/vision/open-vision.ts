/** What the caller's side needs of a model that sees. */

import { KvantError } from '../../errors.js';
import { parseModelConfig } from '../../models/families.js';
import type { SightFiles } from '../../models/gguf/seeing-source.js';
import type { VideoDefinition, VisionDefinition } from '../../models/vision/tower.js';
import { readJsonObject } from '../../text/json-file.js';
import { isGgufFile } from '../../weights/gguf-path.js';
import { chooseProjector } from '../../weights/projectors.js';
import { asKvantError } from '../core-errors.js';
import type { HostInfo, WeightOrigin } from '../messages.js';
import type { ModelText } from '../model-text.js';
import type { ModelPlace } from '../texts/text-origin.js';
import type { EngineOptions } from '../types.js';
import { pictureAccess } from './picture-access.js';
import { PictureReader } from './picture-reader.js';

export interface Vision {
  readonly reader: PictureReader;
  readonly imageToken: number;
  /** What the chat template writes for a picture; null: the image token. */
  readonly placeholder: string | null;
  /** What templates are given for a picture where they are given texts alone; null: a part that is a picture. */
  readonly asText: string | null;
  /** What stands for videos; null where the model reads none. */
  readonly video: Pick<VideoDefinition, 'token' | 'rowToken' | 'marks'> | null;
}

/** Null where the model does not see, or nobody knows how its pictures are made. */
export async function openVision(
  weights: WeightOrigin,
  { vision, limits }: HostInfo,
  options: EngineOptions,
  text: Pick<ModelText, 'idOf'>,
): Promise<Vision | null> {
  if (vision === null || weights.kind !== 'folder') return null;
  try {
    const access = await pictureAccess(options);
    // The engine's thread has the same definition; functions do not pass between threads.
    const gguf = await ofGguf(weights);
    const json = gguf?.config ?? (await readJsonObject(weights.path, 'config.json', 'model-config'));
    const parsed = parseModelConfig(json ?? {}, undefined, undefined, options.hfOverrides);
    if (parsed.vision === null) return null;
    const definition = gguf === undefined ? parsed.vision : { ...parsed.vision, processor: gguf.processor };
    const imageToken = imageTokenOf(definition, text);
    return {
      reader: await PictureReader.open(gguf === undefined ? weights.path : null, definition, {
        access,
        mostTokens: limits.maxContext,
        thread: options.worker ?? true,
        decodeVideo: options.decodeVideo,
      }),
      imageToken,
      placeholder: definition.placeholder,
      asText: definition.asText ?? null,
      video: definition.video ?? null,
    };
  } catch (error) {
    const { message, fix } = asKvantError(error);
    options.onLog?.({ level: 'warn', message: `pictures are refused: ${message}`, fields: { fix } });
    return null;
  }
}

/** Of a GGUF file that sees: what its mmproj file says. */
async function ofGguf({ path, mmproj }: ModelPlace): Promise<SightFiles | undefined> {
  if (!(await isGgufFile(path))) return undefined;
  const projector = await chooseProjector(path, mmproj);
  if (projector === undefined) return undefined;
  const { readSight } = await import('../../models/gguf/seeing-source.js');
  return await readSight(path, projector.path);
}

/** Errors: `tokenizer-broken` where no token has the text. */
function imageTokenOf({ imageToken }: VisionDefinition, text: Pick<ModelText, 'idOf'>): number {
  const id = typeof imageToken === 'number' ? imageToken : text.idOf(imageToken);
  if (id !== undefined) return id;
  throw new KvantError('tokenizer-broken', `the tokenizer has no token ${imageToken}`, {
    kind: 'model',
    where: 'tokenizer.json',
    fix: 'Fetch the model again: its tokenizer is that of another model.',
  });
}
