/** The bytes of a request's body, and its text: inflated, decoded, and never more of it held than is allowed. */
import { pipeline, Readable, type Transform } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib';
import { KvantError } from '../errors.js';
import { shown } from '../printable.js';

/** What takes a `Content-Encoding` off. */
const INFLATERS: Readonly<Record<string, () => Transform>> = {
  gzip: createGunzip,
  'x-gzip': createGunzip,
  deflate: createInflate,
  br: createBrotliDecompress,
};

/** Encodings of bodies, as the header `Accept-Encoding` of a 415 names them. */
export const ACCEPTED_ENCODINGS = 'gzip, deflate, br';

/** What has come of a body, and what it is written in. Plain data: it may be decoded on another thread. */
export interface ReceivedBody {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly charset: string;
}

/**
 * The body as it comes, inflated. `limit` holds for the bytes that come and, of a compressed body, for those that it is inflated
 * to; `grow` is told of them as they come, and may refuse them.
 *
 * Errors: `unsupported-encoding`, `unsupported-charset` (415), `body-too-large` (413), `body-incomplete`, `invalid-encoding` (400).
 */
export async function receiveBody(
  request: Request,
  limit: number,
  grow: (size: number) => void = () => {},
): Promise<ReceivedBody> {
  const encoding = encodingOf(request);
  const charset = charsetOf(request);
  // Known before it is received.
  textDecoder(charset);
  const told = toldLength(request);
  if (told > limit) throw tooLarge(limit);
  let broken = false;
  const received = async function* (): AsyncGenerator<Uint8Array> {
    try {
      yield* bounded(request.body ?? [], limit, grow);
    } catch (cause) {
      broken = true;
      throw cause;
    }
  };
  try {
    // Read at once, it need not be made into a stream; the connection brings no more than was told.
    if (encoding === null && told >= 0) {
      grow(told);
      return { bytes: new Uint8Array(await request.arrayBuffer()), charset };
    }
    const parts: Uint8Array[] = [];
    const chunks = encoding === null ? received() : bounded(inflate(received(), encoding), limit, grow);
    for await (const chunk of chunks) parts.push(chunk);
    return { bytes: joined(parts), charset };
  } catch (cause) {
    if (cause instanceof KvantError) throw cause;
    throw broken || encoding === null ? incomplete(cause) : notInflated(encoding, cause);
  }
}

/** Bytes that the head of a request tells of; NaN where it does not. */
export function toldLength(request: Request): number {
  return Number(request.headers.get('content-length') ?? Number.NaN);
}

/** Errors: `invalid-encoding` (400). */
export function bodyText({ bytes, charset }: ReceivedBody): string {
  try {
    return textDecoder(charset).decode(bytes);
  } catch (cause) {
    if (cause instanceof KvantError) throw cause;
    throw new KvantError('invalid-encoding', `The body is not valid ${shown(charset.toUpperCase())}.`, {
      kind: 'invalid-request',
      fix: 'Encode it as UTF-8; in a JSON text any character may be written as \\uXXXX.',
      cause,
    });
  }
}

function joined(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.byteLength, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.byteLength;
  }
  return bytes;
}

/** Errors: `body-too-large`. */
async function* bounded(
  chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  limit: number,
  grow: (size: number) => void,
): AsyncGenerator<Uint8Array> {
  let size = 0;
  for await (const chunk of chunks) {
    size += chunk.byteLength;
    if (size > limit) throw tooLarge(limit);
    grow(size);
    yield chunk;
  }
}

/** What is asked for no further is not inflated: the last chunks stop the work, and the reading of the body. */
function inflate(body: AsyncIterable<Uint8Array>, encoding: string): AsyncIterable<Uint8Array> {
  // Errors come to whoever reads.
  return pipeline(Readable.from(body), INFLATERS[encoding]!(), () => {});
}

function encodingOf(request: Request): string | null {
  const header = request.headers.get('content-encoding') ?? '';
  const encodings = header
    .toLowerCase()
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '' && name !== 'identity');
  const [encoding] = encodings;
  if (encoding === undefined) return null;
  if (encodings.length === 1 && Object.hasOwn(INFLATERS, encoding)) return encoding;
  throw new KvantError('unsupported-encoding', `The body is encoded as "${shown(header)}".`, {
    kind: 'invalid-request',
    where: 'Content-Encoding',
    fix: `Send it plain, or encoded once: ${ACCEPTED_ENCODINGS}.`,
  });
}

function charsetOf(request: Request): string {
  const type = request.headers.get('content-type') ?? '';
  return /;\s*charset\s*=\s*"?([^\s;"]+)/i.exec(type)?.[1] ?? 'utf-8';
}

/** Strict: what is no text in the charset must not reach the model as something else. */
function textDecoder(charset: string): InstanceType<typeof TextDecoder> {
  try {
    return new TextDecoder(charset, { fatal: true });
  } catch (cause) {
    throw new KvantError('unsupported-charset', `The charset "${shown(charset)}" is not known.`, {
      kind: 'invalid-request',
      where: 'Content-Type',
      fix: 'Send JSON in UTF-8.',
      cause,
    });
  }
}

function tooLarge(limit: number): KvantError {
  return new KvantError('body-too-large', `The body is larger than ${limit} bytes.`, {
    kind: 'invalid-request',
    fix: 'Send less, or start the server with a larger --body-limit.',
  });
}

function incomplete(cause: unknown): KvantError {
  return new KvantError('body-incomplete', 'The body broke off.', {
    kind: 'invalid-request',
    fix: 'Send all of it.',
    cause,
  });
}

function notInflated(encoding: string, cause: unknown): KvantError {
  return new KvantError('invalid-encoding', `The body is not valid ${encoding}.`, {
    kind: 'invalid-request',
    where: 'Content-Encoding',
    fix: 'Send all that the compressor gives, or send the body plain.',
    cause,
  });
}
