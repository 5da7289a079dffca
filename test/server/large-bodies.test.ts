/** Bodies that take long to read: on a thread for texts, with the answers that small ones get, and nobody waits for them. */
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import { listen, type RunningServer } from '../../src/server/index.js';

const MODEL = new URL('../../models/demo-text', import.meta.url).pathname;
/** The engine's thread with a device that computes nothing. */
const workerScript = new URL('../../bench/instant-worker.mjs', import.meta.url);
const BODY_MEMORY = 4_000_000;

interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly body: {
    usage?: { prompt_tokens: number };
    error?: { code: string; param: string; message: string };
  };
}

/** White space that makes a body a large one. */
const padded = (body: object): string => JSON.stringify(body) + ' '.repeat(9000);

describe('large bodies', () => {
  let engine: Engine;
  let server: RunningServer;
  const logged: { level: number; err?: unknown }[] = [];
  beforeAll(async () => {
    engine = await Engine.load(MODEL, { maxContext: 4096, maxRows: 8 }, { workerScript });
    const log = pino({ level: 'info' }, { write: (line: string) => logged.push(JSON.parse(line)) });
    server = await listen({ engine, log, port: 0, bodyMemory: BODY_MEMORY });
  });
  afterAll(async () => {
    await server.close(1000);
    await engine.close();
  });
  const send = async (path: string, body: object | string, init: RequestInit = {}): Promise<Answer> => {
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    const response = await fetch(`${server.url}${path}`, { method: 'POST', body: text, ...init });
    return {
      status: response.status,
      headers: response.headers,
      body: (await response.json()) as Answer['body'],
    };
  };
  const chat = '/v1/chat/completions';
  const raw = '/v1/completions';
  const one = { max_tokens: 1, ignore_eos: true };
  const words = (count: number): string => Array.from({ length: count }, (_, i) => `w${i % 97}`).join(' ');

  it('become the prompts that they are: conversations, texts, ids, several at once', async () => {
    const text = words(1300);
    const messages = [
      { role: 'developer', content: 'Be brief.' },
      { role: 'user', content: text },
    ];
    const rendered = engine.renderChat([{ role: 'system', content: 'Be brief.' }, messages[1]!]);
    const chatTokens = engine.tokenize(rendered, { addSpecialTokens: false }).length;
    const textTokens = engine.tokenize(text).length;
    for (const [path, body, tokens] of [
      [chat, { messages }, chatTokens],
      [raw, { prompt: text }, textTokens],
      [raw, { prompt: [text, text, 'a'] }, 2 * textTokens + engine.tokenize('a').length],
      [raw, { prompt: Array(3000).fill(300) }, 3000],
      [raw, { prompt: [Array(2000).fill(300), [7]] }, 2001],
    ] as const) {
      const answer = await send(path, padded({ ...body, ...one }));
      expect([answer.status, answer.body.usage?.prompt_tokens]).toEqual([200, tokens]);
    }
  });

  it('stream as small ones do', async () => {
    const body = {
      messages: [{ role: 'user', content: words(1200) }],
      stream: true,
      max_tokens: 3,
      ignore_eos: true,
    };
    const response = await fetch(`${server.url}${chat}`, { method: 'POST', body: padded(body) });
    const events = (await response.text()).trim().split('\n\n');
    expect(response.headers.get('content-type'), events[0]).toContain('text/event-stream');
    expect(events.at(-1)).toBe('data: [DONE]');
    expect(events.length).toBeGreaterThan(2);
  });

  const user = (content: unknown) => ({ messages: [{ role: 'user', content }] });
  it.each<[string, string, object | string, number, string, string?]>([
    ['too long', chat, user(words(9000)), 400, 'context_length_exceeded', 'messages'],
    ['far too long', chat, user('x1'.repeat(450_000)), 400, 'context_length_exceeded', 'messages'],
    ['nothing but spaces', raw, { prompt: ' '.repeat(900_000) }, 400, 'context_length_exceeded', 'prompt'],
    ['one of several', raw, { prompt: ['a', words(9000)] }, 400, 'context_length_exceeded', 'prompt'],
    ['no JSON', chat, `{"messages": ${'['.repeat(9000)}`, 400, 'invalid_json'],
    [
      'wrong messages',
      chat,
      { messages: Array(90_000).fill({}) },
      400,
      'invalid_parameter',
      'messages[0].role',
    ],
    ['wrong prompts', raw, { prompt: Array(90_000).fill([]) }, 400, 'invalid_parameter', 'prompt'],
    ['a wrong field', chat, padded({ ...user('Hi'), top_p: 3 }), 400, 'invalid_parameter', 'top_p'],
    [
      'a field that only the engine can judge',
      chat,
      padded({ ...user('Hi'), stop_token_ids: [9_999_999] }),
      400,
      'token_unknown',
      'stop_token_ids',
    ],
    ['another model', chat, padded({ ...user('Hi'), model: 'other' }), 404, 'model_not_found', 'model'],
    ['marks without end', chat, user(`a${'\u0301\u0316'.repeat(60_000)}`), 400, 'tokenizer_failed'],
  ])('are refused as small ones are: %s', async (_, path, body, status, code, param) => {
    const answer = await send(path, body);
    expect([answer.status, answer.body.error?.code]).toEqual([status, code]);
    if (param !== undefined) expect(answer.body.error?.param).toBe(param);
  });

  it('that are nested deeper than threads can copy are refused by field, and the next one is answered', async () => {
    const nested = (levels: number): string => `${'{"items":'.repeat(levels)}{}${'}'.repeat(levels)}`;
    const messages = '"messages":[{"role":"user","content":"Hi"}]';
    for (const [field, value] of [
      ['json_schema', nested(3000)],
      ['response_format', `{"type":"json_schema","json_schema":{"name":"x","schema":${nested(9000)}}}`],
      ['structured_outputs', `{"json":${nested(2000)}}`],
      ['chat_template_kwargs', nested(3000)],
      ['tools', `[{"type":"function","function":{"name":"f","parameters":${nested(3000)}}}]`],
      ['metadata', `${'['.repeat(9000)}${']'.repeat(9000)}`],
    ] as const) {
      const answer = await send(chat, `{${messages},"${field}":${value}}`);
      expect([answer.status, answer.body.error?.code, answer.body.error?.param]).toEqual([
        400,
        'nested_too_deeply',
        field,
      ]);
    }
    expect((await send(chat, padded({ ...user('Hi'), ...one }))).status).toBe(200);
  });

  it('beyond a number of bytes get a 503 that says when to come again, and small ones are answered', async () => {
    // No body comes of these: each has room as large as it says it is.
    const controller = new AbortController();
    const open = (length: number): Promise<Response> =>
      fetch(`${server.url}${chat}`, {
        method: 'POST',
        headers: { 'x-length': String(length) },
        body: new ReadableStream({
          start: (stream) => stream.enqueue(new Uint8Array(length).fill(0x20)),
        }),
        duplex: 'half',
        signal: controller.signal,
      } as RequestInit);
    const held = open(1_000_000);
    held.catch(() => {});
    let refused: Answer | null = null;
    for (let i = 0; i < 200 && refused?.status !== 503; i++) {
      await new Promise((resolve) => setTimeout(resolve, 10));
      refused = await send(chat, user(' '.repeat(1_000_000)));
    }
    expect([refused!.status, refused!.body.error?.code]).toEqual([503, 'bodies_in_flight']);
    expect(Number(refused!.headers.get('retry-after'))).toBeGreaterThan(0);
    expect((await send(chat, { ...user('Hi'), ...one })).status).toBe(200);
    expect((await send(chat, { ...user(words(1300)), ...one })).status).toBe(200);
    controller.abort();
    for (let i = 0; i < 200 && refused!.status === 503; i++) {
      await new Promise((resolve) => setTimeout(resolve, 10));
      refused = await send(chat, user(' '.repeat(1_000_000)));
    }
    expect(refused!.status).toBe(400);
  });

  it('of clients that went away are let go of', async () => {
    const controller = new AbortController();
    const body = JSON.stringify(user(words(150_000)));
    const gone = Array.from({ length: 2 }, () =>
      fetch(`${server.url}${chat}`, { method: 'POST', body, signal: controller.signal }).catch(
        (error: unknown) => error,
      ),
    );
    controller.abort();
    for (const one of gone) expect(((await one) as Error).name).toBe('AbortError');
    expect((await send(chat, { ...user(words(1300)), ...one })).status).toBe(200);
  });

  it('leave no error in the log', () => {
    expect(logged.filter(({ level, err }) => level >= 50 || err !== undefined)).toEqual([]);
  });
});
