/** A request at an endpoint, from its body to its answer: the same for every protocol. */

import { onAbort } from '../engine/abort.js';
import type { Generation, GenerationResult } from '../engine/types.js';
import type { KvantError } from '../errors.js';
import type { AnswerContext } from './answer-context.js';
import { AnswerStream } from './answer-stream.js';
import type { Caller } from './caller.js';
import { asKvantError } from './http-errors.js';
import { IncomingBody } from './incoming-body.js';
import type { Asked, Endpoint, Protocol } from './protocol.js';
import type { RequestId } from './request-id.js';
import type { RequestObserver } from './request-observer.js';
import { stopping } from './shutdown.js';
import { SSE_HEADERS, sseStream } from './sse.js';

/** Errors: whatever the body, the queue and the engine refuse, in the names of the body's fields. */
export async function answerRequest(
  context: AnswerContext,
  protocol: Protocol,
  endpoint: Endpoint,
  raw: Request,
  caller: Caller,
  requestId: RequestId,
): Promise<Response> {
  const { engine, shutdown } = context;
  const observer = context.observe(endpoint.name, caller.key?.name, requestId);
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
  let askedFor: Omit<Asked, 'requests'> | null = null;
  const named = (error: unknown): KvantError => {
    const known = asKvantError(error);
    return protocol.inBodyNames?.(known, askedFor) ?? known;
  };
  try {
    if (shutdown.draining) throw stopping();
    const { asked, requests } = await body.read(endpoint, over.signal);
    askedFor = asked;
    const request = requests[0]?.request;
    const choices = request?.n ?? 1;
    const answer = endpoint.answer({ engine, asked, request, choices: choices * requests.length });
    requestId.answeredAs(answer.id);
    for (const { start } of requests) generations.push(start({ requestId: answer.id, signal: raw.signal }));
    observer.started(asked.stream, request);
    // A refusal must come before anything streams.
    await Promise.all(generations.map((g) => g.accepted));
    body.release();
    if (asked.stream) {
      // Whoever is too late for a turn can be told by a status as long as none is sent.
      await Promise.race(generations.map((g) => g.started));
      if (over.signal.aborted) throw stopping();
      streaming = true;
      let gone = false;
      const onEnd = (): void => {
        gone = true;
        untrack();
        cancel();
      };
      const events = new AnswerStream({
        answer,
        generations,
        choices,
        observer,
        gone: () => gone || raw.signal.aborted,
        named,
      });
      return new Response(sseStream(events, { keepAliveMs: context.keepAliveMs, onEnd }), {
        headers: SSE_HEADERS,
      });
    }
    for (const [index, generation] of generations.entries()) void watch(generation, index, observer);
    const results = await Promise.all(generations.map((g) => g.result));
    if (raw.signal.aborted) observer.ended();
    for (const result of results) throwIfFailed(result);
    observer.finished(results);
    return Response.json(answer.whole(results));
  } catch (error) {
    // Nobody but the server itself gives up a body whose client is still there.
    const known = over.signal.aborted ? stopping() : named(error);
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
