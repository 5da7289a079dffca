/** A conversation with a model: what was said, under which system message and with which settings. */
import type {
  ChatRequest,
  Delta,
  EngineChatMessage,
  EngineInfo,
  Generation,
  GenerationResult,
} from '../../engine/types.js';
import { KvantError } from '../../errors.js';
import { inFileNames, type NamedPicture, readPicture, withPictures } from '../picture-files.js';
import type { Settings } from './settings.js';

/** What a conversation needs of an engine. */
export interface ChatEngine {
  readonly info: { readonly model: Pick<EngineInfo['model'], 'modalities'> };
  chat(request: ChatRequest): Generation;
}

export class Conversation {
  readonly settings: Settings;
  /** Undefined: there is none. It holds from the next question on. */
  system: string | undefined;
  readonly #engine: ChatEngine;
  #turns: EngineChatMessage[] = [];
  #pictures: readonly NamedPicture[] = [];

  constructor(engine: ChatEngine, settings: Settings, system?: string) {
    this.#engine = engine;
    this.settings = settings;
    this.system = system;
  }

  /** Files of pictures that go before the next question. */
  get images(): readonly string[] {
    return this.#pictures.map(({ name }) => name);
  }

  /** Errors: `unsupported-content` for a model that does not see; those of `readPicture`. */
  addImage(path: string): void {
    if (!this.#engine.info.model.modalities.includes('image'))
      throw new KvantError('unsupported-content', 'This model reads text only.', {
        kind: 'unsupported',
        where: '/image',
        fix: 'Take a model that sees, such as models/demo-vision.',
      });
    this.#pictures = [...this.#pictures, readPicture(path)];
  }

  dropImages(): void {
    this.#pictures = [];
  }

  /** Forgets what was said, and pictures for the next question; system message and settings stay. */
  reset(): void {
    this.#turns = [];
    this.#pictures = [];
  }

  /**
   * Asks, and tells of the answer as it comes. What was stopped is remembered as far as it came; a question that was refused,
   * or whose answer failed, is not, and its pictures wait for the next, but for one that was at fault. Errors: whatever the engine
   * refuses, or ends an answer with.
   */
  async ask(text: string, signal: AbortSignal, tell: (delta: Delta) => void): Promise<GenerationResult> {
    const question = { role: 'user', content: withPictures(this.#pictures, text) };
    const system = this.system === undefined ? [] : [{ role: 'system', content: this.system }];
    const generation = this.#engine.chat({
      ...this.settings.sampling,
      messages: [...system, ...this.#turns, question],
      templateOptions: this.settings.templateOptions,
      signal,
    });
    const result = await this.#answer(generation, tell);
    this.#pictures = [];
    const thoughts = result.reasoning === '' ? {} : { reasoning_content: result.reasoning };
    this.#turns = [...this.#turns, question, { role: 'assistant', content: result.text, ...thoughts }];
    return result;
  }

  async #answer(generation: Generation, tell: (delta: Delta) => void): Promise<GenerationResult> {
    try {
      for await (const delta of generation) {
        tell(delta);
        if (delta.error !== undefined) throw delta.error;
      }
      return await generation.result;
    } catch (error) {
      const named = inFileNames(error, this.#pictures);
      if (named !== error)
        this.#pictures = this.#pictures.filter(({ name }) => name !== (named as KvantError).where);
      throw named;
    }
  }
}
