/** A model as `kvant quantize` reads it, whatever the format of its files. */

import { KvantError } from '../errors.js';
import { ggufInput } from '../models/gguf/quantize-input.js';
import { GgufSource } from '../models/gguf/source.js';
import { ggufText } from '../text/gguf/gguf-tokenizer.js';
import { Checkpoint } from '../weights/checkpoint.js';
import type { JsonObject } from '../weights/folder-files.js';
import type { GgufMetadata } from '../weights/gguf-metadata.js';
import { isGgufFile } from '../weights/gguf-path.js';
import { checkpointInput, type QuantizeInput } from '../weights/quantize-input.js';

export interface OpenInput extends AsyncDisposable {
  readonly input: QuantizeInput;
  /** What is not written that one would expect. */
  readonly notices: readonly string[];
}

/** @throws KvantError those of `Checkpoint.open` and `GgufSource.open` */
export async function openQuantizeInput(path: string): Promise<OpenInput> {
  if (!(await isGgufFile(path))) {
    const checkpoint = await Checkpoint.open(path);
    const close = (): Promise<void> => checkpoint.close();
    return { input: checkpointInput(checkpoint), notices: [], [Symbol.asyncDispose]: close };
  }
  const source = await GgufSource.open(path);
  try {
    const { files, notices } = textFilesOf(source.metadata);
    return { input: ggufInput(source, files), notices, [Symbol.asyncDispose]: () => source.close() };
  } catch (error) {
    await source.close();
    throw error;
  }
}

/** Tokenizer, chat template and defaults; a file without a tokenizer that can be read gives weights alone. */
function textFilesOf(metadata: GgufMetadata): {
  readonly files: Record<string, JsonObject>;
  readonly notices: readonly string[];
} {
  try {
    const { tokenizer, tokenizerConfig, config, generation } = ggufText(metadata);
    return {
      files: {
        'tokenizer.json': tokenizer,
        'tokenizer_config.json': { tokenizer_class: 'PreTrainedTokenizerFast', ...tokenizerConfig },
        'generation_config.json': { ...config, ...generation },
      },
      notices: [],
    };
  } catch (error) {
    if (!(error instanceof KvantError) || !error.code.startsWith('tokenizer-')) throw error;
    return {
      files: {},
      notices: [
        `no tokenizer is written: ${error.message}; put tokenizer.json and tokenizer_config.json beside the weights`,
      ],
    };
  }
}
