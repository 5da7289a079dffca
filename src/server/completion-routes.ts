/** `POST /v1/chat/completions` and `POST /v1/completions`. */

import { onAbort } from '../engine/abort.js';
import type { ChatRequest, GenerateRequest, Generation, GenerationResult } from '../engine/types.js';
import type { Caller } from './caller.js';
import type { CompletionContext } from './completion-context.js';
import { makeEnvelope, wholeBody } from './completion-format.js';
import { CompletionStream } from './completion-stream.js';
import type { EnginePort } from './engine-port.js';
import { asKvantError } from './http-errors.js';
import { IncomingBody } from './incoming-body.js';
import { LogprobsWriter } from './logprobs-format.js';
import type { RequestObserver } from './request-observer.js';
import type { RouteKind } from './route-kind.js';
import { stopping } from './shutdown.js';
import { SSE_HEADERS, sseStream } from './sse.js';
import { wireError } from './wire-names.js';

export function chatCompletions(context: CompletionContext, raw: Request, caller: Caller): Promise<Response> {
  return respond(context, raw, 'chat', caller);
}

export function completions(context: CompletionContext, raw: Request, caller: Caller): Promise<Response> {
  return respond(context, raw, 'text', caller);
}

async function respond(
  context: CompletionContext,
  raw: Request,
  kind: RouteKind,
  caller: Caller,
): Promise<Response> {
  const { engine, shutdown } = context;
  const observer = context.observe(kind, caller.key?.name);
  const generations: Generation[] = [];
  const over = new AbortController();
  const cancel = (): void => {
    over.abort();
    for (const generation of generations) generation.cancel();
  };
  const untrack = shutdown.track(cancel);
  const body = new IncomingBody(context, raw, caller);
  const unlisten = onAbort(raw.signal, () => over.abort());
  let streaming = false;
  try {
    if (shutdown.draining) throw stopping();
    const asked = await body.read(kind, over.signal);
    const { stream, requests } = asked;
    const envelope = makeEnvelope(kind, engine.info.name, asked);
    for (const { start } of requests) generations.push(start({ requestId: envelope.id, signal: raw.signal }));
    observer.started(envelope.id, stream, requests[0]?.request);
    // A refusal must come before anything streams.
    await Promise.all(generations.map((g) => g.accepted));
    body.release();
    const request = requests[0]?.request;
    const logprobs = logprobsWriters(engine, kind, request);
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
        choices: request?.n ?? 1,
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
    // Nobody but the server itself gives up a body whose client is still there.
    const known = over.signal.aborted ? stopping() : wireError(asKvantError(error));
    cancel();
    if (raw.signal.aborted) observer.ended();
    else observer.failed(known);
    throw known;
  } finally {
    body.release();
    unlisten();
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
