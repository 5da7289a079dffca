/** The text side of a model: tokenizer, chat template, generation_config. It stays on the caller's thread. */

import { KvantError } from '../errors.js';
import type { SamplingOptions } from '../sampling/params.js';
import { ChatTemplate } from '../text/chat-template.js';
import { type GenerationDefaults, loadGenerationConfig } from '../text/generation-config.js';
import type { TokenTable } from '../text/token-bytes.js';
import { Tokenizer } from '../text/tokenizer.js';
import type { ChatRequest, EngineChatMessage, LogEntry } from './types.js';

interface Parts {
  readonly tokenizer: Tokenizer;
  readonly template: ChatTemplate | undefined;
  readonly eosIds: readonly number[];
}

export class ModelText {
  /** What a request takes that says nothing. */
  readonly defaults: SamplingOptions;
  readonly #parts: Parts | null;

  private constructor(parts: Parts | null, defaults: SamplingOptions) {
    this.#parts = parts;
    this.defaults = defaults;
  }

  /** Errors: those of the tokenizer, the template and generation_config.json. */
  static async load(folder: string, onLog: (entry: LogEntry) => void): Promise<ModelText> {
    const tokenizer = await Tokenizer.load(folder);
    const template = await ChatTemplate.find(folder);
    const { defaults, eosTokenIds } = await loadGenerationConfig(folder, tokenizer);
    warnOfIgnored(defaults, onLog);
    return new ModelText({ tokenizer, template, eosIds: eosTokenIds }, samplingDefaults(defaults));
  }

  /** For weights without a tokenizer. */
  static none(): ModelText {
    return new ModelText(null, {});
  }

  get hasChatTemplate(): boolean {
    return this.#parts?.template !== undefined;
  }

  get tokenTable(): TokenTable | null {
    return this.#parts?.tokenizer.tokenTable ?? null;
  }

  get eosIds(): readonly number[] | null {
    return this.#parts === null ? [] : this.#parts.eosIds;
  }

  encode(text: string, addSpecialTokens: boolean): Int32Array {
    return this.#require().tokenizer.encode(text, { addSpecialTokens });
  }

  decode(ids: readonly number[]): string {
    return this.#require().tokenizer.decode(ids);
  }

  render(
    messages: readonly EngineChatMessage[],
    options: Pick<ChatRequest, 'tools' | 'templateOptions' | 'addGenerationPrompt'>,
  ): string {
    const { template } = this.#require();
    if (template === undefined)
      throw new KvantError('chat-template-missing', 'The model has no chat template.', {
        kind: 'invalid-request',
        where: 'messages',
        fix: 'It is a base model: send it a raw prompt, or use its chat-tuned sibling.',
      });
    return template.render(messages, {
      tools: options.tools,
      addGenerationPrompt: options.addGenerationPrompt,
      kwargs: options.templateOptions,
    });
  }

  #require(): Parts {
    if (this.#parts !== null) return this.#parts;
    throw new KvantError('tokenizer-missing', 'These weights have no tokenizer.', {
      kind: 'invalid-request',
      where: 'prompt',
      fix: 'Send token ids.',
    });
  }
}

function samplingDefaults(defaults: GenerationDefaults): SamplingOptions {
  const { temperature, topK, topP, minP, maxNewTokens } = defaults;
  return {
    ...(temperature === undefined ? {} : { temperature }),
    ...(topK === undefined ? {} : { topK }),
    ...(topP === undefined ? {} : { topP }),
    ...(minP === undefined ? {} : { minP }),
    ...(maxNewTokens === undefined ? {} : { maxTokens: maxNewTokens }),
  };
}

function warnOfIgnored(defaults: GenerationDefaults, onLog: (entry: LogEntry) => void): void {
  const { repetitionPenalty = 1, typicalP = 1 } = defaults;
  if (repetitionPenalty === 1 && typicalP === 1) return;
  onLog({
    level: 'warn',
    message: 'generation_config.json asks for sampling that kvant does not have; it is left out',
    fields: { repetitionPenalty, typicalP },
  });
}
