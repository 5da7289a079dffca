/** Answers of both routes, in OpenAI's shapes. */
import type { ChoiceResult, Delta, ToolCallDelta } from '../../engine/types.js';
import type { AnswerFormat, AnswerSetup } from '../protocol.js';
import { dataEvent } from '../sse.js';
import type { AnswerKind } from './answer-kind.js';
import {
  answerChunks,
  finishChunk,
  makeEnvelope,
  roleChunk,
  textChunk,
  usageChunk,
  wholeBody,
} from './completion-format.js';
import { CallsSoFar, endIdsOf } from './cut-calls.js';
import { errorBody } from './error-body.js';
import { LogprobsWriter } from './logprobs-format.js';
import type { OpenAiAsked } from './schemas.js';

const DONE = dataEvent('[DONE]');
const NO_CALLS: readonly ToolCallDelta[] = [];

export function openAiAnswer(kind: AnswerKind, setup: AnswerSetup<OpenAiAsked>): AnswerFormat {
  const { engine, asked, choices } = setup;
  const envelope = makeEnvelope(kind, engine.info.name, asked);
  const makeLogprobs = logprobsWriters(kind, setup);
  const logprobs = Array.from({ length: choices }, makeLogprobs);
  /** Tool calls that each choice has made. */
  const calls = Array.from({ length: choices }, () => new CallsSoFar());
  /** Calls that an answer ends for. */
  const callsOf = (made: CallsSoFar): number => (made.isCut(endIdsOf(setup)) ? 0 : made.count);
  const count = (choice: number, delta: Delta): void => {
    if (envelope.soFar !== null) envelope.soFar.completion += delta.tokenIds.length;
    calls[choice]!.push(delta.tokenIds, delta.toolCalls ?? NO_CALLS);
    logprobs[choice]?.push(delta);
  };
  const common = {
    id: envelope.id,
    usage: (results) => (envelope.includeUsage ? usageChunk(envelope, results) : '') + DONE,
    error: (error) => dataEvent(JSON.stringify(errorBody(error))) + DONE,
    whole: (results) => wholeBody(envelope, results, (choice) => callsOf(callsIn(choice)), makeLogprobs),
  } satisfies Partial<AnswerFormat>;
  const open = (promptTokens: readonly number[]): void => {
    if (envelope.soFar !== null) for (const tokens of promptTokens) envelope.soFar.prompt += tokens;
  };
  if (kind === 'text')
    return {
      ...common,
      open(promptTokens) {
        open(promptTokens);
        return '';
      },
      delta(choice, delta) {
        count(choice, delta);
        return delta.text === '' ? '' : textChunk(envelope, choice, delta.text, null, logprobs[choice]!);
      },
      finish(choice, delta) {
        count(choice, delta);
        return textChunk(envelope, choice, delta.text, delta.finishReason, logprobs[choice]!);
      },
    };
  const chunks = (choice: number, delta: Delta): string => {
    count(choice, delta);
    return answerChunks(envelope, choice, delta, logprobs[choice]!);
  };
  return {
    ...common,
    open(promptTokens) {
      open(promptTokens);
      return calls.map((_, choice) => roleChunk(envelope, choice)).join('');
    },
    delta: chunks,
    finish: (choice, delta) =>
      chunks(choice, delta) +
      finishChunk(envelope, choice, delta.finishReason!, callsOf(calls[choice]!), logprobs[choice]!),
  };
}

/** The same of a choice that is whole. */
function callsIn({ tokenIds, toolCalls }: ChoiceResult): CallsSoFar {
  const calls = new CallsSoFar();
  calls.push(
    tokenIds,
    toolCalls.map((call, index) => ({ ...call, index })),
  );
  return calls;
}

/** Makes the writer of a choice; null ones if the request asked for no log-probabilities. */
function logprobsWriters(kind: AnswerKind, setup: AnswerSetup<OpenAiAsked>): () => LogprobsWriter | null {
  const { engine, request } = setup;
  if (request?.logprobs !== true) return () => null;
  const endIds = endIdsOf(setup);
  const bytesOf = (id: number): Uint8Array => engine.tokenBytes(id);
  const textBytesOf = (id: number): Uint8Array => engine.tokenBytes(id, { special: false });
  return () => new LogprobsWriter({ kind, bytesOf, textBytesOf, endIds });
}
