/** Errors in the shape OpenAI's clients expect. `fix` is an addition that they ignore. */
import type { KvantError } from '../../errors.js';
import { printable, shown } from '../../printable.js';
import { statusOf } from '../http-errors.js';

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

const TYPE_OF_STATUS: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  403: 'permission_error',
};

export function errorBody(error: KvantError): ErrorBody {
  const status = statusOf(error);
  const message = printable(/[.!?…]$/.test(error.message) ? error.message : `${error.message}.`);
  const fix = error.fix === undefined ? undefined : printable(error.fix);
  return {
    error: {
      message: fix === undefined ? message : `${message} ${fix}`,
      type: TYPE_OF_STATUS[status] ?? (status >= 500 ? 'server_error' : TYPES[error.kind]),
      // Where a fault of the server lies (a file, a tensor) is for its log.
      param: error.where === undefined || TYPES[error.kind] === 'server_error' ? null : shown(error.where),
      code: error.code.replaceAll('-', '_'),
      ...(fix === undefined ? {} : { fix }),
    },
  };
}
