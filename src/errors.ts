/**
 * Every error that kvant raises on purpose.
 *
 * `code` is stable and may be matched by a program, `message` says what happened, `fix` says what to do about
 * it. `status` is the HTTP status the server answers with; the CLI maps it to an exit code. docs/errors.md lists the codes.
 *
 *     throw new KvantError('invalid-option', 'maxContext is -1; a whole number above 0 is needed', {
 *       kind: 'invalid-request',
 *       where: 'maxContext',
 *       fix: 'Give a number of tokens up to 8192.',
 *     });
 */
import { shownEnds } from './printable.js';

/** Whose fault it is, or what is short: decides the HTTP status and the exit code. */
export type ErrorKind =
  /** The caller asked for what cannot be. */
  | 'invalid-request'
  | 'not-found'
  /** It works later: see `retryAfter`. */
  | 'overloaded'
  /** Well formed, but kvant does not do it. */
  | 'unsupported'
  /** A checkpoint's files. */
  | 'model'
  /** A GPU or its driver, or memory. */
  | 'device'
  /** A bug of kvant. */
  | 'internal';

const STATUS: Record<ErrorKind, number> = {
  'invalid-request': 400,
  'not-found': 404,
  overloaded: 429,
  unsupported: 400,
  model: 500,
  device: 503,
  internal: 500,
};

/** Characters of a message: what a request or a checkpoint put into one may be longer, and not printable. */
const LONGEST_TEXT = 1000;
const readable = (text: string): string => shownEnds(text, LONGEST_TEXT, true);

export interface KvantErrorOptions {
  /** What the caller can do about it, in one sentence. */
  readonly fix?: string;
  /** Default `internal`. */
  readonly kind?: ErrorKind;
  /** The request field, file or tensor at fault. */
  readonly where?: string;
  /** Seconds after which it is worth trying again (`overloaded`). */
  readonly retryAfter?: number;
  readonly cause?: unknown;
}

/** A program in plain JavaScript may give anything. */
function checkError(code: unknown, message: unknown, options: unknown): void {
  const isText = (value: unknown): boolean => typeof value === 'string';
  const check = (right: boolean, where: string, takes: string): void => {
    if (right) return;
    throw new KvantError('invalid-parameter', `\`${where}\` of a KvantError takes ${takes}.`, {
      kind: 'invalid-request',
      where,
      fix: `Give ${takes}.`,
    });
  };
  check(isText(code), 'code', 'a text');
  check(isText(message), 'message', 'a text');
  check(typeof options === 'object' && options !== null, 'options', 'an object');
  const { fix, kind, where, retryAfter } = options as Readonly<Record<keyof KvantErrorOptions, unknown>>;
  for (const [name, value] of Object.entries({ fix, where }))
    check(value === undefined || isText(value), name, 'a text');
  check(
    kind === undefined || Object.hasOwn(STATUS, kind as string),
    'kind',
    `one of ${Object.keys(STATUS).join(', ')}`,
  );
  check(retryAfter === undefined || typeof retryAfter === 'number', 'retryAfter', 'a number of seconds');
}

/** An error with a stable `code`, a message and a `fix`. Survives `postMessage` through {@link serializeError}. */
export class KvantError extends Error {
  override readonly name = 'KvantError';
  readonly code: string;
  readonly fix: string | undefined;
  readonly kind: ErrorKind;
  readonly where: string | undefined;
  readonly retryAfter: number | undefined;

  constructor(code: string, message: string, options: KvantErrorOptions = {}) {
    checkError(code, message, options);
    super(readable(message), options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.fix = options.fix === undefined ? undefined : readable(options.fix);
    this.kind = options.kind ?? 'internal';
    this.where = options.where === undefined ? undefined : readable(options.where);
    this.retryAfter = options.retryAfter;
  }

  /** The HTTP status: 400 to 503. */
  get status(): number {
    return STATUS[this.kind];
  }
}

/** A plain-data form of an error, for messages between threads. */
export interface SerializedError {
  readonly code: string;
  readonly message: string;
  readonly fix: string | undefined;
  readonly kind: ErrorKind;
  readonly where: string | undefined;
  readonly retryAfter: number | undefined;
  readonly stack: string | undefined;
}

/** An error that is no KvantError becomes one with the code `internal`. */
export function serializeError(error: unknown): SerializedError {
  if (error instanceof KvantError) {
    const { code, message, fix, kind, where, retryAfter, stack } = error;
    return { code, message, fix, kind, where, retryAfter, stack };
  }
  const message = error instanceof Error ? error.message : String(error);
  const stack = error instanceof Error ? error.stack : undefined;
  return {
    code: 'internal',
    message,
    fix: undefined,
    kind: 'internal',
    where: undefined,
    retryAfter: undefined,
    stack,
  };
}

/** What {@link serializeError} was given, but for `cause`, which stays behind. */
export function deserializeError(data: SerializedError): KvantError {
  const error = new KvantError(data.code, data.message, {
    kind: data.kind,
    ...(data.fix === undefined ? {} : { fix: data.fix }),
    ...(data.where === undefined ? {} : { where: data.where }),
    ...(data.retryAfter === undefined ? {} : { retryAfter: data.retryAfter }),
  });
  if (data.stack !== undefined) error.stack = data.stack;
  return error;
}
