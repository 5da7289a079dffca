/** What the two completion routes answer with: whole objects and chunks, in OpenAI's shapes. */
import type { ChoiceResult, FinishReason, GenerationResult, Timings, Usage } from '../engine/types.js';

export type RouteKind = 'chat' | 'text';

/** What stays the same over one response. */
export interface Envelope {
  readonly kind: RouteKind;
  readonly id: string;
  readonly created: number;
  readonly model: string;
}

export function makeEnvelope(kind: RouteKind, model: string): Envelope {
  const id = crypto.randomUUID().replaceAll('-', '');
  return {
    kind,
    id: `${kind === 'chat' ? 'chatcmpl' : 'cmpl'}-${id}`,
    created: Math.floor(Date.now() / 1000),
    model,
  };
}

const objectName = (kind: RouteKind, chunk: boolean): string =>
  kind === 'text' ? 'text_completion' : chunk ? 'chat.completion.chunk' : 'chat.completion';

export function usageBody(usages: readonly Usage[]): object {
  const sum = (pick: (u: Usage) => number): number => usages.reduce((total, u) => total + pick(u), 0);
  const prompt = sum((u) => u.promptTokens);
  const completion = sum((u) => u.completionTokens);
  return { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion };
}

/** kvant's own addition to a response: the seed that repeats it, and where the time went. */
export interface KvantExtra {
  readonly seed: number;
  readonly timings: Timings;
}

export function wholeBody(envelope: Envelope, results: readonly GenerationResult[]): object {
  const choices = results.flatMap((result, p) =>
    result.choices.map((choice) =>
      wholeChoice(envelope.kind, choice, p * result.choices.length + choice.index),
    ),
  );
  return {
    id: envelope.id,
    object: objectName(envelope.kind, false),
    created: envelope.created,
    model: envelope.model,
    choices,
    usage: usageBody(results.map((r) => r.usage)),
    kvant: results.map((r): KvantExtra => ({ seed: r.seed, timings: r.timings }))[0],
  };
}

function wholeChoice(kind: RouteKind, choice: ChoiceResult, index: number): object {
  const rest = { logprobs: null, finish_reason: finishName(choice.finishReason) };
  if (kind === 'text') return { index, text: choice.text, ...rest };
  return { index, message: { role: 'assistant', content: choice.text, refusal: null }, ...rest };
}

/** The first chunk of a chat choice: it names the role. */
export function roleChunk(envelope: Envelope, index: number): object {
  return chunk(envelope, [
    { index, delta: { role: 'assistant', content: '' }, logprobs: null, finish_reason: null },
  ]);
}

export function deltaChunk(
  envelope: Envelope,
  index: number,
  text: string,
  finish: FinishReason | null,
): object {
  const reason = finish === null ? null : finishName(finish);
  if (envelope.kind === 'text')
    return chunk(envelope, [{ index, text, logprobs: null, finish_reason: reason }]);
  const delta = text.length === 0 ? {} : { content: text };
  return chunk(envelope, [{ index, delta, logprobs: null, finish_reason: reason }]);
}

/** The last chunk, when the client asked for usage. */
export function usageChunk(envelope: Envelope, results: readonly GenerationResult[]): object {
  const first = results[0];
  return {
    ...chunk(envelope, []),
    usage: usageBody(results.map((r) => r.usage)),
    ...(first === undefined ? {} : { kvant: { seed: first.seed, timings: first.timings } }),
  };
}

function chunk(envelope: Envelope, choices: readonly object[]): object {
  const { id, created, model, kind } = envelope;
  return { id, object: objectName(kind, true), created, model, choices };
}

/** `cancelled` has no counterpart at OpenAI; it is only ever seen when the server shuts down. */
function finishName(reason: FinishReason): string {
  return reason;
}
