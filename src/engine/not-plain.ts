import { KvantError } from '../errors.js';

/** A function, something too deep, or whatever else cannot be copied from one thread to another. */
export function notPlain(error: unknown): KvantError {
  const what = error instanceof Error ? error.message : String(error);
  return new KvantError('not-plain', `The argument cannot be given to a thread: ${what}.`, {
    kind: 'invalid-request',
    fix: 'Send plain data that is not nested deeply.',
    cause: error,
  });
}
