/** `POST /v1/chat/completions` and `POST /v1/completions`. */
import type { ChatRequest, Delta, GenerateRequest, Generation, GenerationResult } from '../engine/types.js';
import { KvantError } from '../errors.js';
import { inWireNames } from '../sampling/params.js';
import { ReasoningSplitter } from '../text/reasoning.js';
import { AnswerParser, type AnswerParserOptions } from './answer-parser.js';
import type { Caller } from './caller.js';
import {
  answerChunks,
  type Envelope,
  finishChunk,
  makeEnvelope,
  type RouteKind,
  roleChunk,
  textChunk,
  usageChunk,
  wholeBody,
} from './completion-format.js';
import type { EnginePort } from './engine-port.js';
import { asKvantError, errorBody } from './http-errors.js';
import { LogprobsWriter } from './logprobs-format.js';
import { parseChat, parseCompletion, type StreamChoice } from './openai-schemas.js';
import { type Body, readJsonObject } from './request-body.js';
import type { RequestObserver } from './request-observer.js';
import { type Shutdown, stopping } from './shutdown.js';
import { SSE_HEADERS, sseStream } from './sse.js';

export const REASONING_FORMATS = ['auto', 'none'] as const;
/** `auto`: a `<think>` block is delivered as `reasoning_content`; `none`: it stays in the content. */
export type ReasoningFormat = (typeof REASONING_FORMATS)[number];

export interface CompletionContext {
  readonly engine: EnginePort;
  readonly keepAliveMs: number;
  readonly bodyLimit: number;
  readonly reasoningFormat: ReasoningFormat;
  readonly shutdown: Shutdown;
  /** Opens the record of one request: log line and metrics. */
  observe(kind: RouteKind): RequestObserver;
}

/** What a request's body asks for: how to start it, and how to take its answers apart. */
interface Asked extends StreamChoice {
  readonly requests: readonly (ChatRequest | GenerateRequest)[];
  readonly start: (index: number, more: { requestId: string; signal: AbortSignal }) => Generation;
  readonly toolCalls: AnswerParserOptions['toolCalls'];
}

/** `caller`: asked when the request is read; what the body says of itself goes before it. */
export function chatCompletions(
  context: CompletionContext,
  raw: Request,
  caller: () => Caller,
): Promise<Response> {
  return respond(context, raw, 'chat', (body) => {
    const { request, ...parsed } = parseChat(body);
    const asked = { ...caller(), ...request };
    return {
      ...parsed,
      requests: [asked],
      start: (_, more) => context.engine.chat({ ...asked, ...more }),
    };
  });
}

export function completions(
  context: CompletionContext,
  raw: Request,
  caller: () => Caller,
): Promise<Response> {
  return respond(context, raw, 'text', (body) => {
    const parsed = parseCompletion(body);
    const requests = parsed.requests.map((request) => ({ ...caller(), ...request }));
    return {
      ...parsed,
      requests,
      toolCalls: 'off',
      start: (index, more) => context.engine.generate({ ...requests[index]!, ...more }),
    };
  });
}

/** Errors: `model-not-found` (404). */
export function servedModel(engine: EnginePort, asked: string | undefined): string {
  const { name } = engine.info;
  const short = name.split(/[\\/]/).filter(Boolean).pop() ?? name;
  if (asked === undefined || asked === name || asked === short) return name;
  throw new KvantError('model-not-found', `The model "${asked}" is not served here.`, {
    kind: 'not-found',
    where: 'model',
    fix: `Ask for "${name}", or leave \`model\` out.`,
  });
}

async function respond(
  context: CompletionContext,
  raw: Request,
  kind: RouteKind,
  parse: (body: Body) => Asked,
): Promise<Response> {
  const { engine, shutdown } = context;
  const observer = context.observe(kind);
  const generations: Generation[] = [];
  const cancel = (): void => {
    for (const generation of generations) generation.cancel();
  };
  const untrack = shutdown.track(cancel);
  let streaming = false;
  try {
    if (shutdown.draining) throw stopping();
    const asked = parse(await readJsonObject(raw, context.bodyLimit));
    const { stream, requests } = asked;
    const envelope = makeEnvelope(kind, servedModel(engine, asked.model), asked.includeUsage);
    for (const index of requests.keys())
      generations.push(asked.start(index, { requestId: envelope.id, signal: raw.signal }));
    observer.started(envelope.id, stream, requests[0]);
    // A refusal must come before anything streams.
    await Promise.all(generations.map((g) => g.accepted));
    const parts: AnswerParserOptions = {
      reasoning:
        kind === 'text' || context.reasoningFormat === 'none' ? 'off' : thinking(engine, generations),
      toolCalls: asked.toolCalls,
    };
    const logprobs = logprobsWriters(engine, kind, requests[0]);
    const headers = { 'x-request-id': envelope.id };
    if (stream) {
      streaming = true;
      let gone = false;
      const onEnd = (): void => {
        gone = true;
        untrack();
        cancel();
      };
      const n = requests[0]?.n ?? 1;
      const events = streamEvents(
        envelope,
        generations,
        n,
        parts,
        logprobs,
        observer,
        () => gone || raw.signal.aborted,
      );
      return new Response(sseStream(events, { keepAliveMs: context.keepAliveMs, onEnd }), {
        headers: { ...SSE_HEADERS, ...headers },
      });
    }
    for (const [index, generation] of generations.entries()) void watch(generation, index, observer);
    const results = await Promise.all(generations.map((g) => g.result));
    if (raw.signal.aborted) observer.ended();
    for (const result of results) throwIfFailed(result);
    observer.finished(results);
    return Response.json(
      wholeBody(envelope, results, (text) => AnswerParser.parse(text, parts), logprobs),
      { headers },
    );
  } catch (error) {
    cancel();
    const known = inWireNames(asKvantError(error));
    observer.failed(known);
    throw known;
  } finally {
    if (!streaming) untrack();
  }
}

/** Makes the writer of a choice; null ones if the request asked for no log-probabilities. */
function logprobsWriters(
  engine: EnginePort,
  kind: RouteKind,
  request: ChatRequest | GenerateRequest | undefined,
): () => LogprobsWriter | null {
  if (request?.logprobs !== true) return () => null;
  const eos = request.ignoreEos === true ? [] : engine.info.model.eosTokenIds;
  const endIds = new Set([...eos, ...(request.stopTokenIds ?? [])]);
  return () => new LogprobsWriter({ kind, bytesOf: (id) => engine.tokenBytes(id), endIds });
}

/** Whether the prompt, as the template made it, has begun a block of thoughts. */
function thinking(engine: EnginePort, generations: readonly Generation[]): 'open' | 'closed' {
  const promptEnd = engine.detokenize(generations[0]?.promptTokenIds.slice(-16) ?? []);
  return ReasoningSplitter.opensIn(promptEnd) ? 'open' : 'closed';
}

/** Nobody but the server itself cancels a request whose client is still there. */
function throwIfFailed(result: GenerationResult): void {
  for (const choice of result.choices) {
    if (choice.error !== undefined) throw choice.error;
    if (choice.finishReason === 'cancelled') throw stopping();
  }
}

/** Lets the observer see the tokens of a response that does not stream. */
async function watch(generation: Generation, index: number, observer: RequestObserver): Promise<void> {
  for await (const delta of generation) observer.delta(delta, index);
}

async function* streamEvents(
  envelope: Envelope,
  generations: readonly Generation[],
  n: number,
  parts: AnswerParserOptions,
  makeLogprobs: () => LogprobsWriter | null,
  observer: RequestObserver,
  gone: () => boolean,
): AsyncGenerator<string, void, void> {
  try {
    const parsers = new Map<number, AnswerParser>();
    const writers = Array.from({ length: n * generations.length }, makeLogprobs);
    if (envelope.kind === 'chat') {
      for (let index = 0; index < n * generations.length; index++) {
        parsers.set(index, new AnswerParser(parts));
        yield JSON.stringify(roleChunk(envelope, index));
      }
    }
    for await (const [prompt, delta] of merge(generations)) {
      const index = prompt * n + delta.choice;
      observer.delta(delta, index);
      if (delta.error !== undefined) throw delta.error;
      if (delta.finishReason === 'cancelled') {
        if (gone()) return;
        throw stopping();
      }
      const logprobs = writers[index] ?? null;
      logprobs?.push(delta);
      for (const chunk of deltaChunks(envelope, index, delta, parsers.get(index), logprobs))
        yield JSON.stringify(chunk);
    }
    const results = await Promise.all(generations.map((g) => g.result));
    observer.finished(results);
    if (envelope.includeUsage) yield JSON.stringify(usageChunk(envelope, results));
    yield '[DONE]';
  } catch (error) {
    const known = asKvantError(error);
    observer.failed(known);
    yield JSON.stringify(errorBody(known));
    yield '[DONE]';
  } finally {
    observer.ended();
  }
}

function* deltaChunks(
  envelope: Envelope,
  index: number,
  { text, finishReason }: Delta,
  parser: AnswerParser | undefined,
  logprobs: LogprobsWriter | null,
): Generator<object> {
  if (parser === undefined) {
    if (text !== '' || finishReason !== null) yield textChunk(envelope, index, text, finishReason, logprobs);
    return;
  }
  for (const read of finishReason === null ? (['push'] as const) : (['push', 'end'] as const)) {
    const before = parser.calls;
    const piece = read === 'push' ? parser.push(text) : parser.end();
    yield* answerChunks(envelope, index, piece, before, logprobs);
  }
  if (finishReason !== null) yield finishChunk(envelope, index, finishReason, parser.calls, logprobs);
}

/** The deltas of several generations as they come, each with the index of its generation. */
async function* merge(generations: readonly Generation[]): AsyncGenerator<[number, Delta], void, void> {
  const iterators = generations.map((g) => g[Symbol.asyncIterator]());
  const next = (index: number) => iterators[index]!.next().then((result) => ({ index, result }));
  const pending = new Map(iterators.map((_, index) => [index, next(index)]));
  try {
    while (pending.size > 0) {
      const { index, result } = await Promise.race(pending.values());
      if (result.done === true) {
        pending.delete(index);
        continue;
      }
      yield [index, result.value];
      pending.set(index, next(index));
    }
  } finally {
    await Promise.all([...pending.keys()].map((index) => iterators[index]!.return?.()));
  }
}
