/** Requests that forbid every token: a 400 that names the field, and nothing in the log that looks like a fault of the server. */
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { question, type Serving, serveDemo, untilIdle } from './serving.js';

describe('a request that leaves no token to draw', () => {
  let serving: Serving;
  const logged: { level: number; code?: string; err?: unknown }[] = [];
  beforeAll(async () => {
    const log = pino({ level: 'info' }, { write: (line: string) => logged.push(JSON.parse(line)) });
    serving = await serveDemo({ maxRows: 2, maxContext: 256 }, { log });
  });
  afterAll(async () => {
    await serving.close();
  });
  const messages = question('Say something.');
  const ids = (): number[] => [...Array(serving.engine.info.model.vocabSize).keys()];
  const eos = (): readonly number[] => serving.engine.info.model.eosTokenIds;
  const but = (left: readonly number[]): number[] => ids().filter((id) => !left.includes(id));
  const digits = (): number[] =>
    ['1', '2'].flatMap((digit) => serving.engine.tokenize(digit, { addSpecialTokens: false }));

  it.each<[string, () => object, string]>([
    ['all ids', () => ({ suppress_tokens: ids() }), 'suppress_tokens'],
    ['all but the end', () => ({ suppress_tokens: but(eos()), min_tokens: 1 }), 'suppress_tokens'],
    [
      'and the words left',
      () => ({ suppress_tokens: but(digits()), bad_words: ['1', '2'] }),
      'suppress_tokens',
    ],
  ])('is refused before it costs anything: %s', async (_, body, param) => {
    const before = await serving.engine.stats();
    for (const path of ['/v1/chat/completions', '/v1/completions'])
      for (const stream of [false, true]) {
        const prompt = path.includes('chat') ? { messages } : { prompt: ['One', 'Two'] };
        const response = await serving.post(path, { ...prompt, ...body(), stream, max_tokens: 4 });
        expect(response.status).toBe(400);
        const { error } = (await response.json()) as { error: { message: string } };
        expect(error).toMatchObject({ param, code: 'no_token_left', type: 'invalid_request_error' });
        expect(error.message).toContain(`\`${param}\``);
      }
    const after = await serving.engine.stats();
    expect([after.steps, after.requests]).toEqual([before.steps, before.requests]);
  });

  it('is told so where words close the last way out in the middle of an answer', async () => {
    const body = {
      messages,
      suppress_tokens: but(digits()),
      bad_words: ['11', '12', '21', '22'],
      max_tokens: 8,
    };
    const response = await serving.post('/v1/chat/completions', body);
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({
      error: { param: 'suppress_tokens', code: 'no_token_left' },
    });
    const streamed = await (await serving.post('/v1/chat/completions', { ...body, stream: true })).text();
    expect(streamed).toContain('no_token_left');
    await untilIdle(serving.engine);
  });

  it('leaves no error in the log', () => {
    expect(logged.filter(({ code }) => code === 'no-token-left').length).toBeGreaterThan(10);
    expect(logged.filter(({ level, err }) => level > 30 || err !== undefined)).toEqual([]);
  });

  it('is answered where something is left: a bias is no ban, and an answer may end at once', async () => {
    const { vocabSize } = serving.engine.info.model;
    expect(vocabSize).toBe(4096);
    for (const more of [
      { logit_bias: Object.fromEntries(ids().map((id) => [id, -100])) },
      { suppress_tokens: but(eos()) },
      { suppress_tokens: but(eos()), min_tokens: 2, ignore_eos: true },
      { suppress_tokens: but(digits().slice(1)), min_tokens: 2 },
    ]) {
      const response = await serving.post('/v1/chat/completions', { messages, max_tokens: 3, ...more });
      expect(response.status).toBe(200);
    }
  });
});
