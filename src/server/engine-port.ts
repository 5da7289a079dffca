/** What the server needs of an engine: so that its routes can be tried without a model. */
import type { AskedPrompt, EncodedPrompt, PromptLimits } from '../engine/texts/prompt-task.js';
import type { TextJob } from '../engine/texts/text-pool.js';
import type { ChatRequest, EngineInfo, EngineStats, GenerateRequest, Generation } from '../engine/types.js';

/** @internal Threads that work on texts. */
export interface TextThreads {
  /** Whether there may be any. */
  readonly threads: boolean;
  readonly limits: PromptLimits;
  /** Whether to make tokens of it keeps nobody waiting. */
  isQuick(prompt: AskedPrompt): boolean;
  run<R>(job: TextJob): Promise<R>;
}

export interface EnginePort {
  readonly info: EngineInfo;
  stats(): Promise<EngineStats>;
  /** Forgets all cached prefixes. */
  clearPrefixCache(): Promise<EngineStats>;
  generate(request: GenerateRequest): Generation;
  chat(request: ChatRequest): Generation;
  /** The bytes of an id's token, a special one spelled out; with `special: false` those that it adds to the text. */
  tokenBytes(id: number, options?: { readonly special?: boolean }): Uint8Array;
  /** @internal For large bodies; absent: all are read on the server's thread. */
  readonly texts?: TextThreads;
  /** @internal With `texts`: answers a conversation that has become tokens there. */
  chatFrom?(request: ChatRequest, prompt: EncodedPrompt): Generation;
}
