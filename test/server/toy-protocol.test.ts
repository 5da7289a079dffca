/** The walk "add a protocol" of docs/extending.md: one object in the list, and its paths are served like any other. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createApp } from '../../src/server/index.js';
import type { AnswerFormat, Asked, Endpoint, Protocol } from '../../src/server/protocol.js';
import { PROTOCOLS } from '../../src/server/protocols.js';
import { parseBody } from '../../src/server/request-body.js';
import { dataEvent } from '../../src/server/sse.js';
import { ScriptedEngine } from './scripted-engine.js';

interface ToyAsked extends Asked {
  readonly loud: boolean;
}

const say: Endpoint<ToyAsked> = {
  path: '/toy/say',
  name: 'toy',
  kind: 'chat',
  parse(received) {
    const { line = '', loud = false, live = false } = parseBody(received);
    const messages = [{ role: 'user', content: line }];
    return { stream: live === true, model: undefined, requests: [{ messages, n: 2 }], loud: loud === true };
  },
  answer({ asked, choices }): AnswerFormat {
    const spell = (text: string): string => (asked.loud ? text.toUpperCase() : text);
    return {
      id: 'toy-1',
      open: ([tokens]) => dataEvent(`open ${choices} ${tokens}`),
      delta: (choice, { text }) => (text === '' ? '' : dataEvent(`${choice} ${spell(text)}`)),
      finish: (choice, { text, finishReason }) => dataEvent(`${choice} ${spell(text)} ${finishReason}`),
      usage: (results) => dataEvent(`used ${results[0]!.usage.completionTokens}`),
      error: ({ code }) => dataEvent(`oops ${code}`),
      whole: ([result]) => ({ said: result!.choices.map(({ text }) => spell(text)) }),
    };
  },
};

const toy: Protocol = {
  name: 'toy',
  endpoints: [say as Endpoint],
  errorBody: ({ code }) => ({ oops: code }),
  errorStatus: ({ code }) => (code === 'invalid-json' ? 499 : 418),
  keyHeader: 'x-toy-key',
};

describe('a toy protocol', () => {
  let engine: ScriptedEngine;
  beforeAll(() => {
    PROTOCOLS.push(toy);
  });
  afterAll(() => {
    PROTOCOLS.pop();
  });
  beforeEach(() => {
    engine = new ScriptedEngine();
    engine.script = { choices: [['one ', 'two'], ['three']] };
  });
  const post = (body: string, headers: Record<string, string> = {}): Promise<Response> =>
    Promise.resolve(
      createApp({ engine, apiKey: 'secret', corsOrigin: 'https://a.example' }).request('/toy/say', {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'x-toy-key': 'secret', ...headers },
        body,
      }),
    );

  it('answers whole', async () => {
    const response = await post('{"line": "hello", "loud": true}');
    expect(response.headers.get('x-request-id')).toBe('toy-1');
    expect(await response.json()).toEqual({ said: ['ONE TWO', 'THREE'] });
    expect(engine.requests).toMatchObject([{ messages: [{ content: 'hello' }], requestId: 'toy-1' }]);
  });

  it('streams what its format writes, and nothing else', async () => {
    const text = await (await post('{"line": "hello", "live": true}')).text();
    const events = text.split('\n\n').filter((event) => event !== '' && !event.startsWith(':'));
    expect(events[0]).toBe('data: open 2 3');
    expect(events.at(-1)).toBe('data: used 3');
    const of = (choice: number): string =>
      events
        .filter((event) => event.startsWith(`data: ${choice} `))
        .map((event) => event.slice(8))
        .join('');
    expect([of(0), of(1)]).toEqual(['one two stop', 'three stop']);
  });

  it('says in its own words what is wrong, also before a body is read', async () => {
    const refused = async (response: Response): Promise<unknown[]> => [
      response.status,
      await response.json(),
    ];
    expect(await refused(await post('{'))).toEqual([499, { oops: 'invalid-json' }]);
    expect(await refused(await post('{}', { 'x-toy-key': 'wrong' }))).toEqual([
      418,
      { oops: 'invalid-api-key' },
    ]);
    expect(await refused(await post('{}', { host: 'evil.example', origin: 'https://evil.example' }))).toEqual(
      [418, { oops: 'origin-not-allowed' }],
    );
    const app = createApp({ engine });
    expect(await refused(await app.request('/toy/say'))).toEqual([418, { oops: 'method-not-allowed' }]);
    const elsewhere = await (await app.request('/toy/other')).json();
    expect(elsewhere).toMatchObject({ error: { fix: expect.stringContaining('POST /toy/say') } });
    engine.script = { choices: [['x']], finish: 'cancelled' };
    const stream = await (await post('{"live": true}')).text();
    expect(stream).toContain('data: oops shutting-down\n\n');
  });
});
