/** Sampling parameters over HTTP: OpenAI's fields through its own client, and those that users know from elsewhere. */
import OpenAI, { APIError } from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { question, type Serving, serveDemo, untilIdle } from './serving.js';

describe('sampling over HTTP', () => {
  let serving: Serving;
  let client: OpenAI;
  const model = 'demo-text';
  const messages = question('What is the capital of Japan?');
  beforeAll(async () => {
    serving = await serveDemo({ maxRows: 8 });
    client = new OpenAI({ baseURL: `${serving.url}/v1`, apiKey: 'none', maxRetries: 0 });
  });
  afterAll(async () => {
    await serving.close();
  });

  it('gives log-probabilities of a chat, whole and streamed', async () => {
    const body = { model, messages, temperature: 0, logprobs: true, top_logprobs: 3 };
    const { choices } = await client.chat.completions.create(body);
    const content = choices[0]!.logprobs!.content!;
    // All tokens but the one that ended the answer: their bytes are the text.
    const bytes = content.flatMap((entry) => entry.bytes!);
    expect(Buffer.from(bytes).toString()).toBe(choices[0]!.message.content);
    for (const { token, logprob, top_logprobs } of content) {
      expect(top_logprobs).toHaveLength(3);
      expect(top_logprobs[0]).toMatchObject({ token, logprob });
      expect(logprob).toBeLessThanOrEqual(0);
    }
    const streamed: typeof content = [];
    let text = '';
    for await (const chunk of await client.chat.completions.create({ ...body, stream: true })) {
      const choice = chunk.choices[0]!;
      text += choice.delta.content ?? '';
      streamed.push(...(choice.logprobs?.content ?? []));
    }
    expect(text).toBe(choices[0]!.message.content);
    expect(streamed).toEqual(content);
  });

  it('gives none where none were asked for', async () => {
    const { choices } = await client.chat.completions.create({ model, messages, temperature: 0 });
    expect(choices[0]!.logprobs).toBeNull();
  });

  it('gives log-probabilities of completions, whole and streamed', async () => {
    const body = { model, prompt: 'The capital of France is', temperature: 0, max_tokens: 4, logprobs: 2 };
    const { choices } = await client.completions.create(body);
    const { tokens, token_logprobs, top_logprobs, text_offset } = choices[0]!.logprobs!;
    expect(tokens!.join('')).toBe(choices[0]!.text);
    expect(text_offset).toEqual(tokens!.map((_, i) => tokens!.slice(0, i).join('').length));
    top_logprobs!.forEach((top, i) => {
      expect(top[tokens![i]!]).toBe(token_logprobs![i]);
      expect(Object.keys(top)).toHaveLength(2);
    });
    const parts = { tokens: [] as string[], offsets: [] as number[] };
    for await (const chunk of await client.completions.create({ ...body, stream: true })) {
      parts.tokens.push(...(chunk.choices[0]!.logprobs?.tokens ?? []));
      parts.offsets.push(...(chunk.choices[0]!.logprobs?.text_offset ?? []));
    }
    expect(parts).toEqual({ tokens, offsets: text_offset });
    const own = await client.completions.create({ ...body, logprobs: 0 });
    expect(own.choices[0]!.logprobs!.top_logprobs!.map((top) => Object.keys(top).length)).toEqual([
      1, 1, 1, 1,
    ]);
  });

  it('gives offsets in characters of the text, also of tokens that are parts of characters', async () => {
    // A few tokens at random: the bytes of two characters, a word, and a special one.
    const { engine } = serving;
    const wanted = [...Array(engine.info.model.vocabSize).keys()].filter((id) => {
      const bytes = Buffer.from(engine.tokenBytes(id));
      return (
        ['f0', '9f', '98', '80', 'c3', 'a9'].includes(bytes.toString('hex')) || bytes.toString() === ' the'
      );
    });
    const [special] = engine.info.model.eosTokenIds;
    const logit_bias = Object.fromEntries([...wanted, special!].map((id) => [id, 100]));
    const body = { model, prompt: 'x', temperature: 10, seed: 5, max_tokens: 250, logprobs: 0, logit_bias };
    expect(wanted).toHaveLength(7);
    const ask = { ...body, ignore_eos: true } as OpenAI.CompletionCreateParamsNonStreaming;
    const [choice] = (await client.completions.create(ask)).choices;
    const { text, logprobs } = choice!;
    const tokens = logprobs!.tokens!;
    const offsets = logprobs!.text_offset!;
    const characters = [...text];
    const specials = tokens.filter((token) => /^<\|.*\|>$/.test(token)).length;
    const parts = tokens.filter((token) => token.startsWith('bytes:')).length;
    expect([specials > 20, parts > 100, text.includes('é'), tokens.length]).toEqual([true, true, true, 250]);
    let followed = 0;
    for (const [i, token] of tokens.entries()) {
      const at = offsets[i]!;
      expect(at).toBeGreaterThanOrEqual(offsets[i - 1] ?? 0);
      if (token.startsWith('bytes:') || /^<\|.*\|>$/.test(token)) continue;
      // A token of whole characters is found where it is said to be.
      expect(characters.slice(at, at + [...token].length).join('')).toBe(token);
      followed++;
    }
    expect(followed).toBeGreaterThan(20);
    const streamed: number[] = [];
    const stream = await client.completions.create({ ...ask, stream: true });
    for await (const chunk of stream) streamed.push(...(chunk.choices[0]!.logprobs?.text_offset ?? []));
    expect(streamed).toEqual(offsets);
  });

  it('takes biases, penalties and best_of as OpenAI spells them', async () => {
    const id = 77;
    const biased = await client.completions.create({
      model,
      prompt: 'The capital of France is',
      max_tokens: 3,
      temperature: 0,
      logit_bias: { [id]: 100 },
    });
    expect(biased.choices[0]!.text).toBe(serving.engine.detokenize([id, id, id]));
    const story = {
      model,
      messages: question('Tell me a story about a dragon.'),
      temperature: 0,
      max_tokens: 60,
    };
    const text = async (extra: object): Promise<string> =>
      (await client.chat.completions.create({ ...story, ...extra })).choices[0]!.message.content!;
    const plain = await text({});
    const penalised = await text({ frequency_penalty: 2, presence_penalty: 1.5 });
    const different = (words: string): number => new Set(words.split(/\s+/)).size / words.split(/\s+/).length;
    expect(penalised).not.toBe(plain);
    expect(different(penalised)).toBeGreaterThan(different(plain));
    const best = await client.completions.create({
      model,
      prompt: 'Once upon a time',
      best_of: 4,
      n: 2,
      seed: 5,
      max_tokens: 8,
      temperature: 1.2,
    });
    expect(best.choices.map(({ index }) => index)).toEqual([0, 1]);
    expect(best.usage!.completion_tokens).toBe(32);
  });

  it('takes the parameters of other servers, and the same request twice gives the same answer', async () => {
    const ask = async (extra: object): Promise<string> => {
      const response = await serving.post('/v1/chat/completions', {
        messages: question('Tell me a story about a dragon.'),
        seed: 11,
        max_tokens: 16,
        ...extra,
      });
      const body = (await response.json()) as { choices: { message: { content: string } }[] };
      expect(response.status, JSON.stringify(body)).toBe(200);
      return body.choices[0]!.message.content;
    };
    for (const extra of [
      { repeat_penalty: 1.3, repeat_last_n: 64 },
      { repetition_penalty: 1.2, repetition_context_size: 20 },
      {
        dry_multiplier: 0.8,
        dry_base: 1.75,
        dry_allowed_length: 2,
        dry_penalty_last_n: -1,
        dry_sequence_breakers: ['\n', '###'],
      },
      { typical_p: 0.8 },
      { typ_p: 0.8 },
      { top_n_sigma: 1.5 },
      { xtc_probability: 0.5, xtc_threshold: 0.1 },
      { mirostat: 2, mirostat_tau: 4, mirostat_eta: 0.1 },
      { mirostat_mode: 0, min_tokens: 5, bad_words: ['dragon'], suppress_tokens: [5], stop_token_ids: [9] },
      { logprobs: true, logprobs_mode: 'processed_logprobs', top_k: 40, min_p: 0.05 },
    ])
      expect(await ask(extra), JSON.stringify(extra)).toBe(await ask(extra));
    expect(await ask({ typical_p: 0.8 })).toBe(await ask({ typ_p: 0.8 }));
  });

  it('names the field in a refusal, also where only the engine can tell', async () => {
    const refused = async (extra: object): Promise<APIError> => {
      try {
        await client.chat.completions.create({ model, messages, ...extra });
      } catch (error) {
        if (error instanceof APIError) return error;
        throw error;
      }
      throw new Error(`accepted ${JSON.stringify(extra)}`);
    };
    for (const [extra, param, said] of [
      [{ logit_bias: { 99999999: 1 } }, 'logit_bias', 'the model knows 0 to'],
      [{ logit_bias: { hello: 1 } }, 'logit_bias', 'token ids'],
      [{ suppress_tokens: [99999999] }, 'suppress_tokens', '99999999'],
      [{ stop_token_ids: [99999999] }, 'stop_token_ids', '99999999'],
      [{ bad_words: ['word '.repeat(50)] }, 'bad_words', '`bad_words`'],
      [{ repetition_penalty: 0 }, 'repetition_penalty', 'got 0'],
      [{ frequency_penalty: 2.5 }, 'frequency_penalty', '-2 to 2'],
      [{ top_logprobs: 2 }, 'top_logprobs', 'logprobs'],
      [{ logprobs: true, top_logprobs: 21 }, 'top_logprobs', '0 to 20'],
      [{ mirostat: 2, top_p: 0.5 }, 'top_p', 'mirostat'],
      [{ min_tokens: 9, max_tokens: 3 }, 'min_tokens', 'max_tokens'],
      [{ n: 3, best_of: 2 }, 'best_of', '`n`'],
    ] as const) {
      const error = await refused(extra);
      expect([error.status, error.param], JSON.stringify(extra)).toEqual([400, param]);
      expect(error.message).toContain(said);
    }
  });

  it('reports the defaults, and leaves no state behind', async () => {
    const { data } = (await (await fetch(`${serving.url}/v1/models`)).json()) as {
      data: { kvant: { sampling_defaults: object } }[];
    };
    expect(data[0]!.kvant.sampling_defaults).toEqual(serving.engine.info.samplingDefaults);
    expect((await untilIdle(serving.engine)).device.samplerBytes).toBe(0);
  });
});
