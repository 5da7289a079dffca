/** Clients that are slow, broken or hostile: each costs itself its connection, and is told why where it can be. */
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { type ListenOptions, listen } from '../../src/server/index.js';
import { answersIn, answerTo, exchange, post, rawClient, untilClosed } from './raw-client.js';
import { BODY, closeBehindEach, engine, logged, server, start as startServer } from './raw-server.js';

closeBehindEach();

const STREAM = JSON.stringify({ messages: [{ role: 'user', content: 'Hi' }], stream: true });
const HEALTH = 'GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n';
const LAST_HEALTH = 'GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n';
const HEAD = 'POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n';

const clients: Socket[] = [];
afterEach(() => {
  for (const client of clients.splice(0)) client.destroy();
});

const start = (options: Partial<ListenOptions> = {}): Promise<string> =>
  startServer({ bodyLimit: 100_000, ...options });
function client(text: string): Socket {
  const socket = rawClient(server.url);
  clients.push(socket);
  socket.write(text);
  return socket;
}
const codeOf = (body: string): string => (JSON.parse(body) as { error: { code: string } }).error.code;
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const lines = (): unknown[] => logged.map(({ msg }) => msg);

describe('what is no request', () => {
  it.each([
    ['no HTTP at all', 'hello\r\n\r\n', 400, 'invalid_http'],
    ['another protocol', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400, 'invalid_http'],
    ['an unknown method', 'FETCH / HTTP/1.1\r\nhost: localhost\r\n\r\n', 400, 'invalid_http'],
    ['an unknown version', 'GET / HTTP/3.7\r\nhost: localhost\r\n\r\n', 400, 'invalid_http'],
    ['a header without a colon', 'GET / HTTP/1.1\r\nhost: localhost\r\nbroken\r\n\r\n', 400, 'invalid_http'],
    ['a header with a NUL', 'GET / HTTP/1.1\r\nhost: localhost\r\nx: a\0b\r\n\r\n', 400, 'invalid_http'],
    ['a backslash in the path', 'GET \\health HTTP/1.1\r\nhost: localhost\r\n\r\n', 400, 'invalid_http'],
    [
      'a star for a path',
      'OPTIONS * HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n',
      400,
      'invalid_url',
    ],
    ['two lengths', `${HEAD}content-length: 2\r\ncontent-length: 3\r\n\r\n{}`, 400, 'invalid_http'],
    ['a list of lengths', `${HEAD}content-length: 2, 2\r\n\r\n{}`, 400, 'invalid_http'],
    ['a signed length', `${HEAD}content-length: +2\r\n\r\n{}`, 400, 'invalid_http'],
    ['a negative length', `${HEAD}content-length: -2\r\n\r\n{}`, 400, 'invalid_http'],
    [
      'a length beside chunks',
      `${HEAD}content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n`,
      400,
      'invalid_http',
    ],
    [
      'chunks beside a length',
      `${HEAD}transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n0\r\n\r\n`,
      400,
      'invalid_http',
    ],
    [
      'an encoding after chunks',
      `${HEAD}transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n`,
      400,
      'invalid_http',
    ],
    ['an encoding without chunks', `${HEAD}transfer-encoding: gzip\r\n\r\n`, 400, 'invalid_http'],
    ['a space before the colon', `${HEAD}transfer-encoding : chunked\r\n\r\n0\r\n\r\n`, 400, 'invalid_http'],
    [
      'a chunk without a size',
      `${HEAD}transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n`,
      400,
      'invalid_http',
    ],
    [
      'huge chunk extensions',
      `${HEAD}transfer-encoding: chunked\r\n\r\n1;${'x'.repeat(20_000)}`,
      413,
      'body_too_large',
    ],
    [
      'a huge header',
      `GET / HTTP/1.1\r\nhost: localhost\r\nx: ${'y'.repeat(20_000)}\r\n\r\n`,
      431,
      'headers_too_large',
    ],
    [
      'a huge address',
      `GET /${'y'.repeat(20_000)} HTTP/1.1\r\nhost: localhost\r\n\r\n`,
      431,
      'headers_too_large',
    ],
    [
      'a wish that is not known',
      `${HEAD}expect: magic\r\ncontent-length: 2\r\n\r\n{}`,
      417,
      'expectation_failed',
    ],
    [
      'a wish for a proxy',
      'CONNECT evil.example:443 HTTP/1.1\r\nhost: evil.example\r\n\r\n',
      405,
      'method_not_allowed',
    ],
    ['no host', 'GET /health HTTP/1.1\r\n\r\n', 400, 'invalid_host'],
  ])('is refused as JSON: %s', async (_, text, status, code) => {
    const url = await start();
    const answer = await answerTo(url, text);
    expect([answer.status, codeOf(answer.body)]).toEqual([status, code]);
    expect(answer.headers).toMatchObject({ 'content-type': 'application/json' });
    expect((await fetch(`${url}/health`)).status).toBe(200);
    expect(engine.requests).toEqual([]);
  });

  it('is told to be TLS where it is', async () => {
    const url = await start();
    const { body } = await answerTo(url, '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03');
    expect(body).toContain('http://');
  });

  it('breaks off: 400', async () => {
    const url = await start();
    for (const text of [
      'GET /hea',
      `${HEAD}content-length: 10\r\n\r\n{"a`,
      `${HEAD}transfer-encoding: chunked\r\n\r\n5\r\n{"`,
    ]) {
      const answer = await answerTo(url, text, true);
      expect([text, answer.status, codeOf(answer.body)]).toEqual([text, 400, 'body_incomplete']);
    }
  });

  it('comes after a good request, which is answered first', async () => {
    const url = await start();
    engine.script = { choices: [Array.from({ length: 50 }, () => 'word ')] };
    const answers = answersIn(await exchange(url, `${post(BODY)}${HEALTH}nonsense\r\n\r\n`));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 400]);
    expect(answers[0]!.body).toContain('word word');
  });
});

describe('too large a body', () => {
  const huge = 'x'.repeat(200_000);
  it('is refused as told, before it comes', async () => {
    const url = await start();
    const answers = answersIn(await exchange(url, `${HEAD}content-length: 200000\r\n\r\n`));
    expect(answers.map(({ status, body }) => [status, codeOf(body)])).toEqual([[413, 'body_too_large']]);
  });
  it('is refused in chunks, as soon as it is too large', async () => {
    const url = await start();
    const chunk = `${(20_000).toString(16)}\r\n${huge.slice(0, 20_000)}\r\n`;
    const answers = answersIn(
      await exchange(url, `${HEAD}transfer-encoding: chunked\r\n\r\n${chunk.repeat(6)}`),
    );
    expect(answers.map(({ status, body }) => [status, codeOf(body)])).toEqual([[413, 'body_too_large']]);
  });
});

describe('Expect: 100-continue', () => {
  const asked = `${HEAD}expect: 100-continue\r\nconnection: close\r\n`;
  it('is told to go on when the body is wanted', async () => {
    await start();
    const socket = client(`${asked}content-length: ${BODY.length}\r\n\r\n`);
    const [first] = await once(socket, 'data');
    expect(String(first)).toBe('HTTP/1.1 100 Continue\r\n\r\n');
    const heard = untilClosed(socket);
    socket.write(BODY);
    expect(answersIn(await heard).map(({ status }) => status)).toEqual([200]);
  });
  it.each([
    ['a key that is missing', { apiKey: 'secret' }, '', 401],
    ['a body that is too large', {}, 'content-length: 200000\r\n', 413],
    ['a foreign page', {}, 'origin: https://evil.example\r\n', 403],
    ['a wrong host', {}, 'host: x\r\n', 400],
  ])('is spared the body: %s', async (_, options, more, status) => {
    const url = await start(options);
    const length = more.includes('content-length') ? '' : `content-length: ${BODY.length}\r\n`;
    const answers = answersIn(await exchange(url, `${asked}${length}${more}\r\n`));
    expect(answers.map((answer) => answer.status)).toEqual([status]);
  });
});

describe('a client that is slow to send', () => {
  it('a head: 408 as JSON', async () => {
    const url = await start({ headerTimeoutMs: 150 });
    const socket = client('');
    const heard = untilClosed(socket);
    const drip = setInterval(() => socket.write('x'), 20);
    socket.write('GET /health HTTP/1.1\r\nhost: localhost\r\nx-slow: ');
    const [answer] = answersIn(await heard);
    clearInterval(drip);
    expect([answer?.status, codeOf(answer!.body)]).toEqual([408, 'request_timeout']);
    // One that never says anything.
    expect(answersIn(await untilClosed(client(''))).map(({ status }) => status)).toEqual([408]);
    expect((await fetch(`${url}/health`)).status).toBe(200);
  });

  it.each([
    ['with a length', `content-length: 100\r\n\r\n{"a`],
    ['in chunks', 'transfer-encoding: chunked\r\n\r\n5\r\n{"a'],
    ['not at all', 'content-length: 100\r\n\r\n'],
  ])('a body that stands still: 408 as JSON, %s', async (_, text) => {
    const url = await start({ bodyTimeoutMs: 150 });
    const answer = await answerTo(url, `${HEAD}${text}`);
    expect([answer.status, codeOf(answer.body)]).toEqual([408, 'request_timeout']);
    expect(lines()).toContain('The request did not arrive in time.');
  });

  it('a body that trickles is taken, until the whole time is over', async () => {
    const trickle = async (): Promise<number> => {
      const socket = client(`${HEAD}connection: close\r\ncontent-length: ${BODY.length}\r\n\r\n`);
      const heard = untilClosed(socket);
      for (const byte of BODY) {
        socket.write(byte);
        await pause(20);
      }
      return answersIn(await heard)[0]!.status;
    };
    await start({ bodyTimeoutMs: 300 });
    expect(await trickle()).toBe(200);
    await server.close(0);
    await start({ bodyTimeoutMs: 300, requestTimeoutMs: 250 });
    expect(await trickle()).toBe(408);
  });

  it('is let be where there is no limit', async () => {
    await start({ bodyTimeoutMs: 0, headerTimeoutMs: 0, requestTimeoutMs: 0, writeTimeoutMs: 0 });
    const socket = client(`${HEAD}connection: close\r\ncontent-length: ${BODY.length}\r\n\r\n`);
    await pause(400);
    const heard = untilClosed(socket);
    socket.write(BODY);
    expect(answersIn(await heard)[0]!.status).toBe(200);
  });
});

describe('a client that does not read', () => {
  /** More than the buffers of two sockets take. */
  const long = { choices: [Array.from({ length: 64 }, () => 'x'.repeat(500_000))] };

  it.each([
    ['one large answer', BODY],
    ['a stream', STREAM],
  ])('%s: loses its connection, and its text is let go of', async (_, body) => {
    const url = await start({ writeTimeoutMs: 300 });
    engine.script = long;
    const socket = client(post(body));
    socket.pause();
    await expect.poll(lines, { timeout: 20_000 }).toContain('a client did not take its answer');
    await expect.poll(() => engine.open.size).toBe(0);
    expect(logged.find(({ msg }) => msg === 'a client did not take its answer')?.client).toMatch(
      /127\.0\.0\.1/,
    );
    expect((await fetch(`${url}/health`)).status).toBe(200);
  });

  it('many answers, though it goes on asking', async () => {
    await start({ writeTimeoutMs: 300 });
    engine.script = long;
    const socket = client(post(BODY));
    socket.pause();
    const asking = setInterval(() => socket.write('GET /hea'), 50);
    await expect.poll(lines, { timeout: 20_000 }).toContain('a client did not take its answer');
    clearInterval(asking);
  });

  it('but a few bytes now and then loses its connection too', async () => {
    await start({ writeTimeoutMs: 1000 });
    engine.script = long;
    const socket = client(post(BODY));
    const reading = setInterval(() => socket.read(1), 100);
    await expect.poll(lines, { timeout: 20_000 }).toContain('a client did not take its answer');
    clearInterval(reading);
  });

  it('but slowly gets all of it', async () => {
    await start({ writeTimeoutMs: 600 });
    engine.script = { choices: [Array.from({ length: 64 }, () => 'x'.repeat(100_000))] };
    const socket = client(post(BODY, 'connection: close\r\n'));
    let heard = 0;
    socket.on('data', (part: Buffer) => {
      heard += part.length;
      socket.pause();
      setTimeout(() => socket.resume(), 15);
    });
    await once(socket, 'end');
    expect(heard).toBeGreaterThan(6_400_000);
    expect(lines()).not.toContain('a client did not take its answer');
  });
});

describe('a client that closes its half', () => {
  const slowly = { choices: [Array.from({ length: 300 }, (_, i) => `w${i} `)] };
  it('gets its answer', async () => {
    const url = await start();
    engine.script = slowly;
    const answer = await answerTo(url, post(BODY), true);
    expect(answer.status).toBe(200);
    expect(JSON.parse(answer.body)).toMatchObject({
      choices: [{ message: { content: expect.stringContaining('w299') } }],
    });
  });

  it('gets its answer after a time in which it was asked whether it is there', async () => {
    await start();
    engine.script = { choices: [['a', 'b']], endless: true };
    const socket = client('');
    const heard = untilClosed(socket);
    socket.end(post(BODY));
    await expect.poll(() => engine.open.size).toBe(1);
    await pause(1200);
    for (const stream of engine.open) stream.end('stop', null);
    const answer = answersIn(await heard)[0]!;
    expect(answer.status).toBe(200);
    expect(answer.body).toContain('"content"');
  });

  it('gets its stream', async () => {
    const url = await start();
    engine.script = slowly;
    const text = await exchange(url, post(STREAM), true);
    expect(text).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
    expect(text).toContain('w299');
    expect(text).toContain('data: [DONE]');
  });

  it('gets an error, and the answers to all it asked', async () => {
    const url = await start();
    engine.script = slowly;
    expect((await answerTo(url, post('{nope'), true)).status).toBe(400);
    expect((await answerTo(url, 'GET /nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n', true)).status).toBe(404);
    const answers = answersIn(await exchange(url, post(BODY) + HEALTH + post(BODY), true));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
  });

  it.each([
    ['an answer', BODY],
    ['a stream', STREAM],
  ])('and then the other is found out: %s is given up', async (_, body) => {
    await start();
    engine.script = { choices: [['a', 'b']], endless: true };
    const socket = client(post(body));
    await expect.poll(() => engine.open.size).toBe(1);
    if (body === STREAM) await once(socket, 'data');
    socket.destroy();
    await expect.poll(() => engine.open.size, { timeout: 5000 }).toBe(0);
  });
});

describe('connections', () => {
  const statusOf = async (): Promise<number> => answersIn(await exchange(server.url, LAST_HEALTH))[0]!.status;
  const held = async (count: number): Promise<Socket[]> =>
    Promise.all(
      Array.from({ length: count }, async () => {
        const socket = client(HEALTH);
        await once(socket, 'data');
        return socket;
      }),
    );

  it.each([
    ['as a whole', { maxConnections: 3 }, '--max-connections'],
    ['from an address', { maxConnectionsPerAddress: 3 }, '--max-connections-per-address'],
  ])('are limited %s: one more gets a 503, and room is made by one that goes', async (_, options, flag) => {
    const url = await start(options);
    const open = await held(3);
    const answer = await answerTo(url, LAST_HEALTH);
    expect([answer.status, codeOf(answer.body)]).toEqual([503, 'too_many_connections']);
    expect(answer.body).toContain(flag);
    expect(Number(answer.headers['retry-after'])).toBeGreaterThan(0);
    // One that asks nothing is not kept, and those that were there are served.
    expect(await untilClosed(client(''))).toBe('');
    open[0]!.write(HEALTH);
    expect(String((await once(open[0]!, 'data'))[0])).toContain('200 OK');
    open[1]!.destroy();
    await expect.poll(statusOf).toBe(200);
  });

  it('are closed when they idle, and kept as long as they do not', async () => {
    await start({ keepAliveTimeoutMs: 400 });
    const [idle, busy] = (await held(2)) as [Socket, Socket];
    const gone = once(idle, 'end');
    const asking = setInterval(() => busy.write(HEALTH), 50);
    await gone;
    clearInterval(asking);
    expect(busy.readableEnded).toBe(false);
  });

  it('take requests in a row, and answer in their order', async () => {
    const url = await start();
    engine.script = { choices: [Array.from({ length: 20 }, () => 'word ')] };
    const unknown = 'GET /nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n';
    const answers = answersIn(await exchange(url, post(BODY) + unknown + post(BODY) + LAST_HEALTH));
    expect(answers.map(({ status }) => status)).toEqual([200, 404, 200, 200]);
  });

  it('have limits that are numbers', async () => {
    await start();
    for (const wrong of [-1, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 40])
      await expect(listen({ engine, port: 0, writeTimeoutMs: wrong })).rejects.toMatchObject({
        code: 'invalid-option',
      });
  });
});
