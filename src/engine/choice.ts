/**
 * One answer of a generation, as it grows. Whatever the reader has not taken yet waits here as a single delta: so a slow
 * reader costs nobody anything and gets every token once, in fewer pieces.
 */

import type { KvantError } from '../errors.js';
import {
  type AnswerParser,
  type AnswerPiece,
  addToolCalls,
  joinToolCalls,
  type ToolCall,
  type ToolCallDelta,
} from '../text/answer-parser.js';
import type { ChoiceTimes } from './sequence.js';
import type { ChoiceResult, Delta, FinishReason, TokenLogprobs } from './types.js';

const NO_CALLS: readonly ToolCallDelta[] = [];

export class Choice {
  readonly ids: number[] = [];
  /** One for each id, empty if they were not asked for. */
  readonly logprobs: TokenLogprobs[] = [];
  /** Takes thoughts and tool calls out of the text; null where all is text. */
  parser: AnswerParser | null;
  /** Ids of thoughts. */
  thought = 0;
  times: ChoiceTimes | null = null;
  cached: number | null = null;
  /** Only ever appended to, so that they stay cheap however long they grow; read at the end. */
  #text = '';
  #reasoning = '';
  readonly #toolCalls: ToolCall[] = [];
  /** What the reader does not have. */
  #newText = '';
  #newReasoning = '';
  #newToolCalls = NO_CALLS;
  /** How many ids the reader has. */
  #idsTaken = 0;
  #finish: FinishReason | null = null;
  #finishTaken = false;
  #error: KvantError | null = null;

  constructor(parser: AnswerParser | null = null) {
    this.parser = parser;
  }

  /** Null until it is over. */
  get finish(): FinishReason | null {
    return this.#finish;
  }

  /** More of the answer, the text of so many ids. */
  say(text: string, ids: number): void {
    const { parser } = this;
    if (parser !== null) {
      const thought = parser.thinking;
      this.#add(parser.push(text));
      // Both marks count, as far as they are known by then.
      if (thought || parser.thinking) this.thought += ids;
    } else {
      this.#text += text;
      this.#newText += text;
    }
  }

  /** The answer is over: what the parser held back is no longer in doubt. */
  end(finish: FinishReason, error: KvantError | null): void {
    if (this.parser !== null) this.#add(this.parser.end());
    this.#finish = finish;
    this.#error = error;
  }

  #add({ text, reasoning, toolCalls }: AnswerPiece): void {
    this.#text += text;
    this.#newText += text;
    this.#reasoning += reasoning;
    this.#newReasoning += reasoning;
    if (toolCalls.length === 0) return;
    addToolCalls(this.#toolCalls, toolCalls);
    this.#newToolCalls = joinToolCalls(this.#newToolCalls, toolCalls);
  }

  /** All that is new since the last time, null if nothing is. */
  take(index: number, showLogprobs: boolean): Delta | null {
    const { ids, logprobs } = this;
    const newText = this.#newText;
    const newReasoning = this.#newReasoning;
    const newToolCalls = this.#newToolCalls;
    const idsTaken = this.#idsTaken;
    const finish = this.#finish;
    const error = this.#error;
    const done = finish !== null && !this.#finishTaken;
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
    this.#idsTaken = ids.length;
    this.#newText = '';
    this.#newReasoning = '';
    this.#newToolCalls = NO_CALLS;
    this.#finishTaken = finish !== null;
    return delta;
  }

  /** All of it. */
  result(index: number, showLogprobs: boolean): ChoiceResult {
    return {
      index,
      text: this.#text,
      reasoning: this.#reasoning,
      toolCalls: [...this.#toolCalls],
      tokenIds: [...this.ids],
      ...(showLogprobs && this.logprobs.length > 0 ? { logprobs: [...this.logprobs] } : {}),
      finishReason: this.#finish ?? 'error',
      ...(this.#error === null ? {} : { error: this.#error }),
    };
  }

  /** Of its tokens, as OpenAI ranks answers. One that failed comes last. */
  meanLogprob(): number {
    if (this.#error !== null || this.logprobs.length === 0) return Number.NEGATIVE_INFINITY;
    return this.logprobs.reduce((sum, token) => sum + token.logprob, 0) / this.logprobs.length;
  }
}
