/** A conversation with a model: what was said, under which system message and with which settings. */
import { statSync } from 'node:fs';
import type {
  ChatRequest,
  Delta,
  EngineChatMessage,
  EngineInfo,
  Generation,
  GenerationResult,
} from '../../engine/types.js';
import { KvantError } from '../../errors.js';
import { withImages } from '../with-images.js';
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
  #images: readonly string[] = [];

  constructor(engine: ChatEngine, settings: Settings, system?: string) {
    this.#engine = engine;
    this.settings = settings;
    this.system = system;
  }

  /** Files of pictures that go before the next question. */
  get images(): readonly string[] {
    return this.#images;
  }

  /** Errors: `unsupported-content` for a model that does not see, `image-unreadable`. */
  addImage(path: string): void {
    if (!this.#engine.info.model.modalities.includes('image'))
      throw new KvantError('unsupported-content', 'This model reads text only.', {
        kind: 'unsupported',
        where: '/image',
        fix: 'Take a model that sees, such as models/demo-vision.',
      });
    if (statSync(path, { throwIfNoEntry: false })?.isFile() !== true)
      throw new KvantError('image-unreadable', `There is no file ${path}.`, {
        kind: 'invalid-request',
        where: '/image',
        fix: 'Give the path of a picture.',
      });
    this.#images = [...this.#images, path];
  }

  dropImages(): void {
    this.#images = [];
  }

  /** Forgets what was said, and pictures for the next question; system message and settings stay. */
  reset(): void {
    this.#turns = [];
    this.#images = [];
  }

  /**
   * Asks, and tells of the answer as it comes. What was stopped is remembered as far as it came; a question that was refused,
   * or whose answer failed, is not, and its pictures wait for the next. Errors: whatever the engine refuses, or ends an answer with.
   */
  async ask(text: string, signal: AbortSignal, tell: (delta: Delta) => void): Promise<GenerationResult> {
    const question = { role: 'user', content: withImages(this.#images, text) };
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
    this.#images = [];
    const thoughts = result.reasoning === '' ? {} : { reasoning_content: result.reasoning };
    this.#turns = [...this.#turns, question, { role: 'assistant', content: result.text, ...thoughts }];
    return result;
  }
}
