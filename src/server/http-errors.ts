/** What every protocol says alike about an error: its status and headers. */
import { KvantError } from '../errors.js';
import { ACCEPTED_ENCODINGS } from './body-text.js';

/** Any thrown value as a KvantError. What was not raised on purpose says nothing of its inside to the client. */
export function asKvantError(error: unknown): KvantError {
  if (error instanceof KvantError) return error;
  return new KvantError('internal', 'The server failed to answer this request.', {
    kind: 'internal',
    fix: 'Look at the server log, and report what it shows.',
    cause: error,
  });
}

/** Statuses that the kind of an error does not tell. */
const STATUS: Readonly<Record<string, number>> = {
  'body-too-large': 413,
  'image-too-large': 413,
  'video-too-large': 413,
  'unsupported-image': 415,
  'unsupported-video': 415,
  'unsupported-encoding': 415,
  'unsupported-charset': 415,
  'expectation-failed': 417,
  'headers-too-large': 431,
  'request-timeout': 408,
  'too-many-connections': 503,
  'bodies-in-flight': 503,
  'overloaded-texts': 503,
  'invalid-api-key': 401,
  'admin-key-needed': 403,
  'host-not-allowed': 403,
  'origin-not-allowed': 403,
  'method-not-allowed': 405,
  'shutting-down': 503,
  'engine-closed': 503,
  'queue-timeout': 503,
};

export const statusOf = (error: KvantError): number => STATUS[error.code] ?? error.status;

/** What an error's answer says besides its body: its type, and when to come again. */
export function errorHeaders(error: KvantError): Record<string, string> {
  const status = statusOf(error);
  return {
    'content-type': 'application/json',
    ...(status === 429 || status === 503
      ? { 'retry-after': String(Math.max(1, Math.ceil(error.retryAfter ?? 1))) }
      : {}),
    ...(error.code === 'unsupported-encoding' ? { 'accept-encoding': ACCEPTED_ENCODINGS } : {}),
    ...(status === 401 ? { 'www-authenticate': 'Bearer' } : {}),
    // A client must not wait for the next answer on a connection that is about to close.
    ...(error.code === 'shutting-down' ? { connection: 'close' } : {}),
  };
}
