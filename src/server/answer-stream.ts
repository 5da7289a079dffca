/** The events of a streamed response, made of what its generations bring when somebody asks. */
import type { Generation, GenerationResult } from '../engine/types.js';
import type { KvantError } from '../errors.js';
import type { AnswerFormat } from './protocol.js';
import type { RequestObserver } from './request-observer.js';
import { stopping } from './shutdown.js';
import type { EventSource } from './sse.js';

export interface AnswerStreamOptions {
  readonly answer: AnswerFormat;
  readonly generations: readonly Generation[];
  /** Of each generation. */
  readonly choices: number;
  readonly observer: RequestObserver;
  /** Whether the client is: then what was cancelled is nobody's fault. */
  readonly gone: () => boolean;
  /** Whatever was thrown, in the names that the client knows. */
  readonly named: (error: unknown) => KvantError;
}

export class AnswerStream implements EventSource {
  readonly #options: AnswerStreamOptions;
  #results: readonly GenerationResult[] | null = null;
  #failure: unknown = null;
  #wake: () => void = () => {};
  #begun = false;
  /** What this reading has brought so far. */
  #text = '';
  #over = false;

  constructor(options: AnswerStreamOptions) {
    const { generations } = options;
    this.#options = options;
    Promise.all(generations.map(({ result }) => result)).then(
      (results) => {
        this.#results = results;
        this.#wake();
      },
      (error) => {
        this.#failure = error;
        this.#wake();
      },
    );
  }

  watch(wake: () => void): void {
    this.#wake = wake;
    for (const generation of this.#options.generations) generation.watch(wake);
  }

  read(): string | null {
    if (this.#over) return null;
    this.#text = '';
    try {
      if (!this.#begun) this.#begin();
      this.#take();
      if (this.#over) return this.#text === '' ? null : this.#text;
      if (this.#failure !== null) throw this.#failure;
      if (this.#results !== null) this.#end(this.#results);
    } catch (error) {
      this.#over = true;
      const { observer, answer, named } = this.#options;
      const known = named(error);
      observer.failed(known);
      this.#text += answer.error(known);
    }
    return this.#text;
  }

  close(): void {
    this.#over = true;
    this.#wake = () => {};
    for (const generation of this.#options.generations) generation.watch(null);
    this.#options.observer.ended();
  }

  #begin(): void {
    this.#begun = true;
    const { answer, generations } = this.#options;
    this.#text += answer.open(generations.map(({ promptTokenIds }) => promptTokenIds.length));
  }

  #take(): void {
    const { answer, generations, choices, observer, gone } = this.#options;
    for (let prompt = 0; prompt < generations.length; prompt++) {
      const generation = generations[prompt]!;
      for (let delta = generation.take(); delta !== null; delta = generation.take()) {
        const index = prompt * choices + delta.choice;
        observer.delta(delta, index);
        if (delta.error !== undefined) throw delta.error;
        if (delta.finishReason === 'cancelled') {
          if (!gone()) throw stopping();
          this.#over = true;
          return;
        }
        this.#text += delta.finishReason === null ? answer.delta(index, delta) : answer.finish(index, delta);
      }
    }
  }

  #end(results: readonly GenerationResult[]): void {
    const { answer, observer } = this.#options;
    this.#over = true;
    observer.finished(results);
    this.#text += answer.usage(results);
  }
}
