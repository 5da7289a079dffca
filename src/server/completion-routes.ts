/** `POST /v1/chat/completions` and `POST /v1/completions`. */
import type { ChatRequest, GenerateRequest, Generation, GenerationResult } from '../engine/types.js';
import { KvantError } from '../errors.js';
import { shown } from '../printable.js';
import { type Caller, type CallerRules, fromCaller } from './caller.js';
import { makeEnvelope, type RouteKind, wholeBody } from './completion-format.js';
import { CompletionStream } from './completion-stream.js';
import type { EnginePort } from './engine-port.js';
import { asKvantError } from './http-errors.js';
import { LogprobsWriter } from './logprobs-format.js';
import { parseChat, parseCompletion, type StreamChoice, TEMPLATE_FIELDS } from './openai-schemas.js';
import { type Body, readJsonObject } from './request-body.js';
import type { RequestObserver } from './request-observer.js';
import { type Shutdown, stopping } from './shutdown.js';
import { SSE_HEADERS, sseStream } from './sse.js';
import { wireError } from './wire-names.js';

export const REASONING_FORMATS = ['auto', 'none'] as const;
/** `auto`: a `<think>` block is delivered as `reasoning_content`; `none`: it stays in the content. */
export type ReasoningFormat = (typeof REASONING_FORMATS)[number];

export interface CompletionContext {
  readonly engine: EnginePort;
  readonly keepAliveMs: number;
  readonly bodyLimit: number;
  readonly reasoningFormat: ReasoningFormat;
  readonly shutdown: Shutdown;
  readonly rules: CallerRules;
  /** Opens the record of one request: log line and metrics. `key`: name of the key it came with. */
  observe(kind: RouteKind, key: string | undefined): RequestObserver;
}

/** What a request's body asks for, and how to start it. */
interface Asked extends StreamChoice {
  readonly requests: readonly (ChatRequest | GenerateRequest)[];
  readonly start: (index: number, more: { requestId: string; signal: AbortSignal }) => Generation;
}

export function chatCompletions(context: CompletionContext, raw: Request, caller: Caller): Promise<Response> {
  return respond(context, raw, 'chat', caller, (body) => {
    const { request, ...parsed } = parseChat(body);
    const parseReasoning = context.reasoningFormat !== 'none';
    const asked = { ...fromCaller(request, caller, context.rules), parseReasoning };
    return {
      ...parsed,
      requests: [asked],
      start: (_, more) => context.engine.chat({ ...asked, ...more }),
    };
  });
}

export function completions(context: CompletionContext, raw: Request, caller: Caller): Promise<Response> {
  return respond(context, raw, 'text', caller, (body) => {
    const parsed = parseCompletion(body);
    const requests = parsed.requests.map((request) => fromCaller(request, caller, context.rules));
    return {
      ...parsed,
      requests,
      start: (index, more) => context.engine.generate({ ...requests[index]!, ...more }),
    };
  });
}

/** Errors: `model-not-found` (404). */
export function servedModel(engine: EnginePort, asked: string | undefined): string {
  const { name } = engine.info;
  if (asked === undefined || asked === name || lastPart(asked) === name || asked === lastPart(name))
    return name;
  throw new KvantError('model-not-found', `The model "${shown(asked)}" is not served here.`, {
    kind: 'not-found',
    where: 'model',
    fix: `Ask for "${name}", or leave \`model\` out.`,
  });
}

/** Of a name on the hub, or of a path to the model's folder. */
const lastPart = (name: string): string =>
  name
    .slice(0, 4096)
    .split(/[\\/]/)
    .findLast((part) => part !== '') ?? name;

async function respond(
  context: CompletionContext,
  raw: Request,
  kind: RouteKind,
  caller: Caller,
  parse: (body: Body) => Asked,
): Promise<Response> {
  const { engine, shutdown } = context;
  const observer = context.observe(kind, caller.key?.name);
  const generations: Generation[] = [];
  const cancel = (): void => {
    for (const generation of generations) generation.cancel();
  };
  const untrack = shutdown.track(cancel);
  let streaming = false;
  try {
    if (shutdown.draining) throw stopping();
    const lossless = kind === 'chat' ? TEMPLATE_FIELDS : [];
    const asked = parse(await readJsonObject(raw, context.bodyLimit, lossless));
    const { stream, requests } = asked;
    const envelope = makeEnvelope(kind, servedModel(engine, asked.model), asked);
    refuseTooMany(engine, requests);
    for (const index of requests.keys())
      generations.push(asked.start(index, { requestId: envelope.id, signal: raw.signal }));
    observer.started(envelope.id, stream, requests[0]);
    // A refusal must come before anything streams.
    await Promise.all(generations.map((g) => g.accepted));
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
      const answer = new CompletionStream({
        envelope,
        generations,
        choices: requests[0]?.n ?? 1,
        makeLogprobs: logprobs,
        observer,
        gone: () => gone || raw.signal.aborted,
      });
      return new Response(sseStream(answer, { keepAliveMs: context.keepAliveMs, onEnd }), {
        headers: { ...SSE_HEADERS, ...headers },
      });
    }
    for (const [index, generation] of generations.entries()) void watch(generation, index, observer);
    const results = await Promise.all(generations.map((g) => g.result));
    if (raw.signal.aborted) observer.ended();
    for (const result of results) throwIfFailed(result);
    observer.finished(results);
    return Response.json(wholeBody(envelope, results, logprobs), { headers });
  } catch (error) {
    cancel();
    const known = wireError(asKvantError(error));
    observer.failed(known);
    throw known;
  } finally {
    if (!streaming) untrack();
  }
}

/**
 * More sequences than rows and queue hold together never fit: to come again later would not help. One request's own choices the
 * engine counts itself.
 */
function refuseTooMany(engine: EnginePort, requests: Asked['requests']): void {
  if (requests.length < 2) return;
  const { maxRows, maxQueue } = engine.info.limits;
  const all = requests.reduce((sum, { n, bestOf }) => sum + (bestOf ?? n ?? 1), 0);
  if (all <= maxRows + maxQueue) return;
  throw new KvantError(
    'invalid-parameter',
    `The request is for ${all} answers, ${requests.length} prompts together; rows and queue take ${maxRows + maxQueue}.`,
    {
      kind: 'invalid-request',
      where: 'prompt',
      fix: 'Send fewer prompts, or ask for fewer choices of each.',
    },
  );
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
  const bytesOf = (id: number): Uint8Array => engine.tokenBytes(id);
  const textBytesOf = (id: number): Uint8Array => engine.tokenBytes(id, { special: false });
  return () => new LogprobsWriter({ kind, bytesOf, textBytesOf, endIds });
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
