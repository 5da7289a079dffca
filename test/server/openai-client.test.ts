import OpenAI, { APIError, NotFoundError } from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readPackedText } from '../fixtures/read-packed.js';
import { question, type Serving, serveDemo, untilIdle } from './serving.js';

describe('the openai client against the running server', () => {
  let serving: Serving;
  let client: OpenAI;
  const model = 'demo-text';
  beforeAll(async () => {
    serving = await serveDemo({ maxRows: 8 });
    client = new OpenAI({ baseURL: `${serving.url}/v1`, apiKey: 'none', maxRetries: 0 });
  });
  afterAll(async () => {
    await serving.close();
  });

  it('answers a chat', async () => {
    const completion = await client.chat.completions.create({
      model,
      messages: question('What is the capital of Japan?'),
      temperature: 0,
    });
    expect(completion.object).toBe('chat.completion');
    expect(completion.choices[0]!.message).toMatchObject({
      role: 'assistant',
      content: 'The capital of Japan is Tokyo.',
    });
    expect(completion.choices[0]!.finish_reason).toBe('stop');
    const usage = completion.usage!;
    expect(usage.total_tokens).toBe(usage.prompt_tokens + usage.completion_tokens);
    expect(usage.completion_tokens).toBeGreaterThan(4);
  });

  it('streams the same chat, with usage at the end', async () => {
    const stream = await client.chat.completions.create({
      model: './models/demo-text/',
      messages: [
        { role: 'developer', content: 'You are a helpful assistant.' },
        ...question('What is the capital of Japan?'),
      ],
      temperature: 0,
      stream: true,
      stream_options: { include_usage: true },
    });
    let text = '';
    let finish: string | null = null;
    let usage: OpenAI.CompletionUsage | null | undefined;
    const roles: string[] = [];
    for await (const chunk of stream) {
      const choice = chunk.choices[0];
      if (choice?.delta.role !== undefined) roles.push(choice.delta.role);
      text += choice?.delta.content ?? '';
      finish = choice?.finish_reason ?? finish;
      usage = chunk.usage ?? usage;
    }
    expect(text).toContain('Tokyo');
    expect(roles).toEqual(['assistant']);
    expect(finish).toBe('stop');
    expect(usage!.completion_tokens).toBeGreaterThan(4);
  });

  it('gives n choices, different under one seed and the same again', async () => {
    const ask = async (): Promise<(string | null)[]> => {
      const { choices } = await client.chat.completions.create({
        model,
        messages: question('Tell me a story about a dragon.'),
        temperature: 1.2,
        n: 3,
        seed: 7,
        max_completion_tokens: 24,
      });
      expect(choices.map((c) => c.index)).toEqual([0, 1, 2]);
      expect(choices.every((c) => c.finish_reason === 'length')).toBe(true);
      return choices.map((c) => c.message.content);
    };
    const [first, second] = [await ask(), await ask()];
    expect(second).toEqual(first);
    expect(new Set(first).size).toBeGreaterThan(1);
  });

  it('stops before a stop string, streamed or not', async () => {
    const body = { model, messages: question('Count from 1 to 20.'), temperature: 0, stop: ['7', 'never'] };
    const { choices } = await client.chat.completions.create(body);
    const text = choices[0]!.message.content!;
    expect(text).toContain('6');
    expect(text).not.toContain('7');
    let streamed = '';
    for await (const chunk of await client.chat.completions.create({ ...body, stream: true })) {
      streamed += chunk.choices[0]?.delta.content ?? '';
    }
    expect(streamed).toBe(text);
  });

  it('completes text, several prompts and token ids', async () => {
    const one = await client.completions.create({
      model,
      prompt: 'The capital of France is',
      temperature: 0,
      max_tokens: 2,
    });
    expect(one.choices[0]!.text).toBe(' Paris.');
    const two = await client.completions.create({
      model,
      prompt: [
        [285, 455, 309, 3251, 279],
        [285, 455, 309, 3251, 279, 3226],
      ],
      temperature: 0,
      max_tokens: 2,
    });
    expect(two.choices.map((c) => [c.index, c.text])).toEqual([
      [0, ' Paris.'],
      [1, '. The'],
    ]);
    expect(two.usage!.prompt_tokens).toBe(11);
  });

  it('calls tools, streamed or not, and goes on with what they gave', async () => {
    const [line] = readPackedText('test/fixtures/eval/eval-tools.jsonl.br').split('\n');
    const set = JSON.parse(line!) as {
      messages: OpenAI.ChatCompletionMessageParam[];
      tools: OpenAI.ChatCompletionTool[];
      expected: { name: string; arguments: object };
    };
    const body = { model, messages: set.messages, tools: set.tools, temperature: 0 };
    const { choices } = await client.chat.completions.create(body);
    const { message, finish_reason } = choices[0]!;
    expect([finish_reason, message.content, message.tool_calls?.length]).toEqual(['tool_calls', null, 1]);
    const called = message.tool_calls![0] as OpenAI.ChatCompletionMessageFunctionToolCall;
    expect([called.function.name, JSON.parse(called.function.arguments)]).toEqual([
      set.expected.name,
      set.expected.arguments,
    ]);
    const streamed = await client.chat.completions.stream({ ...body, n: 2 }).finalChatCompletion();
    for (const choice of streamed.choices) {
      expect(choice.finish_reason).toBe('tool_calls');
      expect(choice.message.tool_calls![0]!.function).toMatchObject(called.function);
    }
    const answered = await client.chat.completions.create({
      ...body,
      messages: [
        ...set.messages,
        message,
        { role: 'tool', tool_call_id: called.id, content: '{"status": "done"}' },
      ],
      max_tokens: 40,
    });
    expect(answered.choices[0]!.message.content).toMatch(/\w/);
    // Without tools the same words are text.
    const text = await client.chat.completions.create({ ...body, tool_choice: 'none' });
    expect(text.choices[0]!.message.tool_calls).toBeUndefined();
  });

  it('lists its model with the KV format of every layer', async () => {
    const { data } = await client.models.list();
    expect(data[0]).toMatchObject({ id: model, object: 'model', max_model_len: 4096 });
    const kvant = (
      data[0] as unknown as { kvant: { kv: { bytes_per_token: number; layers: { key: string }[] } } }
    ).kvant;
    expect(kvant.kv.layers).toHaveLength(8);
    expect(kvant.kv.layers[0]!.key).toMatch(/^f(16|32)$/);
    expect(kvant.kv.layers[0]).toMatchObject({ key_bytes: kvant.kv.bytes_per_token / 16 });
    expect((await client.models.retrieve(model)).id).toBe(model);
  });

  it('refuses in the shape that the client knows', async () => {
    const base = { model, messages: question('Hi') };
    const refused = async (extra: object): Promise<APIError> => {
      try {
        await client.chat.completions.create({
          ...base,
          ...extra,
        } as OpenAI.ChatCompletionCreateParamsNonStreaming);
      } catch (error) {
        if (error instanceof APIError) return error;
        throw error;
      }
      throw new Error(`accepted ${JSON.stringify(extra)}`);
    };
    expect(await refused({ temperature: -1 })).toMatchObject({ status: 400, param: 'temperature' });
    expect(await refused({ logit_bias: { 5: 1000 } })).toMatchObject({ status: 400, param: 'logit_bias' });
    expect(await refused({ presence_penalty: 3 })).toMatchObject({ status: 400, param: 'presence_penalty' });
    expect(await refused({ nonsense: 1 })).toMatchObject({ status: 400, param: 'nonsense' });
    expect(await refused({ response_format: { type: 'zzz' } })).toMatchObject({
      status: 400,
      param: 'response_format',
    });
    expect(await refused({ stream: true, temperature: 'hot' })).toMatchObject({
      status: 400,
      param: 'temperature',
    });
    expect(await refused({ model: 'gpt-9' })).toBeInstanceOf(NotFoundError);
    const long = await refused({ messages: question('word '.repeat(5000)), stream: true });
    expect(long).toMatchObject({ status: 400, code: 'context_length_exceeded', param: 'messages' });
    expect(long.type).toBe('invalid_request_error');
    // What is asked for and what there is, in the words that clients look for.
    expect(long.message).toMatch(/maximum context length is 4096 tokens.* the messages have \d{4,} tokens\./);
    const prompt = client.completions.create({ model, prompt: 'word '.repeat(5000) });
    await expect(prompt).rejects.toMatchObject({
      status: 400,
      code: 'context_length_exceeded',
      param: 'prompt',
      message: expect.stringMatching(/ the prompt has \d{4,} tokens\./),
    });
  });

  it('serves 32 clients of mixed lengths while a third of them go away', { timeout: 180_000 }, async () => {
    const countries = ['Japan', 'France', 'Brazil', 'Kenya', 'Norway', 'Peru', 'Egypt', 'Canada'];
    const prompts = Array.from({ length: 32 }, (_, i) => {
      const filler = 'Here is some text that does not matter. '.repeat((i * 7) % 23);
      return `${filler}\nWhat is the capital of ${countries[i % 8]}?`;
    });
    const solo: string[] = [];
    for (const prompt of prompts) {
      const { choices } = await client.chat.completions.create({
        model,
        messages: question(prompt),
        temperature: 0,
        max_tokens: 24,
      });
      solo.push(choices[0]!.message.content!);
    }
    const together = await Promise.all(
      prompts.map(async (prompt, i) => {
        const body = { model, messages: question(prompt), temperature: 0, max_tokens: 24 };
        if (i % 3 === 0) {
          // Goes away: before the first token, in the middle, or without ever reading.
          const abort = new AbortController();
          if (i % 2 === 0) {
            setTimeout(() => abort.abort(), i * 3);
            await client.chat.completions.create(body, { signal: abort.signal }).catch(() => null);
          } else {
            const stream = await client.chat.completions.create({ ...body, stream: true });
            let seen = 0;
            for await (const _ of stream) if (++seen >= i % 5) break;
          }
          return null;
        }
        if (i % 2 === 0) return (await client.chat.completions.create(body)).choices[0]!.message.content;
        let text = '';
        for await (const chunk of await client.chat.completions.create({ ...body, stream: true })) {
          text += chunk.choices[0]?.delta.content ?? '';
        }
        return text;
      }),
    );
    together.forEach((text, i) => {
      if (text !== null) expect(text, `client ${i}`).toBe(solo[i]);
    });
    expect(together.filter((t) => t === null)).toHaveLength(11);
    await untilIdle(serving.engine);
  });
});
