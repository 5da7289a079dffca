/** Whether a model has a chat template, from its small files alone: before weights are read. */
import { locateModel } from './model-location.js';
import { textFiles } from './text-files.js';
import type { EngineOptions } from './types.js';

/** Of a hub model before its weights are fetched. True also where that cannot be told: what is wrong is for its loading to say. */
export async function hasChatTemplate(model: string, options: EngineOptions): Promise<boolean> {
  const { tokenizer, hub, ...rest } = options;
  const { revision: _, ...current } = hub ?? {};
  try {
    const [source, access] = tokenizer === undefined ? [model, hub] : [tokenizer, current];
    const path = await locateModel(
      source,
      { ...rest, ...(access === undefined ? {} : { hub: access }) },
      { textOnly: true },
    );
    const files = await textFiles({ path });
    if ((await files.template()) !== undefined) return true;
    // Without a tokenizer there is more that is missing.
    await files.tokenizer({ lazily: true });
    return false;
  } catch {
    return true;
  }
}
