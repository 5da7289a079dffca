/** Cached prefixes as clients see them: what usage says, what /v1/cache says, who shares with whom. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { question, type Serving, serveDemo, untilIdle } from './serving.js';

interface Usage {
  readonly prompt_tokens: number;
  readonly prompt_tokens_details: { readonly cached_tokens: number };
}

const LONG = `${'You answer questions about the seas of the world, briefly and truly. '.repeat(12)}`;

describe('cached prefixes on the wire', () => {
  let serving: Serving;
  beforeAll(async () => {
    serving = await serveDemo({ maxRows: 8, maxContext: 1024 });
  });
  afterAll(() => serving.close());

  const chat = async (
    body: object,
  ): Promise<{ usage: Usage; choices: { message: { content: string } }[] }> => {
    const response = await serving.post('/v1/chat/completions', { temperature: 0, max_tokens: 24, ...body });
    const answer = await response.json();
    expect([response.status, answer]).toMatchObject([200, {}]);
    await untilIdle(serving.engine);
    return answer as Awaited<ReturnType<typeof chat>>;
  };
  const cache = async (method = 'GET'): Promise<{ memory: Record<string, number> }> =>
    (await fetch(`${serving.url}/v1/cache`, { method })).json() as never;

  it('tells how much of a prompt was cached', async () => {
    const system = { role: 'system', content: LONG };
    const first = await chat({ messages: [system, ...question('What is the capital of Japan?')] });
    expect(first.usage.prompt_tokens_details).toEqual({ cached_tokens: 0 });
    const second = await chat({ messages: [system, ...question('What is the capital of Peru?')] });
    const { prompt_tokens: tokens, prompt_tokens_details: details } = second.usage;
    expect(details.cached_tokens).toBeGreaterThan(tokens - 48);
    expect(details.cached_tokens).toBeLessThan(tokens);
  });

  it('streams it with the usage', async () => {
    const response = await serving.post('/v1/chat/completions', {
      messages: [{ role: 'system', content: LONG }, ...question('What is the capital of Chile?')],
      max_tokens: 4,
      stream: true,
      stream_options: { include_usage: true },
    });
    const last = (await response.text()).split('\n\n').at(-3)!.slice('data: '.length);
    expect(JSON.parse(last).usage.prompt_tokens_details.cached_tokens).toBeGreaterThan(100);
  });

  it('a conversation hits up to where its history ends, though the template strips thoughts', async () => {
    const thoughts = `<think>\n${'Let me think about the seas. '.repeat(8)}\n</think>\n\n`;
    const messages: object[] = [{ role: 'system', content: LONG }, ...question('Which sea is the largest?')];
    const engine = serving.engine;
    for (let turn = 0; turn < 4; turn++) {
      const { choices } = await chat({ messages });
      // What the template makes of the history so far, thoughts of this turn included.
      const said = { role: 'assistant', content: thoughts + choices[0]!.message.content };
      const open = engine.renderChat([...messages, said] as never, { addGenerationPrompt: false });
      messages.push(said, ...question(`And which one is number ${turn + 2}?`));
      const next = engine.renderChat(messages as never);
      // The thoughts are there until another question comes.
      expect(open).toContain('Let me think');
      expect(next).not.toContain('Let me think');
      // All that the prompt of this turn has in common with the next one's is found, but for the last part of a block.
      const before = engine.tokenize(engine.renderChat(messages.slice(0, -2) as never), {
        addSpecialTokens: false,
      });
      const after = engine.tokenize(next, { addSpecialTokens: false });
      const common = after.findIndex((id, i) => id !== before[i]);
      const { usage } = await chat({ messages, max_tokens: 1 });
      expect(usage.prompt_tokens_details.cached_tokens).toBeGreaterThanOrEqual(Math.floor(common / 16) * 16);
    }
  });

  it('shares with those of the same salt only', async () => {
    const messages = [{ role: 'system', content: LONG }, ...question('Is the sea blue?')];
    const cached = async (salt?: string): Promise<number> => {
      const body = { messages, max_tokens: 1, ...(salt === undefined ? {} : { cache_salt: salt }) };
      return (await chat(body)).usage.prompt_tokens_details.cached_tokens;
    };
    expect(await cached('a')).toBe(0);
    expect(await cached('b')).toBe(0);
    expect(await cached('a')).toBeGreaterThan(100);
    for (const cache_salt of ['', 'x'.repeat(4097), 7]) {
      const bad = await serving.post('/v1/chat/completions', { messages, cache_salt });
      expect([bad.status, await bad.json()]).toMatchObject([400, { error: { param: 'cache_salt' } }]);
    }
    const text = await serving.post('/v1/completions', { prompt: LONG, max_tokens: 1, cache_salt: 'c' });
    expect(((await text.json()) as { usage: Usage }).usage.prompt_tokens_details.cached_tokens).toBe(0);
  });

  it('shows the cache, and empties it', async () => {
    const { memory, ...rest } = await cache();
    expect(rest).toMatchObject({ object: 'cache', block_tokens: 16, preemptions: 0 });
    expect(memory.hits).toBeGreaterThan(3);
    expect(memory.hit_tokens).toBeGreaterThan(400);
    expect(memory.lookups).toBeGreaterThan(memory.hits!);
    expect(memory.bytes).toBe(memory.blocks! * serving.engine.info.kv.bytesPerToken * 16);
    expect(memory.idle_bytes).toBe(memory.bytes);
    expect(memory.max_bytes).toBe(serving.engine.info.kv.bytes);
    const metrics = await (await fetch(`${serving.url}/metrics`)).text();
    expect(metrics).toContain(`kvant_prefix_cache_bytes ${memory.bytes}`);
    expect(metrics).toContain(`kvant_prefix_cache_hit_tokens_total ${memory.hit_tokens}`);
    expect((await cache('DELETE')).memory).toMatchObject({ blocks: 0, bytes: 0, idle_bytes: 0 });
    expect((await cache()).memory.blocks).toBe(0);
    const messages = [{ role: 'system', content: LONG }, ...question('Is the sea blue?')];
    expect((await chat({ messages })).usage.prompt_tokens_details.cached_tokens).toBe(0);
    const post = await serving.post('/v1/cache', {});
    expect([post.status, post.headers.get('allow')]).toEqual([405, 'GET, DELETE']);
  });
});

it('keeps nothing if told so, or no more than told', async () => {
  const ask = async (serving: Serving): Promise<number> => {
    const body = { prompt: LONG, max_tokens: 1, temperature: 0 };
    const { usage } = (await (await serving.post('/v1/completions', body)).json()) as { usage: Usage };
    await untilIdle(serving.engine);
    return usage.prompt_tokens_details.cached_tokens;
  };
  const off = await serveDemo({ prefixCache: false, maxContext: 512 });
  expect([await ask(off), await ask(off)]).toEqual([0, 0]);
  expect(await (await fetch(`${off.url}/v1/cache`)).json()).toMatchObject({ memory: null });
  expect((await off.engine.stats()).prefixCache).toBeUndefined();
  await off.close();
  // Room for five blocks of 16 tokens.
  const few = await serveDemo({ prefixCacheBytes: 5 * 16 * 8192 + 1, maxContext: 512 });
  expect([await ask(few), await ask(few)]).toEqual([0, 80]);
  const { memory } = (await (await fetch(`${few.url}/v1/cache`)).json()) as { memory: object };
  expect(memory).toMatchObject({ blocks: 5, idle_bytes: 5 * 16 * 8192, max_bytes: 5 * 16 * 8192 });
  await few.close();
});
