/** Errors in the shape OpenAI's clients expect. `fix` is an addition that they ignore. */
import { KvantError } from '../errors.js';
import { printable, shown } from '../printable.js';
import { ACCEPTED_ENCODINGS } from './body-text.js';

export interface ErrorBody {
  readonly error: {
    readonly message: string;
    readonly type: string;
    readonly param: string | null;
    readonly code: string;
    readonly fix?: string;
  };
}

const TYPES: Record<KvantError['kind'], string> = {
  'invalid-request': 'invalid_request_error',
  unsupported: 'invalid_request_error',
  'not-found': 'invalid_request_error',
  overloaded: 'rate_limit_error',
  model: 'server_error',
  device: 'server_error',
  internal: 'server_error',
};

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
  'unsupported-encoding': 415,
  'unsupported-charset': 415,
  'invalid-api-key': 401,
  'method-not-allowed': 405,
  'shutting-down': 503,
  'engine-closed': 503,
  'queue-timeout': 503,
};

export const statusOf = (error: KvantError): number => STATUS[error.code] ?? error.status;

export function errorBody(error: KvantError): ErrorBody {
  const status = statusOf(error);
  const message = printable(/[.!?…]$/.test(error.message) ? error.message : `${error.message}.`);
  const fix = error.fix === undefined ? undefined : printable(error.fix);
  return {
    error: {
      message: fix === undefined ? message : `${message} ${fix}`,
      type: status === 401 ? 'authentication_error' : status >= 500 ? 'server_error' : TYPES[error.kind],
      param: error.where === undefined ? null : shown(error.where),
      code: error.code.replaceAll('-', '_'),
      ...(fix === undefined ? {} : { fix }),
    },
  };
}

/** The response for an error: its status, its body, and when to come again. */
export function errorResponse(error: KvantError): Response {
  const status = statusOf(error);
  const headers = new Headers({ 'content-type': 'application/json' });
  if (status === 429 || status === 503)
    headers.set('retry-after', String(Math.max(1, Math.ceil(error.retryAfter ?? 1))));
  if (error.code === 'unsupported-encoding') headers.set('accept-encoding', ACCEPTED_ENCODINGS);
  if (status === 401) headers.set('www-authenticate', 'Bearer');
  // A client must not wait for the next answer on a connection that is about to close.
  if (error.code === 'shutting-down') headers.set('connection', 'close');
  return new Response(JSON.stringify(errorBody(error)), { status, headers });
}
