import { pino } from 'pino';
import { beforeEach, describe, expect, it } from 'vitest';
import { KvantError } from '../../src/errors.js';
import { type AppOptions, createApp, Shutdown } from '../../src/server/index.js';
import { ScriptedEngine } from './scripted-engine.js';

interface Message {
  role?: string;
  content?: string | null;
  reasoning_content?: string;
  tool_calls?: { index?: number; id: string; type: string; function: { name?: string; arguments: string } }[];
}
interface Choice {
  index: number;
  message: Message;
  delta: Message;
  text?: string;
  finish_reason: string | null;
}
interface Body {
  choices: Choice[];
  usage?: object | null;
  error?: { code: string; type: string; param: string | null; message: string };
}

const tools = [{ type: 'function', function: { name: 'weather', parameters: {} } }];
const messages = [{ role: 'user', content: 'How is the weather?' }];
const call = (city: string): string =>
  `<tool_call>\n{"name": "weather", "arguments": {"city": "${city}"}}\n</tool_call>`;

describe('chat answers', () => {
  let engine: ScriptedEngine;
  let logged: Record<string, unknown>[];
  const log = pino({ level: 'info' }, { write: (line: string) => logged.push(JSON.parse(line)) });
  beforeEach(() => {
    engine = new ScriptedEngine();
    logged = [];
  });
  const make = (options: Partial<AppOptions> = {}) => createApp({ engine, log, ...options });
  const post = (body: object, options: Partial<AppOptions> = {}, path = '/v1/chat/completions') =>
    make(options).request(path, { method: 'POST', body: JSON.stringify({ messages, ...body }) });
  const whole = async (body: object, options: Partial<AppOptions> = {}): Promise<Choice[]> => {
    const response = await post(body, options);
    expect(response.status).toBe(200);
    return ((await response.json()) as Body).choices;
  };
  const chunks = async (response: Response): Promise<Body[]> => {
    const events = (await response.text()).split('\n\n').filter((e) => e !== '');
    expect(events.pop()).toBe('data: [DONE]');
    return events.map((e) => JSON.parse(e.slice('data: '.length)) as Body);
  };
  /** Puts the deltas of each choice together, as a client does. */
  const streamed = async (body: object, options: Partial<AppOptions> = {}): Promise<Choice[]> => {
    const choices: Choice[] = [];
    for (const chunk of await chunks(await post({ ...body, stream: true }, options))) {
      for (const { index, delta, finish_reason } of chunk.choices) {
        choices[index] ??= { index, message: {}, delta: {}, finish_reason: null };
        const { message } = choices[index];
        expect(choices[index].finish_reason).toBe(null);
        choices[index].finish_reason = finish_reason;
        if (delta.role !== undefined) message.role = delta.role;
        if (delta.content) message.content = (message.content ?? '') + delta.content;
        if (delta.reasoning_content !== undefined)
          message.reasoning_content = (message.reasoning_content ?? '') + delta.reasoning_content;
        for (const c of delta.tool_calls ?? []) {
          message.tool_calls ??= [];
          const known = message.tool_calls[c.index!];
          if (known === undefined) {
            expect(c.index).toBe(message.tool_calls.length);
            message.tool_calls.push(c);
          } else {
            expect(Object.keys(c)).toEqual(['index', 'function']);
            expect(Object.keys(c.function)).toEqual(['arguments']);
            known.function.arguments += c.function.arguments;
          }
        }
      }
    }
    return choices;
  };

  /** Both ways of asking, over cuts of the answer, have to give the same. */
  const answer = async (
    text: string,
    body: object = {},
    script: Partial<ScriptedEngine['script']> = {},
    options: Partial<AppOptions> = {},
  ): Promise<object> => {
    let first: object | undefined;
    const cuts = [[text], [...text], text.match(/.{1,5}/gs) ?? [], [text.slice(0, 20), text.slice(20)]];
    for (const pieces of cuts) {
      engine.script = { choices: [pieces], ...script };
      for (const ask of [whole, streamed]) {
        const [choice] = await ask(body, options);
        const { content, reasoning_content, tool_calls } = choice!.message;
        for (const c of tool_calls ?? [])
          expect([c.type, /^call_\w{24}$/.test(c.id)]).toEqual(['function', true]);
        const seen = {
          content: content ?? '',
          ...(reasoning_content === undefined ? {} : { reasoning: reasoning_content }),
          ...(tool_calls === undefined ? {} : { calls: tool_calls.map((c) => c.function) }),
          finish: choice!.finish_reason,
        };
        first ??= seen;
        expect(seen).toEqual(first);
      }
    }
    return first!;
  };
  const rome = { name: 'weather', arguments: '{"city": "Rome"}' };
  const oslo = { name: 'weather', arguments: '{"city": "Oslo"}' };

  it('delivers tool calls when there were tools', async () => {
    expect(await answer(`I look.\n${call('Rome')}\n${call('Oslo')}`, { tools })).toEqual({
      content: 'I look.',
      calls: [rome, oslo],
      finish: 'tool_calls',
    });
    engine.script = { choices: [[call('Rome')]] };
    const [choice] = await whole({ tools });
    expect(choice!.message).toEqual({
      role: 'assistant',
      content: null,
      refusal: null,
      tool_calls: [{ id: expect.any(String), type: 'function', function: rome }],
    });
  });

  it('leaves calls in the text without tools, and with tool_choice none', async () => {
    const text = `I look.\n${call('Rome')}\n`;
    const plain = { content: text, finish: 'stop' };
    expect(await answer(text)).toEqual(plain);
    expect(await answer(text, { tools: [] })).toEqual(plain);
    expect(await answer(text, { tools, tool_choice: 'none' })).toEqual(plain);
    expect(engine.requests.at(-1)).not.toHaveProperty('tools');
    expect(await answer(text, { tools, tool_choice: 'auto' })).toHaveProperty('calls');
  });

  it('leaves what is no call in the text, and says when an answer was cut off', async () => {
    const broken = '<tool_call>\n{"name": "weather", "arg\n</tool_call>';
    expect(await answer(broken, { tools })).toEqual({ content: broken, finish: 'stop' });
    const cut = `${call('Rome')}\nAnd`;
    expect(await answer(cut, { tools }, { finish: 'length' })).toEqual({
      content: '\nAnd',
      calls: [rome],
      finish: 'length',
    });
  });

  it('streams the arguments of a call as they come', async () => {
    engine.script = { choices: [['Hm.', ` ${call('Ro')}`.slice(0, -16), 'me', '"', '}}\n</tool', '_call>']] };
    const events = await chunks(await post({ tools, stream: true }));
    const deltas = events.flatMap(({ choices: [choice] }) => choice?.delta.tool_calls ?? []);
    expect(deltas).toEqual([
      {
        index: 0,
        id: expect.stringMatching(/^call_/) as string,
        type: 'function',
        function: { name: 'weather', arguments: '{"city": "Ro' },
      },
      ...['me', '"', '}'].map((text) => ({ index: 0, function: { arguments: text } })),
    ]);
    expect(events.at(-1)!.choices[0]!.finish_reason).toBe('tool_calls');
  });

  it('delivers arguments that were cut off, and says so', async () => {
    const cut = call('Rome').slice(0, -16);
    expect(await answer(cut, { tools }, { finish: 'length' })).toEqual({
      content: '',
      calls: [{ name: 'weather', arguments: '{"city": "Rome' }],
      finish: 'length',
    });
  });

  it('takes other spellings of a call for one', async () => {
    const spelled = (json: string): string => `<tool_call>${json}</tool_call>`;
    for (const text of [
      spelled('{"name": "weather", "parameters": {"city": "Rome"}}'),
      spelled('{"name": "weather", "arguments": "{\\"city\\": \\"Rome\\"}"}'),
      spelled('{"type": "function", "function": {"name": "weather", "arguments": {"city": "Rome"}}}'),
      spelled('[{"name": "weather", "arguments": {"city": "Rome"}}]'),
    ])
      expect(await answer(text, { tools })).toEqual({ content: '', calls: [rome], finish: 'tool_calls' });
    for (const empty of ['null', '""', '{}'])
      expect(await answer(spelled(`{"name": "now", "arguments": ${empty}}`), { tools })).toEqual({
        content: '',
        calls: [{ name: 'now', arguments: '{}' }],
        finish: 'tool_calls',
      });
  });

  it('delivers one call at most without parallel calls', async () => {
    const text = `I look.\n${call('Rome')}\n${call('Oslo')} Done.`;
    expect(await answer(text, { tools, parallel_tool_calls: false })).toEqual({
      content: 'I look.',
      calls: [rome],
      finish: 'tool_calls',
    });
    expect(await answer(text, { tools, parallel_tool_calls: true })).toMatchObject({ calls: [rome, oslo] });
  });

  it('delivers thoughts apart, also those the prompt began, and calls after them', async () => {
    const thoughts = `<think>\nRome? ${call('Paris')}\n</think>\n\n`;
    expect(await answer(`${thoughts}It rains.`)).toEqual({
      reasoning: `Rome? ${call('Paris')}`,
      content: 'It rains.',
      finish: 'stop',
    });
    expect(await answer(`${thoughts}${call('Rome')}`, { tools })).toEqual({
      reasoning: `Rome? ${call('Paris')}`,
      content: '',
      calls: [rome],
      finish: 'tool_calls',
    });
    const prompt = '<|assistant|>\n<think>\n';
    expect(await answer('Hm.\n</think>\n\nIt rains.', {}, { prompt })).toEqual({
      reasoning: 'Hm.',
      content: 'It rains.',
      finish: 'stop',
    });
    expect(await answer('Hm and hm', {}, { prompt, finish: 'length' })).toEqual({
      reasoning: 'Hm and hm',
      content: '',
      finish: 'length',
    });
    expect(await answer('It <think>rains</think>.')).toEqual({
      content: 'It <think>rains</think>.',
      finish: 'stop',
    });
  });

  it('leaves thoughts in the content when asked to', async () => {
    const text = '<think>\nHm.\n</think>\n\nIt rains.';
    expect(await answer(text, {}, {}, { reasoningFormat: 'none' })).toEqual({
      content: text,
      finish: 'stop',
    });
  });

  it('takes every choice apart by itself', async () => {
    engine.script = {
      choices: [
        ['<think>a', '</think>', 'b'],
        [...call('Rome')],
        ['c', ' d'],
        ['<thi', 'nk>e</think>', call('Oslo')],
      ],
    };
    for (const ask of [whole, streamed]) {
      const choices = await ask({ n: 4, tools });
      expect(choices.map((c) => [c.index, c.finish_reason])).toEqual([
        [0, 'stop'],
        [1, 'tool_calls'],
        [2, 'stop'],
        [3, 'tool_calls'],
      ]);
      expect(choices[0]!.message).toMatchObject({ reasoning_content: 'a', content: 'b' });
      expect(choices[1]!.message.tool_calls![0]!.function).toEqual(rome);
      expect(choices[2]!.message.content).toBe('c d');
      expect(choices[3]!.message.reasoning_content).toBe('e');
      expect(choices[3]!.message.tool_calls![0]!.function).toEqual(oslo);
    }
  });

  it('takes nothing apart in text completions', async () => {
    const text = `<think>a</think>${call('Rome')}`;
    engine.script = { choices: [[...text]] };
    const response = await make().request('/v1/completions', { method: 'POST', body: '{"prompt": "x"}' });
    expect(((await response.json()) as Body).choices[0]).toMatchObject({ text, finish_reason: 'stop' });
  });

  it('streams usage only when asked, null until the end', async () => {
    engine.script = { choices: [['a', 'b']] };
    for (const chunk of await chunks(await post({ stream: true }))) expect(chunk).not.toHaveProperty('usage');
    const all = await chunks(await post({ stream: true, stream_options: { include_usage: true } }));
    const last = all.pop()!;
    expect(all.every((c) => c.usage === null)).toBe(true);
    expect([last.choices, last.usage]).toEqual([
      [],
      {
        prompt_tokens: 3,
        completion_tokens: 2,
        prompt_tokens_details: { cached_tokens: 0 },
        completion_tokens_details: { reasoning_tokens: 0 },
        total_tokens: 5,
      },
    ]);
  });

  it('names fields in errors, in sentences', async () => {
    for (const [body, param] of [
      [{ messages: [{ role: 'user' }], stream: 'yes' }, 'stream'],
      [{ n: 0 }, 'n'],
      [{ stop: ['a', ''] }, 'stop'],
      [{ stream_options: { include_usage: true } }, 'stream_options'],
      [{ stream: true, stream_options: { nonsense: 1 } }, 'stream_options.nonsense'],
      [{ tool_choice: 'any', tools }, 'tool_choice'],
      [{ reasoning_effort: 'much' }, 'reasoning_effort'],
      [{ reasoning: { effort: 'low' }, reasoning_effort: 'high' }, 'reasoning.effort'],
      [{ thinking: { type: 'maybe' } }, 'thinking.type'],
      [{ thinking_budget: -2 }, 'thinking_budget'],
      [{ functions: [{ name: 'f' }] }, 'functions'],
      [{ logprobs: 5 }, 'logprobs'],
      [{ top_logprobs: 2 }, 'top_logprobs'],
      [{ n: 2, best_of: 3, stream: true }, 'best_of'],
      [{ max_tokens: 1, max_completion_tokens: 2 }, 'max_completion_tokens'],
    ] as const) {
      const response = await post(body);
      const { error } = (await response.json()) as Body;
      expect([response.status, error!.param], JSON.stringify(body)).toEqual([400, param]);
      expect(error!.message, JSON.stringify(body)).toMatch(/[.!?]$/);
      expect(error!.message).toMatch(/[.!?)] [A-Z]/);
    }
    expect(engine.requests).toHaveLength(0);
  });

  it('writes one line for each request, refused ones included', async () => {
    engine.script = { choices: [['a']] };
    await (await post({})).text();
    await (await post({ stream: true })).text();
    await post({ nonsense: 1 });
    await post({ model: 'other' });
    await make().request('/v1/chat/completions', { method: 'POST', body: '{' });
    await make({ apiKey: 'k' }).request('/v1/models');
    await make().request('/nowhere');
    expect(logged.map((l) => [l.level, l.msg === 'completed' ? l.stream : l.code])).toEqual([
      [30, false],
      [30, true],
      [30, 'unknown-parameter'],
      [30, 'model-not-found'],
      [30, 'invalid-json'],
      [30, 'invalid-api-key'],
      [30, 'route-not-found'],
    ]);
  });

  it('lets nobody in with an empty key', async () => {
    const app = make({ apiKey: '' });
    expect((await app.request('/v1/models')).status).toBe(401);
    expect((await app.request('/v1/models', { headers: { authorization: 'Bearer ' } })).status).toBe(401);
  });

  it('lets browsers in from the origin it was given, to errors too', async () => {
    const origin = 'https://example.org';
    const app = make({ corsOrigin: origin, apiKey: 'k' });
    const preflight = await app.request('/v1/chat/completions', {
      method: 'OPTIONS',
      headers: {
        origin,
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'authorization',
      },
    });
    expect(preflight.status).toBe(204);
    expect(preflight.headers.get('access-control-allow-headers')).toMatch(/authorization/i);
    const refused = await app.request('/v1/models', { headers: { origin } });
    expect([refused.status, refused.headers.get('access-control-allow-origin')]).toEqual([401, origin]);
    expect(
      (await make().request('/v1/models', { headers: { origin } })).headers.has(
        'access-control-allow-origin',
      ),
    ).toBe(false);
  });

  it('stops reading a body at the limit, whether or not its length was told', async () => {
    let pulled = 0;
    const endless = new ReadableStream<Uint8Array>({
      pull(controller) {
        pulled++;
        controller.enqueue(new Uint8Array(1000).fill(32));
      },
    });
    const init = { method: 'POST', body: endless, duplex: 'half' } as RequestInit;
    const response = await make({ bodyLimit: 10_000 }).request('/v1/chat/completions', init);
    expect(response.status).toBe(413);
    expect(((await response.json()) as Body).error).toMatchObject({
      type: 'invalid_request_error',
      code: 'body_too_large',
    });
    expect(pulled).toBeLessThan(20);
    // The key comes first: a stranger's body is not read.
    pulled = 0;
    const stranger = {
      ...init,
      body: new ReadableStream({ pull: () => void pulled++ }, { highWaterMark: 0 }),
    };
    expect((await make({ apiKey: 'k' }).request('/v1/chat/completions', stranger)).status).toBe(401);
    expect(pulled).toBe(0);
  });

  it('has a limit for bodies that follows the context', async () => {
    const body = (bytes: number): string => `{"prompt": "x"${' '.repeat(bytes)}}`;
    const status = async (bytes: number, maxContext: number): Promise<number> => {
      engine.info = { ...engine.info, limits: { ...engine.info.limits, maxContext } };
      const app = make();
      return (await app.request('/v1/completions', { method: 'POST', body: body(bytes) })).status;
    };
    expect(await status(1_000_000, 100)).toBe(200);
    expect(await status(1_100_000, 100)).toBe(413);
    expect(await status(6_000_000, 100_000)).toBe(200);
    expect(await status(7_000_000, 100_000)).toBe(413);
  });

  it('takes requests in pieces of any size, also within a character', async () => {
    const bytes = new TextEncoder().encode(JSON.stringify({ messages: [{ role: 'user', content: 'Ж€😀' }] }));
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        for (const byte of bytes) controller.enqueue(Uint8Array.of(byte));
        controller.close();
      },
    });
    const init = { method: 'POST', body, duplex: 'half' } as RequestInit;
    expect((await make().request('/v1/chat/completions', init)).status).toBe(200);
    expect(engine.requests[0]).toMatchObject({ messages: [{ content: 'Ж€😀' }] });
  });

  it('counts in counters, under labels that requests cannot choose', async () => {
    engine.script = { choices: [['a', 'b']] };
    const app = make();
    for (const body of [{ messages }, { messages, nonsense: 1 }, { model: 'x', messages }])
      await app.request('/v1/chat/completions', { method: 'POST', body: JSON.stringify(body) });
    for (let i = 0; i < 2; i++) {
      const text = await (await app.request('/metrics')).text();
      for (const [, name, type] of text.matchAll(/^# TYPE (\S+) (\S+)$/gm))
        expect([name, type === 'counter']).toEqual([name, name!.endsWith('_total')]);
      expect(text).toMatch(/^kvant_prompt_tokens_total 7$/m);
      expect(text).toMatch(/^kvant_completion_tokens_total 8$/m);
      expect(text).toMatch(/^kvant_steps_total 6$/m);
      expect(text).toMatch(/^kvant_refused_total 14$/m);
      expect(text).toMatch(/^kvant_preemptions_total 17$/m);
      expect(text).toMatch(/^kvant_finished_total\{reason="length"\} 11$/m);
      expect(text).toMatch(/^kvant_running_rows 5$/m);
      expect(text).toMatch(/^kvant_kv_blocks_used 4$/m);
      expect(text).toMatch(/^kvant_requests_total\{route="chat",outcome="ok"\} 1$/m);
      expect(text).toMatch(/^kvant_requests_total\{route="chat",outcome="refused"\} 2$/m);
      expect(text).toMatch(/^kvant_time_to_first_token_seconds_count 1$/m);
      expect(text).toMatch(/^kvant_inter_token_seconds_count 1$/m);
    }
  });

  it('says at /health that the engine failed', async () => {
    engine.fault = new KvantError('engine-crashed', 'The thread ended.', { kind: 'device' });
    const response = await make().request('/health');
    expect([response.status, await response.json()]).toEqual([
      503,
      { status: 'failed', code: 'engine-crashed', message: 'The thread ended.' },
    ]);
  });

  it('drains, then ends what still runs', async () => {
    const shutdown = new Shutdown();
    const app = make({ shutdown });
    const ask = (body: object) =>
      app.request('/v1/chat/completions', { method: 'POST', body: JSON.stringify({ messages, ...body }) });
    engine.script = { choices: [['a', 'b']], endless: true };
    const streaming = ask({ stream: true });
    const waiting = ask({});
    await streaming;
    shutdown.drain();
    const late = await ask({});
    expect([late.status, late.headers.get('connection'), late.headers.has('retry-after')]).toEqual([
      503,
      'close',
      true,
    ]);
    expect((await app.request('/health')).status).toBe(503);
    expect(engine.open.size).toBe(2);
    shutdown.end();
    const events = await chunks(await streaming);
    expect(events.at(-1)!.error).toMatchObject({ code: 'shutting_down', type: 'server_error' });
    expect((await waiting).status).toBe(503);
    expect(engine.open.size).toBe(0);
  });

  it('cancels the request of a stream that is not read to its end', async () => {
    engine.script = { choices: [['a', 'b', 'c']], endless: true };
    const response = await post({ stream: true });
    const reader = response.body!.getReader();
    await reader.read();
    await reader.cancel();
    expect(engine.open.size).toBe(0);
    expect(logged.map((l) => l.msg)).toEqual(['client went away']);
  });
});
