/** The parts of a request that are not about sampling: refused, naming the field, before anything is done. */

import { type ArgumentKind, checkOption, FIELDS, oneOf } from '../arguments.js';
import { KvantError } from '../errors.js';
import { REASONING_EFFORTS } from '../text/reasoning-effort.js';
import type { QueuePlace } from './scheduling/queue-place.js';
import type { ChatRequest, GenerateRequest } from './types.js';
import { checkImageProcessor } from './vision/image-processor.js';

const EFFORT = oneOf(REASONING_EFFORTS);

/** Errors: `invalid-option`. */
export const checkReasoningEffort = (value: unknown): void => checkOption('reasoningEffort', value, EFFORT);
/** Errors: `invalid-option`. */
export const checkTemplateOptions = (value: unknown): void => checkOption('templateOptions', value, FIELDS);

export const TOKEN_ID: ArgumentKind = { takes: 'a token id', accepts: isTokenId };
export const TOKEN_IDS: ArgumentKind = {
  takes: 'a list of token ids',
  accepts: (value) => (Array.isArray(value) || value instanceof Int32Array) && [...value].every(isTokenId),
};

/** Priorities from minus to plus so much. */
export const PRIORITY_RANGE = 10;

/** Errors: `invalid-parameter`, `unknown-parameter`. */
export function checkRequest(request: GenerateRequest | ChatRequest): void {
  const given: unknown = request;
  if (typeof given !== 'object' || given === null)
    throw invalid(
      'request',
      `A request is an object, got ${given === null ? 'null' : typeof given}`,
      'an object',
    );
  const { signal, requestId, cacheSalt, addSpecialTokens, addGenerationPrompt } = given as Record<
    string,
    unknown
  >;
  const { parseReasoning, parseToolCalls, parallelToolCalls } = given as Record<string, unknown>;
  const { reasoningEffort, thinkingBudget } = given as Record<string, unknown>;
  if (reasoningEffort !== undefined && !EFFORT.accepts(reasoningEffort))
    throw takes('reasoningEffort', EFFORT.takes);
  const { templateOptions } = given as Record<string, unknown>;
  if (templateOptions !== undefined && !FIELDS.accepts(templateOptions))
    throw takes('templateOptions', FIELDS.takes);
  if (thinkingBudget !== undefined && !(Number.isInteger(thinkingBudget) && (thinkingBudget as number) >= 0))
    throw takes('thinkingBudget', 'a whole number of tokens');
  checkImageProcessor((given as Record<string, unknown>).imageProcessor);
  const { priority, share, queueTimeoutMs } = given as Record<string, unknown>;
  if (signal !== undefined && !isSignal(signal)) throw takes('signal', 'an AbortSignal');
  if (requestId !== undefined && typeof requestId !== 'string') throw takes('requestId', 'a string');
  if (cacheSalt !== undefined && (typeof cacheSalt !== 'string' || cacheSalt === ''))
    throw takes('cacheSalt', 'a string that is not empty');
  if (share !== undefined && typeof share !== 'string') throw takes('share', 'a string');
  if (priority !== undefined && !isPriority(priority))
    throw takes('priority', `a whole number from -${PRIORITY_RANGE} to ${PRIORITY_RANGE}`);
  if (queueTimeoutMs !== undefined && !(typeof queueTimeoutMs === 'number' && queueTimeoutMs > 0))
    throw takes('queueTimeoutMs', 'a number of milliseconds above 0');
  const switches = {
    addSpecialTokens,
    addGenerationPrompt,
    parseReasoning,
    parseToolCalls,
    parallelToolCalls,
  };
  for (const [name, value] of Object.entries(switches))
    if (value !== undefined && typeof value !== 'boolean') throw takes(name, 'true or false');
}

function isPriority(value: unknown): boolean {
  return typeof value === 'number' && Number.isInteger(value) && Math.abs(value) <= PRIORITY_RANGE;
}

/** Where a checked request stands in the queue, having waited so long already. */
export function queuePlace(
  request: GenerateRequest | ChatRequest,
  queueTimeoutMs: number,
  waitedMs: number,
): QueuePlace {
  const { priority = 0, share = '' } = request;
  const startWithinMs = Math.max(1, (request.queueTimeoutMs ?? queueTimeoutMs) - waitedMs);
  return { priority, share, startWithinMs };
}

export function isSignal(value: unknown): value is AbortSignal {
  return typeof value === 'object' && value !== null && 'aborted' in value && 'addEventListener' in value;
}

/** A prompt of ids. Errors: `invalid-parameter`. */
export function promptIds(prompt: unknown): Int32Array {
  const bad = Array.isArray(prompt) ? prompt.findIndex((id) => !isTokenId(id)) : -1;
  if (prompt instanceof Int32Array && prompt.every((id) => id >= 0)) return prompt;
  if (Array.isArray(prompt) && bad < 0) return Int32Array.from(prompt as number[]);
  const what = bad < 0 ? typeof prompt : `entry ${bad} that is no id`;
  const wanted = 'a string, or ids from 0 to the size of the vocabulary';
  throw invalid('prompt', `\`prompt\` takes a text or a list of token ids, got ${what}`, wanted);
}

function isTokenId(id: unknown): boolean {
  return typeof id === 'number' && Number.isInteger(id) && id >= 0 && id < 2 ** 31;
}

function takes(name: string, wanted: string): KvantError {
  return invalid(name, `\`${name}\` takes ${wanted}`, `${wanted}, or leave \`${name}\` out`);
}

function invalid(where: string, message: string, send: string): KvantError {
  return new KvantError('invalid-parameter', `${message}.`, {
    kind: 'invalid-request',
    where,
    fix: `Send ${send}.`,
  });
}
