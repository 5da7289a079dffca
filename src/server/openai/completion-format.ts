/** What the two completion routes answer with: whole objects and chunks, in OpenAI's shapes. */
import { randomBytes } from 'node:crypto';
import type {
  ChoiceResult,
  Delta,
  FinishReason,
  GenerationResult,
  SeenImage,
  Timings,
  Usage,
} from '../../engine/types.js';
import { dataEvent } from '../sse.js';
import type { AnswerKind } from './answer-kind.js';
import type { LogprobsWriter } from './logprobs-format.js';

/** What stays the same over one response. */
export interface Envelope {
  readonly kind: AnswerKind;
  readonly id: string;
  readonly created: number;
  readonly model: string;
  /** Chunks then carry `usage: null`, and the last one the usage. */
  readonly includeUsage: boolean;
  /** Tokens so far, which every chunk then tells; null if nobody asked. */
  readonly soFar: TokensSoFar | null;
  /** Chunks are filled up, so that their lengths tell less of the text. */
  readonly obfuscate: boolean;
  /** What every chunk begins with, up to its choices. */
  readonly head: string;
}

export interface TokensSoFar {
  prompt: number;
  completion: number;
}

export interface EnvelopeOptions {
  readonly includeUsage: boolean;
  /** Usage with every chunk. Default false. */
  readonly continuousUsage?: boolean;
  /** Default false. */
  readonly obfuscate?: boolean;
}

export function makeEnvelope(kind: AnswerKind, model: string, options: EnvelopeOptions): Envelope {
  const { includeUsage, continuousUsage = false, obfuscate = false } = options;
  const id = `${kind === 'chat' ? 'chatcmpl' : 'cmpl'}-${crypto.randomUUID().replaceAll('-', '')}`;
  const created = Math.floor(Date.now() / 1000);
  const fields = JSON.stringify({ id, object: objectName(kind, true), created, model });
  const soFar = continuousUsage ? { prompt: 0, completion: 0 } : null;
  const head = `${fields.slice(0, -1)},"choices":[`;
  return { kind, id, created, model, includeUsage, soFar, obfuscate, head };
}

const objectName = (kind: AnswerKind, chunk: boolean): string =>
  kind === 'text' ? 'text_completion' : chunk ? 'chat.completion.chunk' : 'chat.completion';

export function usageBody(usages: readonly Usage[]): object {
  const sum = (pick: (u: Usage) => number): number => usages.reduce((total, u) => total + pick(u), 0);
  const prompt = sum((u) => u.promptTokens);
  const completion = sum((u) => u.completionTokens);
  const images = sum((u) => u.imageTokens ?? 0);
  const videos = sum((u) => u.videoTokens ?? 0);
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    prompt_tokens_details: {
      cached_tokens: sum((u) => u.cachedTokens),
      ...(images === 0 ? {} : { image_tokens: images }),
      ...(videos === 0 ? {} : { video_tokens: videos }),
    },
    completion_tokens_details: { reasoning_tokens: sum((u) => u.reasoningTokens) },
  };
}

/** kvant's own addition to a response: the seed that repeats it, and where the time went. */
export interface KvantExtra {
  readonly seed: number;
  readonly timings: Timings;
  /** The pictures as the model saw them: pixels once resized, and tokens. Absent where there are none. */
  readonly images?: readonly SeenImage[];
}

const extra = ([first]: readonly GenerationResult[]): KvantExtra | undefined =>
  first === undefined
    ? undefined
    : {
        seed: first.seed,
        timings: first.timings,
        ...(first.images === undefined ? {} : { images: first.images }),
      };

/** `calls`: those that a chat's choice ends for. `logprobs` makes a writer, null if none were asked for. */
export function wholeBody(
  envelope: Envelope,
  results: readonly GenerationResult[],
  calls: (choice: ChoiceResult) => number,
  logprobs: () => LogprobsWriter | null = () => null,
): object {
  const choices = results.flatMap((result, p) =>
    result.choices.map((choice) => {
      const index = p * result.choices.length + choice.index;
      const body =
        envelope.kind === 'text' ? textChoice(choice, index) : chatChoice(choice, index, calls(choice));
      return { ...body, logprobs: logprobs()?.push(choice).take() ?? null };
    }),
  );
  return {
    id: envelope.id,
    object: objectName(envelope.kind, false),
    created: envelope.created,
    model: envelope.model,
    choices,
    usage: usageBody(results.map((r) => r.usage)),
    kvant: extra(results),
  };
}

function textChoice({ text, finishReason }: ChoiceResult, index: number): object {
  return { index, text, finish_reason: finishName(finishReason, 0) };
}

function chatChoice(
  { text, reasoning, toolCalls, finishReason }: ChoiceResult,
  index: number,
  calls: number,
): object {
  const message = {
    role: 'assistant',
    content: text === '' && toolCalls.length > 0 ? null : text,
    refusal: null,
    ...(reasoning === '' ? {} : { reasoning_content: reasoning, reasoning }),
    ...(toolCalls.length === 0 ? {} : { tool_calls: toolCalls }),
  };
  return { index, message, finish_reason: finishName(finishReason, calls) };
}

/** The first chunk of a chat choice: it names the role. */
export function roleChunk(envelope: Envelope, index: number): string {
  return choiceChunk(envelope, index, '"delta":{"role":"assistant","content":""}', null, null);
}

export function textChunk(
  envelope: Envelope,
  index: number,
  text: string,
  finish: FinishReason | null,
  logprobs: LogprobsWriter | null,
): string {
  const body = `"text":${JSON.stringify(text)}`;
  return choiceChunk(envelope, index, body, finish === null ? null : finishName(finish, 0), logprobs);
}

/** The chunks of what is new about a chat answer. */
export function answerChunks(
  envelope: Envelope,
  index: number,
  { reasoning, text, toolCalls }: Delta,
  logprobs: LogprobsWriter | null,
): string {
  let chunks = '';
  const add = (delta: string): void => {
    chunks += choiceChunk(envelope, index, `"delta":${delta}`, null, logprobs);
  };
  if (reasoning !== undefined) {
    // Clients read one name or the other.
    const thought = JSON.stringify(reasoning);
    add(`{"reasoning_content":${thought},"reasoning":${thought}}`);
  }
  if (text !== '') add(`{"content":${JSON.stringify(text)}}`);
  if (toolCalls !== undefined) add(JSON.stringify({ tool_calls: toolCalls }));
  return chunks;
}

/** The last chunk of a chat choice: it says why the answer ended. */
export function finishChunk(
  envelope: Envelope,
  index: number,
  finish: FinishReason,
  calls: number,
  logprobs: LogprobsWriter | null,
): string {
  return choiceChunk(envelope, index, '"delta":{}', finishName(finish, calls), logprobs);
}

/** The last chunk, when the client asked for usage. */
export function usageChunk(envelope: Envelope, results: readonly GenerationResult[]): string {
  const usage = JSON.stringify(usageBody(results.map((r) => r.usage)));
  return dataEvent(`${envelope.head}],"usage":${usage},"kvant":${JSON.stringify(extra(results))}}`);
}

/** One for each token: so only what is new is made into JSON. It takes along the log-probabilities that wait. */
function choiceChunk(
  envelope: Envelope,
  index: number,
  body: string,
  finish: string | null,
  logprobs: LogprobsWriter | null,
): string {
  const taken = logprobs === null ? 'null' : JSON.stringify(logprobs.take());
  const reason = finish === null ? 'null' : `"${finish}"`;
  const chunk = `${envelope.head}{"index":${index},${body},"logprobs":${taken},"finish_reason":${reason}}]${usageSoFar(envelope)}`;
  return dataEvent(`${chunk}${envelope.obfuscate ? filling(chunk) : ''}}`);
}

function usageSoFar({ soFar, includeUsage }: Envelope): string {
  if (soFar === null) return includeUsage ? ',"usage":null' : '';
  const { prompt, completion } = soFar;
  return `,"usage":{"prompt_tokens":${prompt},"completion_tokens":${completion},"total_tokens":${prompt + completion}}`;
}

/** Lengths of obfuscated chunks are multiples of so many bytes. */
const FILLED_BYTES = 256;
const OPEN = ',"obfuscation":"';

/** Random letters to the next full length. */
function filling(chunk: string): string {
  const bytes = Buffer.byteLength(chunk) + OPEN.length + 2;
  const missing = (FILLED_BYTES - (bytes % FILLED_BYTES)) % FILLED_BYTES;
  return `${OPEN}${randomBytes(missing).toString('base64url').slice(0, missing)}"`;
}

/** An answer that ends of itself with calls has ended for them; one that was cut off says so. */
function finishName(reason: FinishReason, calls: number): string {
  return reason === 'stop' && calls > 0 ? 'tool_calls' : reason;
}
