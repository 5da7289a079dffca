/** Where the text side of a model is read from: the small files of a folder, or the keys of a GGUF file. */

import { ChatTemplate } from '../text/chat-template.js';
import {
  type GenerationConfig,
  loadGenerationConfig,
  readGenerationConfig,
} from '../text/generation-config.js';
import { type GgufText, ggufEnds, ggufSampling, ggufText } from '../text/gguf/gguf-tokenizer.js';
import { Tokenizer } from '../text/tokenizer.js';
import { GgufFile } from '../weights/gguf.js';
import { notFirst } from '../weights/gguf-files.js';
import { isGgufFile } from '../weights/gguf-path.js';
import type { TextPlace } from './texts/text-origin.js';

export interface TextFiles {
  /** `lazily`: what decoding needs is made when something is decoded. */
  tokenizer(options?: { readonly lazily?: boolean }): Promise<Tokenizer>;
  /** `tokenizer`: of these files. undefined where there is none: a base model. Errors: `chat-template-broken`. */
  template(tokenizer: Tokenizer): Promise<ChatTemplate | undefined>;
  generation(tokenizer?: Tokenizer): Promise<GenerationConfig>;
}

/** @throws KvantError those of the tokenizer, and of `GgufFile.open` */
export async function textFiles({ path, tokenizer }: TextPlace): Promise<TextFiles> {
  if (tokenizer === undefined) return await ownFiles(path);
  const given = await ownFiles(tokenizer);
  return {
    ...given,
    generation: async (made) => {
      const [own, ends] = await Promise.all([ownGeneration(path), given.generation(made)]);
      // Sampling is the model's affair; what ends an answer, that of both: a file without a tokenizer names no end.
      const eosTokenIds = [...new Set([...own.eosTokenIds, ...ends.eosTokenIds])].sort((a, b) => a - b);
      return { ...own, eosTokenIds };
    },
  };
}

/** Defaults and ends that the model itself names, also where its file holds no tokenizer. */
async function ownGeneration(path: string): Promise<GenerationConfig> {
  if (!(await isGgufFile(path))) return await loadGenerationConfig(path);
  await using file = await GgufFile.open(path);
  const { metadata } = file;
  return readGenerationConfig(ggufSampling(metadata), ggufEnds(metadata), undefined, path);
}

async function ownFiles(path: string): Promise<TextFiles> {
  if (!(await isGgufFile(path)))
    return {
      tokenizer: (options) => Tokenizer.load(path, options),
      template: (tokenizer) => ChatTemplate.find(path, tokenizer.config),
      generation: (tokenizer) => loadGenerationConfig(path, tokenizer),
    };
  await using file = await GgufFile.open(path);
  const { metadata } = file;
  let made: GgufText | undefined;
  // Sampling and ends are there without a tokenizer that is known.
  const text = (): GgufText => {
    made ??= ggufText(metadata);
    return made;
  };
  return {
    tokenizer: async ({ lazily = false } = {}) => {
      const number = metadata.count('split.no', 0) ?? 0;
      if (number > 0) throw notFirst(path, number);
      // That it is no model, or of no known architecture, is more than that it lacks a tokenizer.
      if (!metadata.has('tokenizer.ggml.model') && metadata.has('general.architecture'))
        (await import('../models/gguf/config.js')).findArchitecture(metadata);
      const tokenizer = Tokenizer.fromJson(text().tokenizer, text().tokenizerConfig, path);
      if (!lazily) void tokenizer.tokenTable;
      return tokenizer;
    },
    template: async () => ChatTemplate.ofConfig(text().tokenizerConfig, path),
    generation: async (tokenizer) =>
      readGenerationConfig(ggufSampling(metadata), ggufEnds(metadata), tokenizer, path),
  };
}
