/** What holds for every request: errors, the log, who is let in, sizes, counters and how serving ends. */
import { describe, expect, it } from 'vitest';
import { KvantError } from '../../src/errors.js';
import { Shutdown } from '../../src/server/index.js';
import { type Body, chunks, engine, logged, make, messages, post, startAnew, tools } from './scripted-app.js';

startAnew();

describe('the application', () => {
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
