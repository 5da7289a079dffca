/** The text of a request's body: inflated, decoded, and never more of it held than is allowed. */
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

/**
 * The body as text. `limit` holds for the bytes that come and, of a compressed body, for those that it is inflated to.
 *
 * Errors: `unsupported-encoding`, `unsupported-charset` (415), `body-too-large` (413), `body-incomplete`, `invalid-encoding` (400).
 */
export async function readText(request: Request, limit: number): Promise<string> {
  const encoding = encodingOf(request);
  const charset = charsetOf(request);
  const decoder = textDecoder(charset);
  const told = Number(request.headers.get('content-length') ?? Number.NaN);
  if (told > limit) throw tooLarge(limit);
  let whole: ArrayBuffer | null = null;
  let text = '';
  let broken = false;
  const received = async function* (): AsyncGenerator<Uint8Array> {
    try {
      yield* bounded(request.body ?? [], limit);
    } catch (cause) {
      broken = true;
      throw cause;
    }
  };
  try {
    // Read at once, it need not be made into a stream; the connection brings no more than was told.
    if (encoding === null && told >= 0) whole = await request.arrayBuffer();
    else {
      const chunks = encoding === null ? received() : bounded(inflate(received(), encoding), limit);
      for await (const chunk of chunks) text += decode(decoder, charset, chunk, true);
    }
  } catch (cause) {
    if (cause instanceof KvantError) throw cause;
    throw broken || encoding === null ? incomplete(cause) : notInflated(encoding, cause);
  }
  return whole === null ? text + decode(decoder, charset) : decode(decoder, charset, new Uint8Array(whole));
}

/** Errors: `body-too-large`. */
async function* bounded(
  chunks: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  limit: number,
): AsyncGenerator<Uint8Array> {
  let size = 0;
  for await (const chunk of chunks) {
    size += chunk.byteLength;
    if (size > limit) throw tooLarge(limit);
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

function decode(
  decoder: InstanceType<typeof TextDecoder>,
  charset: string,
  bytes: Uint8Array = new Uint8Array(0),
  stream = false,
): string {
  try {
    return decoder.decode(bytes, { stream });
  } catch (cause) {
    throw new KvantError('invalid-encoding', `The body is not valid ${shown(charset.toUpperCase())}.`, {
      kind: 'invalid-request',
      fix: 'Encode it as UTF-8; in a JSON text any character may be written as \\uXXXX.',
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
