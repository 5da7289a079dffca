/** What comes out of a request: deltas while it runs, a result when it is over, and the handle that has both. */

import type { KvantError } from '../errors.js';
import type { ToolCall, ToolCallDelta } from '../text/answer-parser.js';
import type { FinishReason } from './finish-reason.js';

/** The log-probability of one token, and of what might have stood in its place. */
export interface TokenLogprobs {
  readonly id: number;
  /** Natural logarithm; −∞ for an id that could not be. */
  readonly logprob: number;
  /** 1 for the most likely token. */
  readonly rank: number;
  /** The `topLogprobs` most likely tokens, most likely first. */
  readonly top: readonly { readonly id: number; readonly logprob: number }[];
}

/** What is new about one choice. A slow reader gets several tokens in one delta, never one twice. */
export interface Delta {
  /** Index of the choice, `0 … n − 1`. */
  readonly choice: number;
  /** May be empty: text that could still become a stop string, a tool call or half a character is held back. */
  readonly text: string;
  /** Of a chat: more of what the model thought. Absent where there is nothing new. */
  readonly reasoning?: string;
  /** Of a chat with tools: calls that begin, and more of their arguments. Absent where there is nothing new. */
  readonly toolCalls?: readonly ToolCallDelta[];
  /** New ids, an EOS id included. */
  readonly tokenIds: readonly number[];
  /** One for each id, where the request asked for `logprobs`. */
  readonly logprobs?: readonly TokenLogprobs[];
  /** Set on the last delta of the choice, null before. */
  readonly finishReason: FinishReason | null;
  /** With `finishReason: 'error'`. */
  readonly error?: KvantError;
}

export interface Usage {
  readonly promptTokens: number;
  /** Of those, tokens that the prefix cache had. */
  readonly cachedTokens: number;
  /** Of the prompt's tokens those that stand for pictures. Absent where it has none. */
  readonly imageTokens?: number;
  /** Of the prompt's tokens those that stand for frames of videos. Absent where it has none. */
  readonly videoTokens?: number;
  /** Over all choices, EOS tokens included. */
  readonly completionTokens: number;
  /** Of those, tokens of thoughts that were taken apart from the text. */
  readonly reasoningTokens: number;
  readonly totalTokens: number;
}

/** Milliseconds and rates. Of several choices: the earliest start, the latest end. */
export interface Timings {
  /** From the request to its first step. */
  readonly queueMs: number;
  /** From its first step to its first token. */
  readonly prefillMs: number;
  /** From the request to its first token: queue and prefill. */
  readonly ttftMs: number;
  /** From its first token to its last. */
  readonly decodeMs: number;
  readonly totalMs: number;
  /** Prompt tokens that were computed over prefill time; 0 if unknown. */
  readonly prefillTokensPerSecond: number;
  /** Tokens after the first over decode time, all choices together; 0 if there are none. */
  readonly decodeTokensPerSecond: number;
}

export interface ChoiceResult {
  readonly index: number;
  readonly text: string;
  /** Of a chat: what the model thought, empty if nothing. */
  readonly reasoning: string;
  /** Of a chat with tools: the calls that the model made, empty if none. Ready to go back as `tool_calls` of a message. */
  readonly toolCalls: readonly ToolCall[];
  readonly tokenIds: readonly number[];
  /** One for each id, where the request asked for `logprobs`. */
  readonly logprobs?: readonly TokenLogprobs[];
  /** Where the request has a schema of zod: what it reads, or null. */
  readonly value?: unknown;
  readonly finishReason: FinishReason;
  readonly error?: KvantError;
}

/** A picture or video of a prompt as the model saw it. What a model says of places in a picture is in pixels of this size. */
export interface SeenImage {
  /** In pixels, once resized. */
  readonly width: number;
  readonly height: number;
  readonly tokens: number;
  /** Of a video: frames that were taken of it. */
  readonly frames?: number;
}

export interface GenerationResult {
  /** Of the first choice, as are all fields down to `finishReason`. */
  readonly text: string;
  readonly reasoning: string;
  readonly toolCalls: readonly ToolCall[];
  readonly tokenIds: readonly number[];
  readonly finishReason: FinishReason;
  readonly choices: readonly ChoiceResult[];
  readonly usage: Usage;
  readonly timings: Timings;
  /** The pictures and videos of the prompt, in order. Absent where it has none. */
  readonly images?: readonly SeenImage[];
  /** The seed given or drawn: the same request with it gives the same tokens. */
  readonly seed: number;
  /** Where the request has a schema of zod: what it reads of the first choice, or null. */
  readonly value?: unknown;
}

/**
 * A request under way: an async iterable of deltas, over when every choice has finished.
 *
 * A request that is refused (bad parameters, too long a prompt, a full queue) streams nothing: `accepted`,
 * `result` and the iteration reject with the KvantError. A choice that fails later ends with a delta of finish
 * reason `error`; the iteration does not throw for it. Leaving the iteration early cancels the request.
 */
export interface Generation extends AsyncIterable<Delta>, AsyncDisposable {
  readonly requestId: string;
  /** Ids of the prompt. Empty until it is tokenised: for a long one that is when `accepted` resolves. */
  readonly promptTokenIds: readonly number[];
  /** The seed given or drawn. */
  readonly seed: number;
  /** Resolves once the engine has taken the request in; rejects if it is refused. */
  readonly accepted: Promise<void>;
  /**
   * Resolves once its first choice has had its turn, so that it can no longer be too late for its `queueTimeoutMs`; where it has none, with
   * `accepted`. Rejects if it is refused, and with the error if it fails before.
   */
  readonly started: Promise<void>;
  /** Resolves when every choice has finished, whether or not the deltas are read. */
  readonly result: Promise<GenerationResult>;
  /**
   * What the iteration would deliver next, without waiting for it; null if there is nothing now. For readers that want no promise
   * for each token: `watch` tells them when to ask, and `result` when all is over. Errors: the refusal.
   */
  take(): Delta | null;
  /** Calls `wake` whenever there may be something to take, until another one, or null, is given. */
  watch(wake: (() => void) | null): void;
  /** All ids of a choice so far, delivered or not. */
  tokenIds(choice?: number): readonly number[];
  /** Ends every choice that has not finished with `cancelled`. */
  cancel(): void;
}

/** What a chat whose answer is read by a schema of zod 4 comes to. */
export interface TypedResult<T> extends GenerationResult {
  /** Of the first choice, as the schema reads it. Null for one that was cut, that calls tools, or that a refinement refuses. */
  readonly value: T | null;
}

export interface TypedGeneration<T> extends Generation {
  readonly result: Promise<TypedResult<T>>;
}
