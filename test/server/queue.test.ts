/** Where a request stands in the queue: from body, header and key, and what it is told when it has to come again. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createApp } from '../../src/server/index.js';
import { ScriptedEngine } from './scripted-engine.js';
import { question, type Serving, serveDemo, untilIdle } from './serving.js';

const messages = question('Hi');

describe('a request’s place', () => {
  const send = async (
    body: object,
    headers: Record<string, string> = {},
    apiKey?: readonly string[],
    path = '/v1/chat/completions',
  ) => {
    const engine = new ScriptedEngine();
    const app = createApp({ engine, ...(apiKey === undefined ? {} : { apiKey }) });
    const response = await app.request(path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    });
    return { response, request: engine.requests[0], requests: engine.requests };
  };

  it('is ordinary where nobody says anything', async () => {
    const { request } = await send({ messages });
    for (const name of ['priority', 'share', 'queueTimeoutMs']) expect(request).not.toHaveProperty(name);
  });

  it('is taken from the header, and from the body before it', async () => {
    expect((await send({ messages }, { 'x-priority': 'high' })).request).toMatchObject({ priority: 5 });
    expect((await send({ messages }, { 'x-priority': '-3' })).request).toMatchObject({ priority: -3 });
    const { request } = await send({ messages, priority: 2, queue_timeout: 1.5 }, { 'x-priority': 'low' });
    expect(request).toMatchObject({ priority: 2, queueTimeoutMs: 1500 });
    const { requests } = await send(
      { prompt: ['a', 'b'], queue_timeout: 2 },
      { 'x-priority': 'low' },
      undefined,
      '/v1/completions',
    );
    expect(requests).toHaveLength(2);
    for (const one of requests) expect(one).toMatchObject({ priority: -5, queueTimeoutMs: 2000 });
  });

  it('is refused where it makes no sense, naming what is wrong', async () => {
    for (const [body, headers, param] of [
      [{ messages, priority: 11 }, {}, 'priority'],
      [{ messages, priority: 0.5 }, {}, 'priority'],
      [{ messages, priority: 'high' }, {}, 'priority'],
      [{ messages, queue_timeout: 0 }, {}, 'queue_timeout'],
      [{ messages }, { 'x-priority': 'now' }, 'X-Priority'],
    ] as const) {
      const { response, request } = await send(body, headers as Record<string, string>);
      expect(response.status).toBe(400);
      expect(request).toBeUndefined();
      expect(await response.json()).toMatchObject({ error: { param } });
    }
  });

  it('belongs to the share of its key, and no key of another’s is told apart by time or text', async () => {
    const keys = ['alpha', 'beta'];
    const by = (key: string) => send({ messages }, { authorization: `Bearer ${key}` }, keys);
    const [one, other] = [await by('alpha'), await by('beta')];
    expect(one.request!.share).not.toBe(other.request!.share);
    expect(`${one.request!.share}${other.request!.share}`).not.toMatch(/alpha|beta/);
    expect((await by('gamma')).response.status).toBe(401);
  });
});

describe('a full queue', () => {
  let serving: Serving;
  beforeAll(async () => {
    serving = await serveDemo(
      { maxRows: 1, maxQueue: 4 },
      { apiKey: ['flood', 'modest'], adminKey: 'master' },
    );
  });
  afterAll(async () => {
    await serving.close();
  });
  const story = { messages: question('Tell me a story.'), temperature: 0, max_tokens: 60, ignore_eos: true };
  const send = (key: string, more: object = {}): Promise<Response> =>
    serving.post(
      '/v1/chat/completions',
      { ...story, ...more },
      {
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      },
    );

  it('refuses the flood at once, with the time to come again, and still takes another client’s request', async () => {
    const started = performance.now();
    let refusedAt = 0;
    const flood = Array.from({ length: 12 }, () =>
      send('flood').then((response) => {
        if (response.status === 429) refusedAt ||= performance.now() - started;
        return response;
      }),
    );
    const first = await flood[0]!.then(() => send('modest', { max_tokens: 2 }));
    expect(first.status).toBe(200);
    const answers = await Promise.all(flood);
    const refused = answers.filter(({ status }) => status === 429);
    // One in its row and four that wait.
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(5);
    expect(refused).toHaveLength(7);
    for (const response of refused) expect(Number(response.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(refusedAt).toBeGreaterThan(0);
    await untilIdle(serving.engine);
  });

  it('answers 503 to whom it could not begin with in time, and counts it', async () => {
    const long = send('flood', { max_tokens: 400 });
    while ((await serving.engine.stats()).decoding === 0) await new Promise((r) => setTimeout(r, 1));
    for (const stream of [false, true]) {
      const late = await send('modest', { queue_timeout: 0.005, stream });
      expect([late.status, late.headers.get('content-type')]).toEqual([503, 'application/json']);
      expect(Number(late.headers.get('retry-after'))).toBeGreaterThan(0);
      expect(await late.json()).toMatchObject({ error: { code: 'queue_timeout', type: 'server_error' } });
    }
    // Who has its turn in time is sent what comes, from then on.
    const patient = await send('modest', { queue_timeout: 60, stream: true, max_tokens: 3 });
    expect((await long).status).toBe(200);
    expect([patient.status, await patient.text()]).toEqual([200, expect.stringMatching(/\[DONE\]\s*$/)]);
    const metrics = await fetch(`${serving.url}/metrics`, { headers: { authorization: 'Bearer master' } });
    const text = await metrics.text();
    expect(text).toMatch(/^kvant_queue_timeouts_total 2$/m);
    expect(text).toMatch(/^kvant_queue_age_seconds 0$/m);
    expect(text).toMatch(/^kvant_preemptions_total 0$/m);
    await untilIdle(serving.engine);
  });
});
