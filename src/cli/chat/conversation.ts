/** A conversation with a model: what was said, under which system message and with which settings. */
import type {
  ChatRequest,
  Delta,
  EngineChatMessage,
  Generation,
  GenerationResult,
} from '../../engine/types.js';
import type { Settings } from './settings.js';

/** What a conversation needs of an engine. */
export interface ChatEngine {
  chat(request: ChatRequest): Generation;
}

export class Conversation {
  readonly settings: Settings;
  /** Undefined: there is none. It holds from the next question on. */
  system: string | undefined;
  readonly #engine: ChatEngine;
  #turns: EngineChatMessage[] = [];

  constructor(engine: ChatEngine, settings: Settings, system?: string) {
    this.#engine = engine;
    this.settings = settings;
    this.system = system;
  }

  /** Forgets what was said; system message and settings stay. */
  reset(): void {
    this.#turns = [];
  }

  /**
   * Asks, and tells of the answer as it comes. What was stopped is remembered as far as it came; a question that was refused,
   * or whose answer failed, is not. Errors: whatever the engine refuses, or ends an answer with.
   */
  async ask(text: string, signal: AbortSignal, tell: (delta: Delta) => void): Promise<GenerationResult> {
    const question = { role: 'user', content: text };
    const system = this.system === undefined ? [] : [{ role: 'system', content: this.system }];
    const generation = this.#engine.chat({
      ...this.settings.sampling,
      messages: [...system, ...this.#turns, question],
      templateOptions: this.settings.templateOptions,
      signal,
    });
    for await (const delta of generation) {
      tell(delta);
      if (delta.error !== undefined) throw delta.error;
    }
    const result = await generation.result;
    const thoughts = result.reasoning === '' ? {} : { reasoning_content: result.reasoning };
    this.#turns = [...this.#turns, question, { role: 'assistant', content: result.text, ...thoughts }];
    return result;
  }
}
