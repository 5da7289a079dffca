/** Why the core refuses a request, or ends one. */

import { KvantError } from '../errors.js';
import type { Pacing } from './scheduling/pacing.js';
import type { QueuePlace } from './scheduling/queue-place.js';
import type { CoreRequest, Sequence } from './sequence.js';
import type { EngineLimits } from './types.js';

/** Engine options that a longer context needs to be larger; none where it is the model, or the device, that has no more. */
export type ContextRaise = readonly ('maxContext' | 'kvMemory')[];

/** What is wrong with a request, before it costs anything. */
export function admissionError(
  request: CoreRequest,
  limits: EngineLimits,
  vocabSize: number,
  raise: ContextRaise,
): KvantError | null {
  const { prompt, sampling, continuation } = request;
  const { maxContext, maxRows, maxQueue } = limits;
  // A conversation is not continued: its template ends where an answer begins.
  const field = continuation ? 'prompt' : 'messages';
  if (prompt.length === 0)
    return invalid('prompt-empty', 'The prompt has no tokens.', field, 'Send at least one token.');
  // Hidden states alone leave no room for an answer.
  if (prompt.length >= maxContext + (request.hidden === undefined ? 0 : 1))
    return contextExceeded(prompt.length, maxContext, field, raise);
  const unknown = prompt.find((id) => id < 0 || id >= vocabSize);
  if (unknown !== undefined)
    return invalid(
      'prompt-token-unknown',
      `The prompt holds the id ${unknown}; the model knows 0 to ${vocabSize - 1}.`,
      field,
      'Send ids made by the model’s own tokenizer.',
    );
  if (sampling.bestOf > maxRows + maxQueue)
    return invalid(
      'invalid-parameter',
      `The request is for ${sampling.bestOf} choices; rows and queue take ${maxRows + maxQueue} together.`,
      sampling.bestOf > sampling.n ? 'bestOf' : 'n',
      'Ask for fewer choices.',
    );
  return null;
}

/**
 * For a prompt of so many tokens, or a conversation that its template made so long. Clients tell this error by its code, and some by the
 * beginning of its message, which is OpenAI's. `about`: the tokens were not counted to the end.
 */
export function contextExceeded(
  tokens: number,
  maxContext: number,
  field: 'prompt' | 'messages',
  raise: ContextRaise,
  about: 'at least ' | '' = '',
): KvantError {
  const got = field === 'prompt' ? 'the prompt has' : 'the messages have';
  const larger =
    raise.length === 0 ? '' : `, or start the engine with a larger ${raise.join(' and a larger ')}`;
  return invalid(
    'context-length-exceeded',
    `This model's maximum context length is ${maxContext} tokens, the answer included. However, ${got} ${about}${tokens} tokens.`,
    field,
    `Shorten the ${field} to at most ${maxContext - 1} tokens${larger}.`,
  );
}

/** The same for a conversation with so many pictures and videos, and with what they take of its tokens. */
export function picturesExceed(
  tokens: number,
  seen: { readonly count: number; readonly tokens: number },
  maxContext: number,
  raise: ContextRaise,
): KvantError {
  const { code, message, fix } = contextExceeded(tokens, maxContext, 'messages', raise);
  const one = seen.count === 1;
  const told = `${message} Of these ${one ? 'its picture takes' : `its ${seen.count} pictures take`} ${seen.tokens}.`;
  if (2 * seen.tokens < tokens) return invalid(code, told, 'messages', fix!);
  const bound = 'max_pixels in mm_processor_kwargs (imageProcessor.maxPixels)';
  return invalid(
    code,
    told,
    'messages',
    `Send ${one ? 'a smaller picture' : 'fewer or smaller pictures'}, or bound them with ${bound} where the model resizes as it is told. ${fix}`,
  );
}

/** Whether the queue is too full for so many more sequences. `rows`: free ones. */
export function queueError(
  place: QueuePlace,
  sequences: number,
  waiting: number,
  rows: number,
  limits: EngineLimits,
  pacing: Pacing,
): KvantError | null {
  if (pacing.admits(place, sequences, waiting, rows, limits.maxQueue)) return null;
  return new KvantError(
    'overloaded',
    `${waiting} sequences wait already; the queue takes ${limits.maxQueue}.`,
    {
      kind: 'overloaded',
      fix: 'Try again later, or start with a larger maxQueue.',
      // When half of those have started: who comes for the first place that is free meets all the others who do.
      retryAfter: pacing.retryAfter(Math.max(sequences, Math.ceil(waiting / 2))),
    },
  );
}

/** For a sequence whose deadline has passed in the queue, with so many others behind it. */
export function startedTooLate(sequence: Sequence, pacing: Pacing, waiting: number): KvantError {
  pacing.tooLate++;
  const ms = sequence.request.place?.startWithinMs ?? 0;
  return new KvantError(
    'queue-timeout',
    `The request had no turn within the ${ms} ms that it was to wait at most.`,
    {
      kind: 'overloaded',
      where: 'queueTimeoutMs',
      fix: 'Try again later, allow more time, or give it a higher priority.',
      retryAfter: pacing.retryAfter(Math.ceil(waiting / 2)),
    },
  );
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

/** For a model that makes embeddings alone. */
export function writesNothing(name: string): KvantError {
  return new KvantError('model-embeds-only', `${name} makes embeddings of texts, and writes none.`, {
    kind: 'unsupported',
    where: 'model',
    fix: 'Use `engine.embed` (`kvant embed`), or another model.',
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
