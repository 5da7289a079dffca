/** The events of a streamed response, made of what its generations bring when somebody asks. */
import type { Delta, Generation, GenerationResult } from '../engine/types.js';
import {
  answerChunks,
  type Envelope,
  finishChunk,
  roleChunk,
  textChunk,
  usageChunk,
} from './completion-format.js';
import { asKvantError, errorBody } from './http-errors.js';
import type { LogprobsWriter } from './logprobs-format.js';
import type { RequestObserver } from './request-observer.js';
import { stopping } from './shutdown.js';
import { dataEvent, type EventSource } from './sse.js';
import { wireError } from './wire-names.js';

export interface CompletionStreamOptions {
  readonly envelope: Envelope;
  readonly generations: readonly Generation[];
  /** Of each generation. */
  readonly choices: number;
  /** Null ones if the request asked for no log-probabilities. */
  readonly makeLogprobs: () => LogprobsWriter | null;
  readonly observer: RequestObserver;
  /** Whether the client is: then what was cancelled is nobody's fault. */
  readonly gone: () => boolean;
}

const DONE = dataEvent('[DONE]');

export class CompletionStream implements EventSource {
  readonly #options: CompletionStreamOptions;
  /** Of a chat: how many tool calls each choice has made. */
  readonly #calls: number[];
  readonly #logprobs: readonly (LogprobsWriter | null)[];
  #results: readonly GenerationResult[] | null = null;
  #failure: unknown = null;
  #wake: () => void = () => {};
  #begun = false;
  /** What this reading has brought so far. */
  #text = '';
  #over = false;

  constructor(options: CompletionStreamOptions) {
    const { generations, choices, makeLogprobs } = options;
    this.#options = options;
    const all = Array.from({ length: choices * generations.length });
    this.#calls = all.map(() => 0);
    this.#logprobs = all.map(makeLogprobs);
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
      const known = wireError(asKvantError(error));
      this.#options.observer.failed(known);
      this.#text += dataEvent(JSON.stringify(errorBody(known))) + DONE;
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
    const { envelope, generations } = this.#options;
    if (envelope.soFar !== null)
      for (const { promptTokenIds } of generations) envelope.soFar.prompt += promptTokenIds.length;
    if (envelope.kind !== 'chat') return;
    for (const index of this.#calls.keys()) this.#text += roleChunk(envelope, index);
  }

  #take(): void {
    const { generations, choices, observer, gone } = this.#options;
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
        this.#text += this.#chunks(index, delta);
      }
    }
  }

  #chunks(index: number, delta: Delta): string {
    const { envelope } = this.#options;
    const { text, toolCalls = [], finishReason } = delta;
    const logprobs = this.#logprobs[index] ?? null;
    logprobs?.push(delta);
    if (envelope.soFar !== null) envelope.soFar.completion += delta.tokenIds.length;
    if (envelope.kind === 'text')
      return text === '' && finishReason === null
        ? ''
        : textChunk(envelope, index, text, finishReason, logprobs);
    const calls = Math.max(this.#calls[index]!, ...toolCalls.map((call) => call.index + 1));
    this.#calls[index] = calls;
    const chunks = answerChunks(envelope, index, delta, logprobs);
    return finishReason === null
      ? chunks
      : chunks + finishChunk(envelope, index, finishReason, calls, logprobs);
  }

  #end(results: readonly GenerationResult[]): void {
    const { envelope, observer } = this.#options;
    this.#over = true;
    observer.finished(results);
    this.#text += (envelope.includeUsage ? usageChunk(envelope, results) : '') + DONE;
  }
}
