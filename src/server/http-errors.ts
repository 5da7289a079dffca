/** Errors in the shape OpenAI's clients expect. `fix` is an addition that they ignore. */
import { KvantError } from '../errors.js';

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

export function errorBody(error: KvantError, status: number = error.status): ErrorBody {
  return {
    error: {
      message: error.fix === undefined ? error.message : `${error.message} ${error.fix}`,
      type: status === 401 ? 'authentication_error' : TYPES[error.kind],
      param: error.where ?? null,
      code: error.code.replaceAll('-', '_'),
      ...(error.fix === undefined ? {} : { fix: error.fix }),
    },
  };
}

/** The response for an error: its status, its body, and when to come again. */
export function errorResponse(error: KvantError, status: number = error.status): Response {
  const headers = new Headers({ 'content-type': 'application/json' });
  if (status === 429 || status === 503)
    headers.set('retry-after', String(Math.max(1, Math.ceil(error.retryAfter ?? 1))));
  if (status === 401) headers.set('www-authenticate', 'Bearer');
  return new Response(JSON.stringify(errorBody(error, status)), { status, headers });
}
