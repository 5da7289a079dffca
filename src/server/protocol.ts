/**
 * What a protocol is made of: the paths at which it takes requests, how it reads their bodies, and how it writes answers and errors. Each has a
 * folder here; protocols.ts lists them. All else (bodies, keys, the queue, streams, logs, metrics) is the same for all.
 */
import type { ChatRequest, Delta, GenerateRequest, GenerationResult } from '../engine/types.js';
import type { KvantError } from '../errors.js';
import type { ReceivedBody } from './body-text.js';
import type { EnginePort } from './engine-port.js';

/** What a body asks for. Plain data: a large body is read on a thread of its own. */
export interface Asked {
  readonly stream: boolean;
  /** The model's name, as far as it is given. */
  readonly model: string | undefined;
  /** One for each prompt; the same but for that. */
  readonly requests: readonly (ChatRequest | GenerateRequest)[];
}

/** What an answer is made for. */
export interface AnswerSetup<A> {
  readonly engine: EnginePort;
  /** What the body asked for, but its requests. */
  readonly asked: Omit<A, 'requests'>;
  /** The first request, as the engine is given it. */
  readonly request: ChatRequest | GenerateRequest | undefined;
  /** Choices of all prompts together. */
  readonly choices: number;
}

/**
 * Writes one answer. Streamed: `open`, then for each choice `delta` as it comes and `finish` with the last one, then `usage` when all
 * have ended; or `error` instead of what is left. What they return is sent as it is, a server-sent event or several: a text and not
 * objects, for it is made for every token of every client. Not streamed: `whole`.
 */
export interface AnswerFormat {
  /** Names the request in logs, and in the header `x-request-id` unless the client gave one. */
  readonly id: string;
  /** What a stream begins with. `promptTokens`: of each prompt. */
  open(promptTokens: readonly number[]): string;
  /** What is new about a choice; empty for nothing. `choice`: of all choices of the answer. */
  delta(choice: number, delta: Delta): string;
  /** The last that is new about a choice, and why it ended. */
  finish(choice: number, delta: Delta): string;
  /** The end of a stream. */
  usage(results: readonly GenerationResult[]): string;
  /** The end of a stream that failed. */
  error(error: KvantError): string;
  /** The body of an answer that is not streamed. */
  whole(results: readonly GenerationResult[]): object;
}

/** A path at which requests are answered by the model. */
export interface Endpoint<A extends Asked = Asked> {
  /** Takes `POST`. */
  readonly path: string;
  /** In logs and metrics. */
  readonly name: string;
  /** Whether its requests are conversations, or prompts as they stand. */
  readonly kind: 'chat' | 'text';
  /** Reads a body. Errors: 400s that name the field. */
  parse(received: ReceivedBody): A;
  answer(setup: AnswerSetup<A>): AnswerFormat;
}

export interface Protocol {
  readonly name: string;
  readonly endpoints: readonly Endpoint[];
  /** The body of an error's answer, also of one that comes before the body is read. */
  errorBody(error: KvantError): object;
  /** Its status; default: as OpenAI has it. */
  errorStatus?(error: KvantError): number;
  /** An error of the engine in the names that a body has for its fields. `asked`: what is known of it. Default: as it is. */
  inBodyNames?(error: KvantError, asked: Omit<Asked, 'requests'> | null): KvantError;
  /** A header that may hold the key, beside `Authorization`. */
  readonly keyHeader?: string;
}
