/** Where the text side of a model is read from: the small files of a folder, or the keys of a GGUF file. */

import { ChatTemplate } from '../text/chat-template.js';
import {
  type GenerationConfig,
  loadGenerationConfig,
  readGenerationConfig,
} from '../text/generation-config.js';
import { ggufText } from '../text/gguf/gguf-tokenizer.js';
import { Tokenizer } from '../text/tokenizer.js';
import { isGgufName } from '../weights/foreign-formats.js';
import { GgufFile } from '../weights/gguf.js';

export interface TextFiles {
  /** `lazily`: what decoding needs is made when something is decoded. */
  tokenizer(options?: { readonly lazily?: boolean }): Promise<Tokenizer>;
  /** undefined where there is none: a base model. Errors: `chat-template-broken`. */
  template(): Promise<ChatTemplate | undefined>;
  generation(tokenizer?: Tokenizer): Promise<GenerationConfig>;
}

/**
 * @param path a folder, or a GGUF file
 * @throws KvantError those of the tokenizer, and of `GgufFile.open`
 */
export async function textFiles(path: string): Promise<TextFiles> {
  if (!isGgufName(path))
    return {
      tokenizer: (options) => Tokenizer.load(path, options),
      template: () => ChatTemplate.find(path),
      generation: (tokenizer) => loadGenerationConfig(path, tokenizer),
    };
  await using file = await GgufFile.open(path);
  const made = ggufText(file.metadata);
  return {
    tokenizer: async ({ lazily = false } = {}) => {
      const tokenizer = Tokenizer.fromJson(made.tokenizer, made.tokenizerConfig, path);
      if (!lazily) void tokenizer.tokenTable;
      return tokenizer;
    },
    template: async () => ChatTemplate.ofConfig(made.tokenizerConfig, path),
    generation: async (tokenizer) => readGenerationConfig(made.generation, made.config, tokenizer, path),
  };
}
