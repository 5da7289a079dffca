/** What a client sends comes back in errors and goes into logs: never raw, never whole. */
import { type Logger, pino } from 'pino';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createApp } from '../../src/server/index.js';
import { question, type Serving, serveDemo } from './serving.js';

const ESCAPES = '\u001b]0;owned\u0007\u001b[2J\u009b31m\r\n\u202eabc\u200b\u2066\ufeff\u{e0041}\ud800';
const HUGE = 'x'.repeat(900_000);
const RAW = /[\p{Cc}\p{Cf}\p{Cs}]/u;
/** Far above what any of these errors needs, far below what was sent. */
const LONGEST = 1500;

const messages = question('Hi');
const called = (name: string, args: string): object => ({
  role: 'assistant',
  content: null,
  tool_calls: [{ id: '1', type: 'function', function: { name, arguments: args } }],
});
/** Where a text of the client may stand, and where the error names it. */
const PLACES: readonly (readonly [string, string, (text: string) => object])[] = [
  ['the model', 'chat', (text) => ({ messages, model: text })],
  ['an unknown field', 'chat', (text) => ({ messages, [text]: 1 })],
  ['an unknown field of the text route', 'text', (text) => ({ prompt: 'a', [text]: 1 })],
  ['a role', 'chat', (text) => ({ messages: [{ role: text, content: 'a' }] })],
  [
    'the type of a content part',
    'chat',
    (text) => ({ messages: [{ role: 'user', content: [{ type: text }] }] }),
  ],
  [
    'the type of a medium',
    'chat',
    (text) => ({ messages: [{ role: 'user', content: [{ type: `image${text}` }] }] }),
  ],
  ['a variable of the template', 'chat', (text) => ({ messages, chat_template_kwargs: { [`.${text}`]: 1 } })],
  ['a stream option', 'chat', (text) => ({ messages, stream: true, stream_options: { [text]: 1 } })],
  ['the value of a parameter', 'chat', (text) => ({ messages, temperature: text })],
  [
    'the value of an unsupported parameter',
    'chat',
    (text) => ({ messages, response_format: { type: text } }),
  ],
  ['a token id', 'chat', (text) => ({ messages, logit_bias: { [text]: 1 } })],
  ['tool_choice', 'chat', (text) => ({ messages, tool_choice: text })],
  ['a prompt of another type', 'text', (text) => ({ prompt: { [text]: 1 } })],
  [
    'the name of a tool',
    'chat',
    (text) => ({ messages, tools: [{ type: 'function', function: { name: text } }], tool_choice: text }),
  ],
  ['the type of a tool', 'chat', (text) => ({ messages, tools: [{ type: text }] })],
  [
    'the type of a tool call',
    'chat',
    (text) => ({ messages: [...messages, { ...called('f', '{'), [text]: text }] }),
  ],
  ['the arguments of a call', 'chat', (text) => ({ messages: [...messages, called('f', text)] })],
  ['the role of a replayed call', 'chat', (text) => ({ messages: [{ ...called('f', '{}'), role: text }] })],
  ['an unknown field of camels', 'chat', (text) => ({ messages, [`maxTokens${text}`]: 1 })],
  ['a bad word', 'text', (text) => ({ prompt: 'a', bad_words: { [text]: text } })],
  ['a stop string', 'text', (text) => ({ prompt: 'a', stop: [{ [text]: text }] })],
  ['a salt', 'text', (text) => ({ prompt: 'a', cache_salt: { [text]: text } })],
  ['modalities', 'chat', (text) => ({ messages, modalities: [text] })],
];

describe('text of clients', () => {
  let serving: Serving;
  const lines: Record<string, unknown>[] = [];
  const log: Logger = pino({ level: 'debug', base: null }, { write: (line) => lines.push(JSON.parse(line)) });
  let app: ReturnType<typeof createApp>;
  beforeAll(async () => {
    serving = await serveDemo();
    app = createApp({ engine: serving.engine, log, bodyLimit: 2 ** 22 });
  });
  afterAll(() => serving.close());

  /** All that came of it, in the answer and in the log. */
  async function tried(path: string, init: RequestInit): Promise<{ status: number; said: string[] }> {
    lines.length = 0;
    const response = await app.request(path, init);
    const body = await response.text();
    return { status: response.status, said: [body, ...lines.map((line) => JSON.stringify(line))] };
  }

  /** Every text in a JSON text, names of fields included. */
  function textsOf(value: unknown): string[] {
    if (typeof value === 'string') return [value];
    if (typeof value !== 'object' || value === null) return [];
    return Object.entries(value).flatMap(([name, inner]) => [name, ...textsOf(inner)]);
  }

  it.each(PLACES)('escapes and cuts %s', async (_, route, make) => {
    const path = route === 'chat' ? '/v1/chat/completions' : '/v1/completions';
    for (const text of [`b${ESCAPES}`, `b${HUGE}`, `b${'\u001b'.repeat(100_000)}`]) {
      const { status, said } = await tried(path, { method: 'POST', body: JSON.stringify(make(text)) });
      expect([400, 404]).toContain(status);
      for (const json of said) {
        expect(json.length).toBeLessThan(LONGEST);
        for (const found of textsOf(JSON.parse(json))) expect(found).not.toMatch(RAW);
      }
      const { error } = JSON.parse(said[0]!) as { error: { param: string | null; message: string } };
      expect(error.param?.length ?? 0).toBeLessThan(300);
    }
  });

  it('escapes and cuts the place, the method and the headers', async () => {
    const long = encodeURIComponent(`${ESCAPES.slice(0, -1)}${'y'.repeat(9000)}`);
    for (const [path, init] of [
      [`/v1/models/${long}`, {}],
      [`/${long}`, {}],
      [`/${long}`, { method: 'DELETE' }],
      ['/v1/models', { method: 'PATCHPATCHPATCH' }],
      [
        '/v1/chat/completions',
        {
          method: 'POST',
          body: JSON.stringify({ messages }),
          headers: { 'x-priority': `a\u009b\u0085${HUGE.slice(0, 9000)}` },
        },
      ],
      ['/v1/completions', { method: 'POST', body: `{"prompt": "${ESCAPES}${HUGE}` }],
      [
        '/v1/completions',
        { method: 'POST', body: '{}', headers: { 'content-encoding': `a\u009b${HUGE.slice(0, 9000)}` } },
      ],
      [
        '/v1/completions',
        {
          method: 'POST',
          body: '{}',
          headers: { 'content-type': `text/plain; charset="a\u009b${HUGE.slice(0, 9000)}"` },
        },
      ],
      ['/v1/models', { headers: { origin: `http://a\u009b${HUGE.slice(0, 9000)}` } }],
      [
        '/v1/models',
        {
          headers: { 'content-length': '5', authorization: `Bearer \u009b${HUGE.slice(0, 9000)}` },
          method: 'PUT',
        },
      ],
    ] as const) {
      const { status, said } = await tried(path, init);
      expect([400, 403, 404, 405, 415]).toContain(status);
      for (const json of said) {
        expect(json.length).toBeLessThan(LONGEST);
        for (const found of textsOf(JSON.parse(json))) expect(found).not.toMatch(RAW);
      }
    }
  });

  it('keeps the names and texts of a good request out of the log, but for their beginning', async () => {
    const tool = { type: 'function', function: { name: `f${ESCAPES}`, parameters: { properties: {} } } };
    for (let i = 0; i < 500; i++)
      Object.assign(tool.function.parameters.properties, {
        [`p${i}${ESCAPES}${HUGE.slice(0, 300)}`]: { type: 'string' },
      });
    const body = { messages: question(`a${ESCAPES}`), tools: [tool], max_tokens: 1 };
    const { said } = await tried('/v1/chat/completions', { method: 'POST', body: JSON.stringify(body) });
    for (const json of said.slice(1)) {
      expect(json.length).toBeLessThan(20_000);
      for (const found of textsOf(JSON.parse(json))) expect(found).not.toMatch(RAW);
    }
  });
});
