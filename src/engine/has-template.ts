/** Whether a model has a chat template, from its small files alone: before weights are read. */
import { ChatTemplate } from '../text/chat-template.js';
import { GgufFile } from '../weights/gguf.js';
import { isGgufFile } from '../weights/gguf-path.js';
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
    if (await showsTemplate(path)) return true;
    // A template may come with the tokenizer; where there is none of those either, more is missing.
    const files = await textFiles({ path });
    return (await files.template(await files.tokenizer({ lazily: true }))) !== undefined;
  } catch {
    return true;
  }
}

/** What can be seen without making a tokenizer. */
async function showsTemplate(path: string): Promise<boolean> {
  if (!(await isGgufFile(path))) return (await ChatTemplate.find(path)) !== undefined;
  await using file = await GgufFile.open(path);
  return file.metadata.has('tokenizer.chat_template');
}
