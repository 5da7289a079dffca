/** Why the core refuses a request, or ends one. */

import { KvantError } from '../errors.js';
import type { Counters } from './counters.js';
import type { CoreRequest } from './sequence.js';
import type { EngineLimits } from './types.js';

/** What is wrong with a request, before it costs anything. `room`: sequences that rows and queue still take. */
export function admissionError(
  request: CoreRequest,
  limits: EngineLimits,
  vocabSize: number,
  room: number,
  counters: Counters,
  waiting: number,
): KvantError | null {
  const { prompt, sampling } = request;
  const { maxContext, maxRows, maxQueue } = limits;
  if (prompt.length === 0)
    return invalid('prompt-empty', 'The prompt has no tokens.', 'prompt', 'Send at least one token.');
  if (prompt.length >= maxContext)
    return invalid(
      'prompt-too-long',
      `The prompt has ${prompt.length} tokens; a sequence may have ${maxContext}, the answer included.`,
      'prompt',
      `Shorten the prompt to at most ${maxContext - 1} tokens, or start with a larger maxContext.`,
    );
  const unknown = prompt.find((id) => id < 0 || id >= vocabSize);
  if (unknown !== undefined)
    return invalid(
      'prompt-token-unknown',
      `The prompt holds the id ${unknown}; the model knows 0 to ${vocabSize - 1}.`,
      'prompt',
      'Send ids made by the model’s own tokenizer.',
    );
  if (sampling.n > maxRows + maxQueue)
    return invalid(
      'invalid-parameter',
      `\`n\` is ${sampling.n}; rows and queue take ${maxRows + maxQueue} together.`,
      'n',
      'Ask for fewer choices.',
    );
  if (sampling.n > room)
    return new KvantError('overloaded', `${waiting} sequences wait already; the queue takes ${maxQueue}.`, {
      kind: 'overloaded',
      fix: 'Try again later, or start with a larger maxQueue.',
      retryAfter: counters.retryAfter(waiting, maxRows),
    });
  return null;
}

function invalid(code: string, message: string, where: string, fix: string): KvantError {
  return new KvantError(code, message, { kind: 'invalid-request', where, fix });
}

export function shuttingDown(): KvantError {
  return new KvantError('engine-closed', 'The engine is shutting down and takes no more requests.', {
    kind: 'overloaded',
    fix: 'Load the engine again.',
  });
}

export function invalidLogits(): KvantError {
  return new KvantError('invalid-logits', 'The model gave no finite logits for the next token.', {
    kind: 'model',
    fix: 'Check the weights; a checkpoint made for another dtype may overflow. Try precision `reference`.',
  });
}

/** Whatever was thrown, as a KvantError. Its stack is that of what was thrown: only the stack crosses threads. */
export function asKvantError(error: unknown): KvantError {
  if (error instanceof KvantError) return error;
  const message = error instanceof Error ? error.message : String(error);
  const wrapped = new KvantError('internal', message, {
    kind: 'internal',
    fix: 'This is a fault of kvant: report it with the log.',
    cause: error,
  });
  if (error instanceof Error && error.stack !== undefined) wrapped.stack = error.stack;
  return wrapped;
}
