/** Whether a model sees, from its configuration alone: before weights are read. */

import { parseModelConfig } from '../../models/families.js';
import { checkMessages } from '../../text/chat-messages.js';
import { readJsonObject } from '../../text/json-file.js';
import { isGgufFile } from '../../weights/gguf-path.js';
import { localModel } from '../../weights/local-model.js';
import { chooseProjector } from '../../weights/projectors.js';
import { locateModel } from '../model-location.js';
import type { ModelPlace } from '../texts/text-origin.js';
import type { EngineChatMessage, EngineOptions } from '../types.js';
import { hasPictures } from './picture-parts.js';

/**
 * Refuses a conversation with pictures, of a model that does not see, before the model is loaded; of a hub model before its weights are
 * fetched. What else is wrong with the model is for its loading to say.
 *
 * @throws KvantError `unsupported-content`, as the model would refuse the conversation once it is loaded
 */
export async function checkSight(
  model: string,
  messages: readonly EngineChatMessage[],
  options: EngineOptions,
): Promise<void> {
  if (!hasPictures(messages)) return;
  const { mmproj, hub } = options;
  const local = hub?.revision === undefined ? await localModel(model) : undefined;
  const path = local ?? (await locateModel(model, options, { textOnly: true }));
  const place = { path, ...(mmproj === undefined ? {} : { mmproj }) };
  if (await seesNothing(place, options)) checkMessages(messages);
}

/** False also where the configuration cannot be read. */
async function seesNothing({ path, mmproj }: ModelPlace, { hfOverrides }: EngineOptions): Promise<boolean> {
  try {
    if (await isGgufFile(path)) return (await chooseProjector(path, mmproj)) === undefined;
    const json = await readJsonObject(path, 'config.json', 'model-config');
    return json !== undefined && parseModelConfig(json, undefined, undefined, hfOverrides).vision === null;
  } catch {
    return false;
  }
}
