/** `POST /v1/chat/completions` and `POST /v1/completions`. */
import type { ChatRequest, Delta, GenerateRequest, Generation, GenerationResult } from '../engine/types.js';
import { KvantError } from '../errors.js';
import {
  deltaChunk,
  type Envelope,
  makeEnvelope,
  type RouteKind,
  roleChunk,
  usageChunk,
  wholeBody,
} from './completion-format.js';
import type { EnginePort } from './engine-port.js';
import { asKvantError, errorBody } from './http-errors.js';
import { parseChat, parseCompletion, type StreamChoice } from './openai-schemas.js';
import { readJsonObject } from './request-body.js';
import type { RequestObserver } from './request-observer.js';
import { SSE_HEADERS, sseStream } from './sse.js';

export interface CompletionContext {
  readonly engine: EnginePort;
  readonly keepAliveMs: number;
  /** Opens the record of one request: log line and metrics. */
  observe(kind: RouteKind, stream: boolean): RequestObserver;
}

export async function chatCompletions(context: CompletionContext, raw: Request): Promise<Response> {
  const parsed = parseChat(await readJsonObject(raw));
  const model = servedModel(context.engine, parsed.model);
  return respond(context, raw, 'chat', model, parsed, [parsed.request], (request) =>
    context.engine.chat(request),
  );
}

export async function completions(context: CompletionContext, raw: Request): Promise<Response> {
  const parsed = parseCompletion(await readJsonObject(raw));
  const model = servedModel(context.engine, parsed.model);
  return respond(context, raw, 'text', model, parsed, parsed.requests, (request) =>
    context.engine.generate(request),
  );
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

async function respond<R extends ChatRequest | GenerateRequest>(
  context: CompletionContext,
  raw: Request,
  kind: RouteKind,
  model: string,
  choice: StreamChoice,
  requests: readonly R[],
  start: (request: R) => Generation,
): Promise<Response> {
  const observer = context.observe(kind, choice.stream);
  const envelope = makeEnvelope(kind, model);
  const generations: Generation[] = [];
  const cancel = (): void => {
    for (const generation of generations) generation.cancel();
  };
  try {
    for (const request of requests)
      generations.push(start({ ...request, requestId: envelope.id, signal: raw.signal }));
    for (const generation of generations) generation.result.catch(() => {});
    observer.started(requests[0], generations);
    // A refusal must come before anything streams.
    await Promise.all(generations.map((g) => g.accepted));
    if (choice.stream) {
      const events = streamEvents(envelope, generations, requests[0]?.n ?? 1, choice.includeUsage, observer);
      const stream = sseStream(events, { keepAliveMs: context.keepAliveMs, onEnd: cancel });
      return new Response(stream, { headers: { ...SSE_HEADERS, 'x-request-id': envelope.id } });
    }
    for (const generation of generations) void watch(generation, observer);
    const results = await Promise.all(generations.map((g) => g.result));
    for (const result of results) throwIfFailed(result);
    observer.finished(results);
    return Response.json(wholeBody(envelope, results), { headers: { 'x-request-id': envelope.id } });
  } catch (error) {
    cancel();
    const known = asKvantError(error);
    observer.failed(known);
    throw known;
  }
}

function throwIfFailed(result: GenerationResult): void {
  for (const choice of result.choices) if (choice.error !== undefined) throw choice.error;
}

/** Lets the observer see the tokens of a response that does not stream. */
async function watch(generation: Generation, observer: RequestObserver): Promise<void> {
  for await (const delta of generation) observer.delta(delta);
}

async function* streamEvents(
  envelope: Envelope,
  generations: readonly Generation[],
  n: number,
  includeUsage: boolean,
  observer: RequestObserver,
): AsyncGenerator<string, void, void> {
  try {
    if (envelope.kind === 'chat') {
      for (let index = 0; index < n * generations.length; index++)
        yield JSON.stringify(roleChunk(envelope, index));
    }
    for await (const [prompt, delta] of merge(generations)) {
      observer.delta(delta);
      if (delta.error !== undefined) throw delta.error;
      if (delta.text.length === 0 && delta.finishReason === null) continue;
      yield JSON.stringify(deltaChunk(envelope, prompt * n + delta.choice, delta.text, delta.finishReason));
    }
    const results = await Promise.all(generations.map((g) => g.result));
    observer.finished(results);
    if (includeUsage) yield JSON.stringify(usageChunk(envelope, results));
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
