/**
 * The reader's side of a request. Events go into one tail per choice (choice.ts): whatever the reader has not taken yet waits
 * there as a single delta that grows; the ids are kept anyway, for the result.
 */

import { deserializeError, type KvantError } from '../errors.js';
import type { AnswerParser } from '../text/answer-parser.js';
import { onAbort } from './abort.js';
import { Choice } from './choice.js';
import type { WireEvent } from './messages.js';
import { timingsOf } from './timings.js';
import type {
  ChoiceResult,
  Delta,
  FinishReason,
  Generation,
  GenerationResult,
  SeenImage,
  TokenLogprobs,
} from './types.js';
import { type PromiseWithResolvers, withResolvers } from './with-resolvers.js';

export interface GenerationSetup {
  readonly requestId: string;
  readonly promptTokenIds: readonly number[];
  readonly seed: number;
  readonly choices: number;
  /** The best so many are handed out, when all have finished; absent: all, as they come. */
  readonly keep?: number;
  /** False: log-probabilities are for choosing the best only. */
  readonly showLogprobs?: boolean;
  /** Makes a parser for each choice. Absent: all is text. */
  readonly makeParser?: () => AnswerParser;
  /** Reads whole answers that have a form. What it rejects with, the result does. */
  readonly read?: (text: string) => Promise<unknown>;
  readonly receivedAt: number;
  readonly signal: AbortSignal | undefined;
  /** Asks the engine to end the request. */
  readonly onCancel: () => void;
}

export class GenerationStream implements Generation {
  readonly requestId: string;
  readonly seed: number;
  readonly accepted: Promise<void>;
  readonly started: Promise<void>;
  readonly result: Promise<GenerationResult>;

  readonly #setup: GenerationSetup;
  #promptTokenIds: readonly number[];
  #images: readonly SeenImage[] = [];
  #hidden: Float32Array | null = null;
  readonly #choices: Choice[];
  #open: number;
  #accepted = false;
  #refusal: KvantError | null = null;
  /** Readers that wait for something new. */
  #wakes: (() => void)[] = [];
  #watcher: (() => void) | null = null;
  #stale = false;
  readonly #accept: PromiseWithResolvers<void>;
  readonly #start: PromiseWithResolvers<void>;
  /** It may be too late for its turn. */
  #hasDeadline = false;
  readonly #finished: PromiseWithResolvers<GenerationResult>;
  readonly #release: () => void;

  constructor(setup: GenerationSetup) {
    this.#setup = setup;
    this.requestId = setup.requestId;
    this.#promptTokenIds = setup.promptTokenIds;
    this.seed = setup.seed;
    this.#open = setup.choices;
    this.#choices = Array.from({ length: setup.choices }, () => new Choice(setup.makeParser?.()));
    this.#accept = withResolvers();
    this.#start = withResolvers();
    this.#finished = withResolvers();
    this.accepted = this.#accept.promise;
    this.started = this.#start.promise;
    this.result = this.#finished.promise;
    // A reader may look at one of these, or at the deltas, and not at the others.
    this.accepted.catch(() => {});
    this.started.catch(() => {});
    this.result.catch(() => {});
    const { signal } = setup;
    this.#release = signal === undefined ? () => {} : onAbort(signal, () => this.cancel());
  }

  get promptTokenIds(): readonly number[] {
    return this.#promptTokenIds;
  }

  /** True until every choice has finished. */
  get open(): boolean {
    return this.#open > 0 && this.#refusal === null;
  }

  tokenIds(choice = 0): readonly number[] {
    return this.#choices[choice]?.ids ?? [];
  }

  cancel(): void {
    if (this.open) this.#setup.onCancel();
  }

  [Symbol.asyncIterator](): AsyncGenerator<Delta, void, undefined> {
    const deltas = this.#read();
    const leave = deltas.return.bind(deltas);
    // A generator hears of `return` when it next yields; a reader that leaves while it waits should not have to.
    deltas.return = (value) => {
      this.cancel();
      return leave(value);
    };
    return deltas;
  }

  async *#read(): AsyncGenerator<Delta, void, undefined> {
    try {
      for (;;) {
        if (this.#refusal !== null) throw this.#refusal;
        let taken = false;
        for (const [index, choice] of this.#shown().entries()) {
          const delta = choice.take(index, this.#setup.showLogprobs !== false);
          if (delta === null) continue;
          taken = true;
          yield delta;
        }
        if (taken) continue;
        if (this.#open === 0) return;
        await new Promise<void>((resolve) => {
          this.#wakes.push(resolve);
        });
      }
    } finally {
      this.cancel();
    }
  }

  take(): Delta | null {
    if (this.#refusal !== null) throw this.#refusal;
    const shown = this.#shown();
    for (let index = 0; index < shown.length; index++) {
      const delta = shown[index]!.take(index, this.#setup.showLogprobs !== false);
      if (delta !== null) return delta;
    }
    return null;
  }

  watch(wake: (() => void) | null): void {
    this.#watcher = wake;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cancel();
    await this.result.catch(() => {});
  }

  // What follows is the engine's side.

  /** `[n]` the hidden states that were asked for in place of tokens, as one, once all is over. */
  get hidden(): Float32Array | null {
    return this.#hidden;
  }

  /** The prompt is known, with it how answers are taken apart, and its pictures. Before any token. */
  prompted(ids: readonly number[], makeParser?: () => AnswerParser, images: readonly SeenImage[] = []): void {
    this.#promptTokenIds = ids;
    this.#images = images;
    if (makeParser !== undefined) for (const choice of this.#choices) choice.parser = makeParser();
  }

  /** Its turn may come too late: an event says when it has come. Before it is accepted. */
  awaitTurn(): void {
    this.#hasDeadline = true;
  }

  accept(): void {
    this.#accepted = true;
    this.#accept.resolve();
    if (!this.#hasDeadline) this.#start.resolve();
  }

  /** The engine is gone: a request that was taken in ends with the error, one that was not is refused with it. */
  fail(error: KvantError): void {
    if (this.#accepted) this.end('error', error);
    else this.refuse(error);
  }

  /** The request is over before it began. */
  refuse(error: KvantError): void {
    if (!this.open) return;
    this.#refusal = error;
    this.#release();
    this.#accept.reject(error);
    this.#start.reject(error);
    this.#finished.reject(error);
    this.#notify();
  }

  /** One more token of a choice, with its log-probabilities if they were asked for. Readers learn of it with `tell`. */
  receiveToken(index: number, id: number, text: string, logprobs: TokenLogprobs | null = null): void {
    const choice = this.#choices[index];
    if (choice === undefined || choice.finish !== null) return;
    choice.ids.push(id);
    if (logprobs !== null) choice.logprobs.push(logprobs);
    choice.say(text, 1);
    this.#stale = true;
  }

  /** Readers learn of it with `tell`. */
  receive(event: WireEvent): void {
    const choice = this.#choices[event.choice];
    if (choice === undefined || choice.finish !== null) return;
    const error = event.error === null ? null : deserializeError(event.error);
    if (error === null) this.#start.resolve();
    else this.#start.reject(error);
    choice.ids.push(...event.ids);
    if (event.logprobs !== null) choice.logprobs.push(...event.logprobs);
    choice.say(event.text, event.ids.length);
    if (event.finish !== null) {
      choice.end(event.finish, error);
      choice.times = event.times;
      choice.cached = event.cached;
      this.#hidden = event.hidden ?? null;
      if (--this.#open === 0) this.#finish();
    }
    this.#stale = true;
  }

  /** Wakes the readers, if there is something that they have not been told of. */
  tell(): void {
    if (this.#stale) this.#notify();
  }

  /** Ends every choice that is still open: the engine cannot any more. */
  end(finish: FinishReason, error: KvantError | null): void {
    if (!this.open) return;
    for (const choice of this.#choices) {
      if (choice.finish !== null) continue;
      choice.end(finish, error);
      this.#open--;
    }
    this.#accept.resolve();
    if (error === null) this.#start.resolve();
    else this.#start.reject(error);
    this.#finish();
    this.#notify();
  }

  /** The choices that a reader sees: of several the best, once it is known which they are. */
  #shown(): readonly Choice[] {
    const { keep } = this.#setup;
    if (keep === undefined || keep >= this.#choices.length) return this.#choices;
    if (this.#open > 0) return [];
    const byMean = this.#choices.map((choice) => ({ choice, mean: choice.meanLogprob() }));
    // A stable sort: of equal ones the first drawn.
    return byMean
      .sort((a, b) => (a.mean === b.mean ? 0 : b.mean - a.mean))
      .slice(0, keep)
      .map(({ choice }) => choice);
  }

  #finish(): void {
    this.#release();
    const showLogprobs = this.#setup.showLogprobs !== false;
    const choices = this.#shown().map((choice, index) => choice.result(index, showLogprobs));
    const { text, reasoning, toolCalls, tokenIds, finishReason } = choices[0]!;
    const images = this.#images;
    const promptTokens = this.promptTokenIds.length;
    // Of several choices one computed what the others found.
    const found = this.#choices.flatMap(({ cached }) => (cached === null ? [] : [cached]));
    const cachedTokens = found.length === 0 ? 0 : Math.min(...found);
    const completionTokens = this.#choices.reduce((sum, choice) => sum + choice.ids.length, 0);
    const result: GenerationResult = {
      text,
      reasoning,
      toolCalls,
      tokenIds,
      finishReason,
      choices,
      usage: {
        promptTokens,
        cachedTokens,
        ...seenTokens(images),
        completionTokens,
        reasoningTokens: this.#choices.reduce((sum, choice) => sum + choice.thought, 0),
        totalTokens: promptTokens + completionTokens,
      },
      timings: timingsOf(
        this.#setup.receivedAt,
        this.#choices.map((choice) => ({ times: choice.times, tokens: choice.ids.length })),
        promptTokens - cachedTokens,
      ),
      ...(images.length === 0 ? {} : { images }),
      seed: this.seed,
    };
    const { read } = this.#setup;
    this.#finished.resolve(read === undefined ? result : withValues(result, read));
  }

  #notify(): void {
    this.#stale = false;
    try {
      this.#watcher?.();
    } catch (error) {
      // The caller's fault is the caller's to hear of, and other readers are told all the same.
      queueMicrotask(() => {
        throw error;
      });
    }
    if (this.#wakes.length === 0) return;
    const wakes = this.#wakes;
    this.#wakes = [];
    for (const wake of wakes) wake();
  }
}

/** What is read of each choice that is whole. */
async function withValues(
  result: GenerationResult,
  read: (text: string) => Promise<unknown>,
): Promise<GenerationResult> {
  const choices = await Promise.all(
    result.choices.map(async (choice): Promise<ChoiceResult> => {
      const whole = choice.finishReason === 'stop' && choice.toolCalls.length === 0;
      return { ...choice, value: whole ? await read(choice.text) : null };
    }),
  );
  return { ...result, choices, value: choices[0]!.value };
}

/** Tokens of pictures, and of videos. */
function seenTokens(seen: readonly SeenImage[]): Partial<Record<'imageTokens' | 'videoTokens', number>> {
  const sum = (of: readonly SeenImage[]): number => of.reduce((all, { tokens }) => all + tokens, 0);
  const videos = seen.filter(({ frames }) => frames !== undefined);
  return {
    ...(videos.length === seen.length ? {} : { imageTokens: sum(seen) - sum(videos) }),
    ...(videos.length === 0 ? {} : { videoTokens: sum(videos) }),
  };
}
