/** Every answer is named, whatever it is, and the log knows it by that name. */
import { describe, expect, it } from 'vitest';
import { answerTo, post as rawPost } from './raw-client.js';
import { BODY, closeBehindEach, engine, logged, server, start } from './raw-server.js';

const OWN = /^req-[\da-f]{32}$/;
const JSON_TYPE = { 'content-type': 'application/json' };

interface Asked {
  readonly path?: string;
  readonly method?: string;
  readonly body?: string;
  readonly headers?: Record<string, string>;
}

const ask = async ({ path = '/v1/chat/completions', ...init }: Asked): Promise<Response> =>
  fetch(`${server.url}${path}`, {
    ...init,
    ...(init.body === undefined ? {} : { method: 'POST', headers: { ...JSON_TYPE, ...init.headers } }),
  });

describe('the name of a request', () => {
  closeBehindEach();

  it('is that of the answer where there is one, whole or streamed', async () => {
    await start();
    const whole = await ask({ body: BODY });
    expect(whole.headers.get('x-request-id')).toBe(((await whole.json()) as { id: string }).id);
    const stream = await ask({ body: JSON.stringify({ ...JSON.parse(BODY), stream: true }) });
    const [first = ''] = (await stream.text()).split('\n');
    expect(stream.headers.get('x-request-id')).toBe(JSON.parse(first.slice('data: '.length)).id);
  });

  it('is on all other answers too, and in the log of what was refused', async () => {
    await start({ apiKey: 'secret', bodyLimit: 1000, corsOrigin: 'http://page.example' });
    const key = { authorization: 'Bearer secret' };
    const all: readonly (readonly [number, Asked])[] = [
      [400, { body: '{', headers: key }],
      [400, { body: '{"messages": []}', headers: key }],
      [401, { body: BODY }],
      [404, { path: '/v1/responses', body: BODY, headers: key }],
      [405, { headers: key }],
      [413, { body: ' '.repeat(2000), headers: key }],
      [415, { body: BODY, headers: { ...key, 'content-encoding': 'zstd' } }],
      [403, { path: '/v1/models', headers: { ...key, origin: 'http://other.example' } }],
      [200, { path: '/health' }],
      [200, { path: '/v1/models', headers: key }],
      [200, { path: '/v1/models', method: 'HEAD', headers: key }],
      [
        204,
        {
          method: 'OPTIONS',
          headers: { origin: 'http://page.example', 'access-control-request-method': 'POST' },
        },
      ],
    ];
    const refused: unknown[] = [];
    for (const [status, asked] of all) {
      const response = await ask(asked);
      const id = response.headers.get('x-request-id');
      expect([status, response.status, id]).toEqual([status, status, expect.stringMatching(OWN)]);
      if (status >= 400) refused.push(id);
    }
    expect(logged.flatMap(({ id }) => (id === undefined ? [] : [id]))).toEqual(refused);
  });

  it.each([
    [400, 'no HTTP at all\r\n\r\n'],
    [400, 'GET /health HTTP/1.1\r\n\r\n'],
    [400, 'GET nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n'],
    [405, 'CONNECT example.com:80 HTTP/1.1\r\nhost: localhost\r\n\r\n'],
    [417, 'POST / HTTP/1.1\r\nhost: localhost\r\nexpect: tea\r\nconnection: close\r\n\r\n'],
    [431, `GET / HTTP/1.1\r\nhost: localhost\r\nx: ${'x'.repeat(20_000)}\r\n\r\n`],
  ])('is on the answer to what is no request (%i)', async (status, text) => {
    await start();
    const answer = await answerTo(server.url, text, true);
    const id = answer.headers['x-request-id'];
    expect([answer.status, id]).toEqual([status, expect.stringMatching(OWN)]);
    expect(logged.map((line) => line.id)).toEqual([id]);
  });

  it('is the one that the client, or a proxy, gives', async () => {
    await start();
    const given = 'Root=1-67891233-abcdef012345678912345678';
    const named = { headers: { 'x-request-id': given } };
    const whole = await ask({ body: BODY, ...named });
    const { id } = (await whole.json()) as { id: string };
    for (const response of [whole, await ask({ body: '{', ...named }), await ask({ path: '/no', ...named })])
      expect(response.headers.get('x-request-id')).toBe(given);
    // Both names find the line of an answer.
    expect(logged.map((line) => [line.id, line.requestId])).toEqual([
      [id, given],
      [given, given],
      [given, given],
    ]);
    expect(engine.requests.map(({ requestId }) => requestId)).toEqual([id]);
    const text = `POST / HTTP/1.1\r\nhost: a b\r\nx-request-id: ${given}\r\n\r\n`;
    expect((await answerTo(server.url, text, true)).headers['x-request-id']).toBe(given);
  });

  it.each(['two words', 'x'.repeat(129), 'é', 'a, b'])('is not one such as %j', async (given) => {
    await start();
    const text = rawPost('{', `x-request-id: ${given}\r\nconnection: close\r\n`);
    const { headers } = await answerTo(server.url, text);
    expect(headers['x-request-id']).toMatch(OWN);
    expect(JSON.stringify(logged)).not.toContain(given);
  });
});
