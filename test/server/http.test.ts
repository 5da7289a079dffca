import { connect, type Socket } from 'node:net';
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { checkAddress, listen } from '../../src/server/index.js';
import { untilClosed } from './raw-client.js';
import { question, type Serving, serveDemo, untilIdle } from './serving.js';

const story = {
  messages: question('Tell me a story about a dragon.'),
  temperature: 0,
  max_tokens: 400,
  ignore_eos: true,
};

/** A socket that need not behave as HTTP wants it. */
function open(url: string): Socket {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  socket.on('error', () => {});
  return socket;
}

/** All that the server says on a socket until it says what is awaited, or closes. */
async function heard(socket: Socket, awaited: RegExp): Promise<string> {
  let text = '';
  for await (const chunk of socket.iterator({ destroyOnReturn: false })) {
    text += String(chunk);
    if (awaited.test(text)) break;
  }
  return text;
}

/** Sends raw bytes and gives the socket: a client that need not behave. */
function rawPost(url: string, body: unknown): Socket {
  const { hostname } = new URL(url);
  const text = JSON.stringify(body);
  const socket = open(url);
  socket.write(
    `POST /v1/chat/completions HTTP/1.1\r\nhost: ${hostname}\r\nauthorization: Bearer secret\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(text)}\r\n\r\n${text}`,
  );
  return socket;
}

describe('the server at its edges', () => {
  let serving: Serving;
  beforeAll(async () => {
    serving = await serveDemo(
      { maxRows: 2, maxQueue: 2 },
      { apiKey: 'secret', adminKey: 'master', bodyLimit: 100_000, keepAliveMs: 20 },
    );
  });
  afterAll(async () => {
    await serving.close();
  });
  const key = { authorization: 'Bearer secret', 'content-type': 'application/json' };
  const send = (body: unknown, path = '/v1/chat/completions'): Promise<Response> =>
    serving.post(path, body, { headers: key });

  it('wants the key everywhere but at /health', async () => {
    expect((await fetch(`${serving.url}/health`)).status).toBe(200);
    for (const path of ['/v1/models', '/v1/models/demo-text']) {
      expect((await fetch(`${serving.url}${path}`)).status).toBe(401);
      expect(
        (await fetch(`${serving.url}${path}`, { headers: { authorization: 'Bearer wrong' } })).status,
      ).toBe(401);
      expect((await fetch(`${serving.url}${path}`, { headers: key })).status).toBe(200);
    }
    const refused = await serving.post('/v1/chat/completions', story);
    expect(refused.status).toBe(401);
    expect(await refused.json()).toMatchObject({
      error: { type: 'authentication_error', code: 'invalid_api_key' },
    });
  });

  it('answers bad bodies with 400, huge ones with 413, unknown places with 404 and 405', async () => {
    expect((await send('{nope')).status).toBe(400);
    expect((await send('[]')).status).toBe(400);
    expect((await send('')).status).toBe(400);
    expect((await send({})).status).toBe(400);
    expect((await send({ messages: [] })).status).toBe(400);
    expect((await send({ messages: [{ role: 'wizard', content: 'x' }] })).status).toBe(400);
    expect(
      (
        await send({
          messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'x' } }] }],
        })
      ).status,
    ).toBe(400);
    expect((await send({ messages: question('x'.repeat(200_000)) })).status).toBe(413);
    expect((await send({}, '/v1/nowhere')).status).toBe(404);
    const wrong = await fetch(`${serving.url}/v1/chat/completions`, { headers: key });
    expect([wrong.status, wrong.headers.get('allow')]).toEqual([405, 'POST']);
    expect((await send({ prompt: [] }, '/v1/completions')).status).toBe(400);
    expect((await send({ prompt: [99999] }, '/v1/completions')).status).toBe(400);
    expect((await send({ prompt: 'x', suffix: 'y' }, '/v1/completions')).status).toBe(400);
    const body = (await (await send({ messages: question('Hi'), top_p: 3 })).json()) as {
      error: Record<string, unknown>;
    };
    expect(body.error).toMatchObject({
      type: 'invalid_request_error',
      param: 'top_p',
      code: 'invalid_parameter',
    });
    expect(String(body.error.message)).toMatch(/0 to 1/);
  });

  it('takes compressed bodies within the limit, and says what it takes', async () => {
    const chat = JSON.stringify({ messages: question('What is the capital of Japan?'), temperature: 0 });
    const encoded = (bytes: Uint8Array<ArrayBuffer>, encoding: string): Promise<Response> =>
      fetch(`${serving.url}/v1/chat/completions`, {
        method: 'POST',
        headers: { ...key, 'content-encoding': encoding },
        body: bytes,
      });
    for (const [encoding, bytes] of [
      ['gzip', gzipSync(chat)],
      ['deflate', deflateSync(chat)],
      ['br', brotliCompressSync(chat)],
    ] as const)
      expect(await (await encoded(bytes, encoding)).text(), encoding).toContain('Tokyo');
    const bomb = gzipSync(JSON.stringify({ messages: question('x'.repeat(50_000_000)) }));
    expect(bomb.length).toBeLessThan(100_000);
    expect((await encoded(bomb, 'gzip')).status).toBe(413);
    const unknown = await encoded(gzipSync(chat), 'zstd');
    expect([unknown.status, unknown.headers.get('accept-encoding')]).toEqual([415, 'gzip, deflate, br']);
    expect((await encoded(Buffer.from(chat), 'gzip')).status).toBe(400);
    const latin = Buffer.from(chat.replace('Japan', 'Perú'), 'latin1');
    expect(await (await encoded(latin, 'identity')).json()).toMatchObject({
      error: { code: 'invalid_encoding', type: 'invalid_request_error' },
    });
    expect((await fetch(`${serving.url}/health`)).status).toBe(200);
  });

  it('refuses with 429 and Retry-After when rows and queue are full, and recovers', async () => {
    const running = Array.from({ length: 4 }, () => rawPost(serving.url, { ...story, stream: true }));
    await until(async () => {
      const stats = await serving.engine.stats();
      return stats.queued + stats.prefilling + stats.decoding === 4;
    });
    const refused = await send(story);
    expect(refused.status).toBe(429);
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
    for (const socket of running) socket.destroy();
    await untilIdle(serving.engine);
    expect((await send({ messages: question('What is the capital of Japan?'), temperature: 0 })).status).toBe(
      200,
    );
  });

  it('refuses with 400 what rows and queue can never hold, however many prompts it is spread over', async () => {
    const many = { prompt: ['a', 'b', 'c'], n: 2, max_tokens: 1 };
    for (const [body, param] of [
      [many, 'prompt'],
      [{ ...many, n: 1, best_of: 2 }, 'prompt'],
      [{ ...many, prompt: ['a', 'b', 'c', 'd', 'e'], n: 1 }, 'prompt'],
      [{ ...many, prompt: 'a', n: 5 }, 'n'],
      [{ ...many, prompt: 'a', n: 1, best_of: 5 }, 'best_of'],
    ] as const) {
      const response = await send(body, '/v1/completions');
      expect(response.status).toBe(400);
      const { error } = (await response.json()) as { error: { param: string; message: string } };
      expect(error.param).toBe(param);
      expect(error.message).toMatch(/rows and queue take 4/);
    }
    const most = await send({ ...many, prompt: ['a', 'b'] }, '/v1/completions');
    expect(((await most.json()) as { choices: unknown[] }).choices).toHaveLength(4);
  });

  it('frees the row of a client that vanishes, streaming or not', async () => {
    for (const stream of [true, false]) {
      const socket = rawPost(serving.url, { ...story, stream });
      await until(async () => (await serving.engine.stats()).decoding === 1);
      socket.destroy();
      const stats = await untilIdle(serving.engine);
      expect(stats.blocksUsed).toBe(0);
    }
  });

  it('does not let a client that reads nothing hold up another', async () => {
    const slow = rawPost(serving.url, { ...story, max_tokens: 3000, stream: true });
    slow.pause();
    await until(async () => (await serving.engine.stats()).decoding === 1);
    const answer = await send({ messages: question('What is the capital of Japan?'), temperature: 0 });
    expect(JSON.stringify(await answer.json())).toContain('Tokyo');
    slow.destroy();
    await untilIdle(serving.engine);
  });

  it('keeps a silent stream alive with comments', async () => {
    // Both rows are busy: the third request waits, and hears so.
    const busy = [1, 2].map(() => rawPost(serving.url, { ...story, max_tokens: 2000, stream: true }));
    await until(async () => (await serving.engine.stats()).decoding === 2);
    const response = await send({ ...story, max_tokens: 2, stream: true });
    const reader = response.body!.getReader();
    let seen = '';
    while (!seen.includes(': keep-alive')) {
      const { value, done } = await reader.read();
      if (done) break;
      seen += new TextDecoder().decode(value);
    }
    expect(seen).toContain(': keep-alive');
    for (const socket of busy) socket.destroy();
    let rest = '';
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      rest += new TextDecoder().decode(value);
    }
    expect(rest).toContain('data: [DONE]');
    await untilIdle(serving.engine);
  });

  it('frees the row of a client that sent its body in chunks and vanishes', async () => {
    const socket = open(serving.url);
    const text = JSON.stringify({ ...story, stream: true });
    socket.write(
      'POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer secret\r\ntransfer-encoding: chunked\r\n\r\n',
    );
    for (const piece of [text.slice(0, 9), text.slice(9)])
      socket.write(`${piece.length.toString(16)}\r\n${piece}\r\n`);
    socket.write('0\r\n\r\n');
    await until(async () => (await serving.engine.stats()).decoding === 1);
    socket.destroy();
    await untilIdle(serving.engine);
  });

  it('takes several requests over one connection, refused ones too', async () => {
    const socket = open(serving.url);
    const head = (path: string, more = ''): string =>
      `GET ${path} HTTP/1.1\r\nhost: x\r\n${more}authorization: Bearer secret\r\n\r\n`;
    socket.write(head('/v1/models'));
    expect(await heard(socket, /"object":"list".*\}$/s)).toMatch(/^HTTP\/1.1 200/);
    socket.write(head('/nowhere'));
    expect(await heard(socket, /\}\}$/)).toMatch(/^HTTP\/1.1 404/);
    const body = JSON.stringify({ ...story, max_tokens: 2, nonsense: 1 });
    socket.write(
      `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer secret\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    );
    expect(await heard(socket, /\}\}$/)).toMatch(/^HTTP\/1.1 400/);
    socket.write(head('/health'));
    expect(await heard(socket, /\}$/)).toMatch(/^HTTP\/1.1 200.*keep-alive/s);
    socket.destroy();
  });

  it('is not thrown by requests that are none', async () => {
    for (const raw of [
      'GET /health HTTP/1.1\r\n\r\n',
      'GET /health HTTP/1.1\r\nhost: a b\r\n\r\n',
      'GET \\health HTTP/1.1\r\nhost: x\r\n\r\n',
      'hello\r\n\r\n',
      'POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer secret\r\ncontent-length: 10\r\n\r\n{"a',
    ]) {
      const socket = open(serving.url);
      if (raw.startsWith('POST')) {
        socket.write(raw);
        await new Promise((resolve) => setTimeout(resolve, 30));
        socket.destroy();
      } else {
        socket.write(raw);
        expect(await heard(socket, /\r\n\r\n/), raw).toMatch(/^HTTP\/1.1 400/);
        socket.destroy();
      }
    }
    expect((await fetch(`${serving.url}/health`)).status).toBe(200);
  });

  it('refuses a tool nested without end, and lives', async () => {
    const nested = `${'{"a":'.repeat(15_000)}1${'}'.repeat(15_000)}`;
    const tool = `{"type":"function","function":{"name":"f","parameters":${nested}}}`;
    const response = await send(`{"messages":[{"role":"user","content":"Hi"}],"tools":[${tool}]}`);
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error: { code: 'nested_too_deeply', param: 'tools' } });
    expect((await fetch(`${serving.url}/health`)).status).toBe(200);
  });

  it('takes replayed calls without arguments, and names the message whose arguments are no JSON', async () => {
    const replay = (args: unknown): Promise<Response> => {
      const call = { id: 'c', type: 'function', function: { name: 'f', arguments: args } };
      const messages = [
        { role: 'user', content: 'Hi' },
        { role: 'assistant', content: null, tool_calls: [call] },
        { role: 'tool', tool_call_id: 'c', content: '1' },
      ];
      return send(JSON.stringify({ messages, max_tokens: 1 }));
    };
    for (const args of ['', null, '{}']) expect((await replay(args)).status, String(args)).toBe(200);
    const response = await replay('{"city": ');
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({
      error: { code: 'invalid_messages', param: 'messages[1].tool_calls[0].function.arguments' },
    });
  });

  it('counts what it does in /metrics', async () => {
    const text = await (
      await fetch(`${serving.url}/metrics`, { headers: { authorization: 'Bearer master' } })
    ).text();
    for (const name of [
      'kvant_requests_total',
      'kvant_queued_sequences',
      'kvant_running_rows',
      'kvant_completion_tokens_total',
      'kvant_time_to_first_token_seconds_bucket',
      'kvant_inter_token_seconds_bucket',
      'kvant_kv_blocks_used',
    ]) {
      expect(text).toContain(name);
    }
    expect(text).toMatch(/kvant_requests_total\{route="chat",outcome="ok"\} [1-9]/);
    expect(text).toMatch(/kvant_requests_total\{route="chat",outcome="cancelled"\} [1-9]/);
    expect(text).toMatch(/kvant_completion_tokens_total [1-9]/);
    expect(text).toMatch(/kvant_kv_blocks_used 0/);
    const { memory } = serving.engine.info;
    expect(text).toContain(`kvant_memory_bytes{part="weights"} ${memory.weights}\n`);
    expect(text).toContain(`kvant_memory_bytes{part="cache",group="0"} ${memory.caches[0]}\n`);
    expect(Number(/kvant_device_peak_bytes (\d+)/.exec(text)![1])).toBeGreaterThanOrEqual(memory.total);
  });

  it('says when the port is taken', async () => {
    await expect(
      listen({ engine: serving.engine, log: pino({ level: 'silent' }), port: serving.server.port }),
    ).rejects.toMatchObject({
      code: 'address-in-use',
    });
  });

  it.each(['::1', '[::1]'])('listens on %s, an address of IPv6', async (host) => {
    const server = await listen({ engine: serving.engine, host, port: 0 });
    expect(server.url).toBe(`http://[::1]:${server.port}`);
    expect((await fetch(`${server.url}/health`)).status).toBe(200);
    const socket = connect(server.port, '::1');
    // HTTP/1.0 need not say which host it asks for.
    socket.end('GET /health HTTP/1.0\r\n\r\n');
    expect(await untilClosed(socket)).toMatch(/^HTTP\/1\.1 200 /);
    await expect(checkAddress(host, server.port)).rejects.toMatchObject({
      code: 'address-in-use',
      message: expect.stringContaining(`${server.port}`),
    });
    await server.close(0);
    await checkAddress(host, server.port);
  });
});

describe('shutting down', () => {
  it('lets a stream finish', async () => {
    const serving = await serveDemo();
    const response = await serving.post('/v1/chat/completions', { ...story, max_tokens: 60, stream: true });
    const text = response.text();
    await until(async () => (await serving.engine.stats()).decoding === 1);
    await serving.server.close(30_000);
    expect(await text).toContain('data: [DONE]');
    await serving.engine.close();
  });

  it('lets queued requests run, takes no new ones, and closes connections that idle', async () => {
    const serving = await serveDemo({ maxRows: 1 });
    const idle = open(serving.url);
    idle.write('GET /health HTTP/1.1\r\nhost: x\r\n\r\n');
    await heard(idle, /\}$/);
    const post = (stream: boolean) =>
      serving.post('/v1/chat/completions', { ...story, max_tokens: 100, stream });
    const answers = [true, false, true].map(async (stream) => (await post(stream)).text());
    await until(async () => (await serving.engine.stats()).queued === 2);
    const closed = serving.server.close(30_000);
    const refused = await post(true);
    expect([refused.status, refused.headers.get('connection')]).toEqual([503, 'close']);
    expect(await refused.json()).toMatchObject({ error: { code: 'shutting_down' } });
    for (let i = 0; i < 2; i++) {
      const health = await fetch(`${serving.url}/health`);
      expect([health.status, health.headers.get('connection')]).toEqual([503, 'close']);
      expect(await health.json()).toMatchObject({ status: 'stopping', model: serving.engine.info.name });
    }
    for (const answer of await Promise.all(answers)) expect(answer).toContain('"finish_reason":"length"');
    await closed;
    await expect(fetch(`${serving.url}/health`)).rejects.toThrow();
    expect(await heard(idle, /never/)).toBe('');
    await untilIdle(serving.engine);
    await serving.engine.close();
  });

  it('ends what takes longer than the grace, and says so', async () => {
    const serving = await serveDemo({ maxRows: 1 });
    const answers = [true, false, true].map(async (stream) => {
      const response = await serving.post('/v1/chat/completions', { ...story, max_tokens: 3500, stream });
      return [response.status, await response.text()] as const;
    });
    // One that reads nothing must not hold up the end.
    const deaf = rawPost(serving.url, { ...story, max_tokens: 3500, stream: true });
    deaf.pause();
    await until(async () => (await serving.engine.stats()).queued === 3);
    await serving.server.close(50);
    const ended = await Promise.all(answers);
    expect(ended.map(([status]) => status)).toEqual([200, 503, 200]);
    for (const [, text] of ended) expect(text).toContain('"code":"shutting_down"');
    await untilIdle(serving.engine);
    await serving.engine.close();
    deaf.destroy();
  });

  it('does not wait for connections that have not asked for anything', async () => {
    const serving = await serveDemo();
    const silent = open(serving.url);
    const begun = open(serving.url);
    begun.write('POST /v1/chat/completions HT');
    await fetch(`${serving.url}/health`);
    const late = new Promise((resolve) => setTimeout(resolve, 20_000, 'late').unref());
    expect(await Promise.race([serving.server.close(60_000), late])).toBeUndefined();
    for (const socket of [silent, begun]) expect(await heard(socket, /never/)).toBe('');
    await serving.engine.close();
  });

  it('may be told twice', async () => {
    const serving = await serveDemo();
    await Promise.all([serving.server.close(), serving.server.close()]);
    await serving.engine.close();
  });
});

async function until(condition: () => Promise<boolean>): Promise<void> {
  for (let i = 0; i < 1000; i++) {
    if (await condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  throw new Error('the condition never came');
}
