import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { KvantError } from '../errors.js';
import { bodyText, receiveBody } from './body-text.js';

const LIMIT = 100_000;
const readText = async (given: Request, limit: number): Promise<string> =>
  bodyText(await receiveBody(given, limit));

/** Sent with its length, or in pieces without. */
function request(body: Uint8Array | string, headers: Record<string, string> = {}, piece = 0): Request {
  const bytes = Buffer.from(body);
  const pieces = function* (): Generator<Uint8Array> {
    for (let at = 0; at < bytes.length; at += piece) yield bytes.subarray(at, at + piece);
  };
  const init =
    piece > 0
      ? { body: ReadableStream.from(pieces()), duplex: 'half', headers }
      : { body: bytes, headers: { 'content-length': String(bytes.length), ...headers } };
  return new Request('http://localhost/', { method: 'POST', ...init } as RequestInit);
}

async function refusal(given: Request): Promise<KvantError> {
  const error: unknown = await readText(given, LIMIT).then(
    () => new Error('was taken'),
    (reason) => reason,
  );
  if (error instanceof KvantError) return error;
  throw error;
}

const TEXT = '{"a": "Grüße, 世界, 😀"}';

describe('the text of a body', () => {
  it('is read whole or in pieces of any size, also within a character', async () => {
    for (const piece of [0, 1, 2, 3, 7]) expect(await readText(request(TEXT, {}, piece), LIMIT)).toBe(TEXT);
    expect(await readText(new Request('http://localhost/', { method: 'POST' }), LIMIT)).toBe('');
    // A byte order mark is none of the text.
    expect(await readText(request(`\ufeff${TEXT}`), LIMIT)).toBe(TEXT);
  });

  it('is inflated', async () => {
    for (const [encoding, bytes] of [
      ['gzip', gzipSync(TEXT)],
      ['x-gzip', gzipSync(TEXT)],
      ['GZIP', gzipSync(TEXT)],
      ['identity, gzip', gzipSync(TEXT)],
      ['deflate', deflateSync(TEXT)],
      ['br', brotliCompressSync(TEXT)],
      ['identity', TEXT],
      ['', TEXT],
    ] as const)
      for (const piece of [0, 1, 5])
        expect(await readText(request(bytes, { 'content-encoding': encoding }, piece), LIMIT), encoding).toBe(
          TEXT,
        );
    // Members of a gzip file follow each other.
    const parts = Buffer.concat([gzipSync(TEXT.slice(0, 9)), gzipSync(TEXT.slice(9))]);
    expect(await readText(request(parts, { 'content-encoding': 'gzip' }), LIMIT)).toBe(TEXT);
  });

  it('is held to the limit by what it is inflated to, and no more is inflated', async () => {
    const bomb = gzipSync(Buffer.alloc(8 * 2 ** 20, 'a'));
    const brotli = brotliCompressSync(Buffer.alloc(2 ** 20, 'a'));
    expect(bomb.length).toBeLessThan(LIMIT);
    for (const [encoding, bytes] of [
      ['gzip', bomb],
      ['br', brotli],
      ['deflate', deflateSync(Buffer.alloc(LIMIT + 1))],
    ] as const)
      for (const piece of [0, 1000]) {
        const error = await refusal(request(bytes, { 'content-encoding': encoding }, piece));
        expect(error, encoding).toMatchObject({ code: 'body-too-large' });
      }
    // One byte decides.
    const most = gzipSync('a'.repeat(LIMIT));
    expect(await readText(request(most, { 'content-encoding': 'gzip' }), LIMIT)).toHaveLength(LIMIT);
    const more = gzipSync('a'.repeat(LIMIT + 1));
    expect((await refusal(request(more, { 'content-encoding': 'gzip' }))).code).toBe('body-too-large');
    expect((await refusal(request('a'.repeat(LIMIT + 1)))).code).toBe('body-too-large');
    expect((await refusal(request('a'.repeat(LIMIT + 1), {}, 999))).code).toBe('body-too-large');
  });

  it('is read no further than the limit', async () => {
    let pulled = 0;
    const endless = new ReadableStream({
      pull(controller) {
        pulled++;
        controller.enqueue(Buffer.alloc(1000));
      },
    });
    const init = { method: 'POST', body: endless, duplex: 'half' } as RequestInit;
    expect((await refusal(new Request('http://localhost/', init))).code).toBe('body-too-large');
    expect(pulled).toBeLessThan(110);
    // Members that are empty are inflated to nothing; what comes is bounded as well.
    const empty = gzipSync('');
    pulled = 0;
    const members = new ReadableStream({
      pull(controller) {
        pulled++;
        controller.enqueue(empty);
      },
    });
    const coded = { ...init, body: members, headers: { 'content-encoding': 'gzip' } };
    expect((await refusal(new Request('http://localhost/', coded))).code).toBe('body-too-large');
    expect(pulled * empty.length).toBeLessThan(2 * LIMIT);
  });

  it('is refused where it is not what its headers say', async () => {
    const whole = gzipSync(TEXT);
    for (const [bytes, encoding] of [
      [TEXT, 'gzip'],
      [whole.subarray(0, whole.length - 9), 'gzip'],
      [whole.subarray(0, 4), 'gzip'],
      [whole, 'deflate'],
      [whole, 'br'],
      [Buffer.alloc(0), 'gzip'],
    ] as const)
      for (const piece of [0, 3])
        expect(
          await refusal(request(bytes, { 'content-encoding': encoding }, piece)),
          encoding,
        ).toMatchObject({
          code: 'invalid-encoding',
          where: 'Content-Encoding',
          status: 400,
        });
    for (const encoding of ['zstd', 'compress', 'gzip, gzip', 'constructor', 'gzip;q=1'])
      expect(await refusal(request(whole, { 'content-encoding': encoding }))).toMatchObject({
        code: 'unsupported-encoding',
        fix: expect.stringContaining('gzip, deflate, br'),
      });
  });

  it('is refused where it is no UTF-8: nothing is put in its place', async () => {
    for (const bytes of [[0xff], [0xc3], [0xf0, 0x9f, 0x98], [0xc0, 0xaf], [0xed, 0xa0, 0x80], [0x80]]) {
      const body = Buffer.concat([Buffer.from('{"a": "'), Buffer.from(bytes), Buffer.from('"}')]);
      for (const piece of [0, 1]) {
        const error = await refusal(request(body, {}, piece));
        expect(error).toMatchObject({ code: 'invalid-encoding', status: 400 });
        expect(error.message).toContain('UTF-8');
      }
      const coded = await refusal(request(gzipSync(body), { 'content-encoding': 'gzip' }));
      expect(coded).toMatchObject({ code: 'invalid-encoding', message: expect.stringContaining('UTF-8') });
    }
    // Broken off within a character.
    expect((await refusal(request(Buffer.from('"ü').subarray(0, 2), {}, 1))).code).toBe('invalid-encoding');
  });

  it('is read in the charset that is told', async () => {
    const typed = (charset: string, bytes: Uint8Array): Request =>
      request(bytes, { 'content-type': `application/json; charset=${charset}` });
    expect(await readText(typed('UTF-8', Buffer.from('"ü"')), LIMIT)).toBe('"ü"');
    expect(await readText(typed('iso-8859-1', Buffer.from('"ü"', 'latin1')), LIMIT)).toBe('"ü"');
    expect(await readText(typed('"utf-16le"', Buffer.from('"ü"', 'utf16le')), LIMIT)).toBe('"ü"');
    expect(await refusal(typed('klingon', Buffer.from('{}')))).toMatchObject({ code: 'unsupported-charset' });
  });

  it('says when it broke off, compressed or not', async () => {
    for (const [encoding, bytes] of [
      ['', Buffer.from(TEXT)],
      ['gzip', gzipSync(TEXT)],
    ] as const) {
      let sent = false;
      const broken = new ReadableStream({
        pull(controller) {
          if (sent) controller.error(new Error('reset'));
          else controller.enqueue(bytes.subarray(0, 20));
          sent = true;
        },
      });
      const init = {
        method: 'POST',
        body: broken,
        duplex: 'half',
        headers: { 'content-encoding': encoding },
      };
      const error = await refusal(new Request('http://localhost/', init as unknown as RequestInit));
      expect(error.code).toBe('body-incomplete');
    }
  });
});
