/**
 * The reader's side of a request. Events go into one tail per choice: whatever the reader has not taken yet waits
 * there as a single delta that grows. So a slow reader costs nobody anything and gets every token once, in
 * fewer pieces; the ids are kept anyway, for the result.
 */

import { deserializeError, type KvantError } from '../errors.js';
import {
  type AnswerParser,
  type AnswerPiece,
  addToolCalls,
  joinToolCalls,
  type ToolCall,
  type ToolCallDelta,
} from '../text/answer-parser.js';
import { onAbort } from './abort.js';
import type { WireEvent } from './messages.js';
import type { ChoiceTimes } from './sequence.js';
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

interface Choice {
  readonly ids: number[];
  /** One for each id, empty if they were not asked for. */
  readonly logprobs: TokenLogprobs[];
  /** Takes thoughts and tool calls out of the text; null where all is text. */
  parser: AnswerParser | null;
  /** Ids of thoughts. */
  thought: number;
  /** Only ever appended to, so that they stay cheap however long they grow; read at the end. */
  text: string;
  reasoning: string;
  readonly toolCalls: ToolCall[];
  /** What the reader does not have. */
  newText: string;
  newReasoning: string;
  newToolCalls: readonly ToolCallDelta[];
  /** How many ids the reader has. */
  idsTaken: number;
  finish: FinishReason | null;
  finishTaken: boolean;
  error: KvantError | null;
  times: ChoiceTimes | null;
  cached: number | null;
}

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
  /** Reads whole answers that have a form. */
  readonly read?: (text: string) => unknown;
  readonly receivedAt: number;
  readonly signal: AbortSignal | undefined;
  /** Asks the engine to end the request. */
  readonly onCancel: () => void;
}

export class GenerationStream implements Generation {
  readonly requestId: string;
  readonly seed: number;
  readonly accepted: Promise<void>;
  readonly result: Promise<GenerationResult>;

  readonly #setup: GenerationSetup;
  #promptTokenIds: readonly number[];
  #images: readonly SeenImage[] = [];
  readonly #choices: Choice[];
  #open: number;
  #accepted = false;
  #refusal: KvantError | null = null;
  /** Readers that wait for something new. */
  #wakes: (() => void)[] = [];
  #watcher: (() => void) | null = null;
  #stale = false;
  readonly #accept: PromiseWithResolvers<void>;
  readonly #finished: PromiseWithResolvers<GenerationResult>;
  readonly #release: () => void;

  constructor(setup: GenerationSetup) {
    this.#setup = setup;
    this.requestId = setup.requestId;
    this.#promptTokenIds = setup.promptTokenIds;
    this.seed = setup.seed;
    this.#open = setup.choices;
    this.#choices = Array.from({ length: setup.choices }, () => ({
      ids: [],
      logprobs: [],
      parser: setup.makeParser?.() ?? null,
      thought: 0,
      text: '',
      reasoning: '',
      toolCalls: [],
      newText: '',
      newReasoning: '',
      newToolCalls: NO_CALLS,
      idsTaken: 0,
      finish: null,
      finishTaken: false,
      error: null,
      times: null,
      cached: null,
    }));
    this.#accept = withResolvers();
    this.#finished = withResolvers();
    this.accepted = this.#accept.promise;
    this.result = this.#finished.promise;
    // A reader may look at one of the three (accepted, result, deltas) and not at the others.
    this.accepted.catch(() => {});
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
          const delta = take(index, choice, this.#setup.showLogprobs !== false);
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
      const delta = take(index, shown[index]!, this.#setup.showLogprobs !== false);
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

  /** The prompt is known, with it how answers are taken apart, and its pictures. Before any token. */
  prompted(ids: readonly number[], makeParser?: () => AnswerParser, images: readonly SeenImage[] = []): void {
    this.#promptTokenIds = ids;
    this.#images = images;
    if (makeParser !== undefined) for (const choice of this.#choices) choice.parser = makeParser();
  }

  accept(): void {
    this.#accepted = true;
    this.#accept.resolve();
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
    this.#finished.reject(error);
    this.#notify();
  }

  /** One more token of a choice, with its log-probabilities if they were asked for. Readers learn of it with `tell`. */
  receiveToken(index: number, id: number, text: string, logprobs: TokenLogprobs | null = null): void {
    const choice = this.#choices[index];
    if (choice === undefined || choice.finish !== null) return;
    choice.ids.push(id);
    if (logprobs !== null) choice.logprobs.push(logprobs);
    say(choice, text, 1);
    this.#stale = true;
  }

  /** Readers learn of it with `tell`. */
  receive(event: WireEvent): void {
    const choice = this.#choices[event.choice];
    if (choice === undefined || choice.finish !== null) return;
    choice.ids.push(...event.ids);
    if (event.logprobs !== null) choice.logprobs.push(...event.logprobs);
    say(choice, event.text, event.ids.length);
    if (event.finish !== null) {
      endText(choice);
      choice.finish = event.finish;
      choice.error = event.error === null ? null : deserializeError(event.error);
      choice.times = event.times;
      choice.cached = event.cached;
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
      endText(choice);
      choice.finish = finish;
      choice.error = error;
      this.#open--;
    }
    this.#accept.resolve();
    this.#finish();
    this.#notify();
  }

  /** The choices that a reader sees: of several the best, once it is known which they are. */
  #shown(): readonly Choice[] {
    const { keep } = this.#setup;
    if (keep === undefined || keep >= this.#choices.length) return this.#choices;
    if (this.#open > 0) return [];
    const byMean = this.#choices.map((choice) => ({ choice, mean: meanLogprob(choice) }));
    // A stable sort: of equal ones the first drawn.
    return byMean
      .sort((a, b) => (a.mean === b.mean ? 0 : b.mean - a.mean))
      .slice(0, keep)
      .map(({ choice }) => choice);
  }

  #finish(): void {
    this.#release();
    const showLogprobs = this.#setup.showLogprobs !== false;
    const { read } = this.#setup;
    const choices = this.#shown().map((choice, index): ChoiceResult => {
      const result = toResult(choice, index, showLogprobs);
      if (read === undefined) return result;
      const whole = result.finishReason === 'stop' && result.toolCalls.length === 0;
      return { ...result, value: whole ? read(result.text) : null };
    });
    const { text, reasoning, toolCalls, tokenIds, finishReason } = choices[0]!;
    const images = this.#images;
    const promptTokens = this.promptTokenIds.length;
    // Of several choices one computed what the others found.
    const found = this.#choices.flatMap(({ cached }) => (cached === null ? [] : [cached]));
    const cachedTokens = found.length === 0 ? 0 : Math.min(...found);
    const completionTokens = this.#choices.reduce((sum, choice) => sum + choice.ids.length, 0);
    this.#finished.resolve({
      text,
      reasoning,
      toolCalls,
      tokenIds,
      finishReason,
      choices,
      usage: {
        promptTokens,
        cachedTokens,
        ...(images.length === 0 ? {} : { imageTokens: images.reduce((sum, { tokens }) => sum + tokens, 0) }),
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
      ...(read === undefined ? {} : { value: choices[0]!.value }),
    });
  }

  #notify(): void {
    this.#stale = false;
    this.#watcher?.();
    if (this.#wakes.length === 0) return;
    const wakes = this.#wakes;
    this.#wakes = [];
    for (const wake of wakes) wake();
  }
}

const NO_CALLS: readonly ToolCallDelta[] = [];

/** More of a choice's answer. */
function say(choice: Choice, text: string, ids: number): void {
  const { parser } = choice;
  if (parser !== null) {
    const thought = parser.thinking;
    addPiece(choice, parser.push(text));
    // Both marks count, as far as they are known by then.
    if (thought || parser.thinking) choice.thought += ids;
  } else {
    choice.text += text;
    choice.newText += text;
  }
}

/** The answer is over: what the parser held back is no longer in doubt. */
function endText(choice: Choice): void {
  if (choice.parser !== null) addPiece(choice, choice.parser.end());
}

function addPiece(choice: Choice, { text, reasoning, toolCalls }: AnswerPiece): void {
  choice.text += text;
  choice.newText += text;
  choice.reasoning += reasoning;
  choice.newReasoning += reasoning;
  if (toolCalls.length === 0) return;
  addToolCalls(choice.toolCalls, toolCalls);
  choice.newToolCalls = joinToolCalls(choice.newToolCalls, toolCalls);
}

/** All that is new about a choice since the last time, null if nothing is. */
function take(index: number, choice: Choice, showLogprobs: boolean): Delta | null {
  const { ids, idsTaken, newText, newReasoning, newToolCalls, finish, logprobs, error } = choice;
  const done = finish !== null && !choice.finishTaken;
  // Nothing is said without an id, but at the end.
  if (ids.length === idsTaken && newText === '' && !done) return null;
  const plain = {
    choice: index,
    text: newText,
    tokenIds: ids.length === idsTaken + 1 ? [ids[idsTaken]!] : ids.slice(idsTaken),
    finishReason: finish,
  };
  const delta: Delta =
    logprobs.length === 0 && error === null && newReasoning === '' && newToolCalls.length === 0
      ? plain
      : {
          ...plain,
          ...(newReasoning === '' ? {} : { reasoning: newReasoning }),
          ...(newToolCalls.length === 0 ? {} : { toolCalls: newToolCalls }),
          ...(showLogprobs && logprobs.length > 0 ? { logprobs: logprobs.slice(idsTaken) } : {}),
          ...(error === null ? {} : { error }),
        };
  choice.idsTaken = ids.length;
  choice.newText = '';
  choice.newReasoning = '';
  choice.newToolCalls = NO_CALLS;
  choice.finishTaken = finish !== null;
  return delta;
}

function toResult(choice: Choice, index: number, showLogprobs: boolean): ChoiceResult {
  return {
    index,
    text: choice.text,
    reasoning: choice.reasoning,
    toolCalls: [...choice.toolCalls],
    tokenIds: [...choice.ids],
    ...(showLogprobs && choice.logprobs.length > 0 ? { logprobs: [...choice.logprobs] } : {}),
    finishReason: choice.finish ?? 'error',
    ...(choice.error === null ? {} : { error: choice.error }),
  };
}

/** Of a choice's tokens, as OpenAI ranks answers. One that failed comes last. */
function meanLogprob({ logprobs, error }: Choice): number {
  if (error !== null || logprobs.length === 0) return Number.NEGATIVE_INFINITY;
  return logprobs.reduce((sum, token) => sum + token.logprob, 0) / logprobs.length;
}

interface PromiseWithResolvers<T> {
  readonly promise: Promise<T>;
  readonly resolve: (value: T) => void;
  readonly reject: (error: unknown) => void;
}

/** Promise.withResolvers, which Node 20 does not have. */
export function withResolvers<T>(): PromiseWithResolvers<T> {
  let resolve!: (value: T) => void;
  let reject!: (error: unknown) => void;
  const promise = new Promise<T>((yes, no) => {
    resolve = yes;
    reject = no;
  });
  return { promise, resolve, reject };
}
