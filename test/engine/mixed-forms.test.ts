/** Rows that are held to different forms, and rows that are held to none, in one batch: each is as it is alone. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import type { ChatRequest, GenerateRequest, GenerationResult } from '../../src/engine/types.js';
import { everyCase } from '../setup/every-case.js';
import { MODEL } from './engine-harness.js';

const messages = [
  { role: 'user', content: 'What is the weather in Rome? Tell me of a dog as well, please.' },
];
const parameters = {
  type: 'object',
  properties: { city: { type: 'string', maxLength: 9 }, unit: { enum: ['celsius', 'fahrenheit'] } },
  required: ['city', 'unit'],
  additionalProperties: false,
};
const tools = [{ type: 'function', function: { name: 'get_weather', parameters, strict: true } }];
const schema = {
  type: 'object',
  properties: {
    name: { type: 'string', maxLength: 30 },
    age: { type: 'integer' },
    good: { type: 'boolean' },
  },
  required: ['name', 'age', 'good'],
  additionalProperties: false,
};

/** What is asked for, under seeds of its own. */
const FORMS: readonly Partial<ChatRequest>[] = [
  { schema },
  {},
  { regex: '[A-Z][a-z]{2,12}( [a-z]+){4,9}\\.' },
  { tools, toolChoice: 'required' },
  { tools },
  { choice: ['It rains.', 'It is sunny and warm.', 'I do not know.'] },
  { json: true },
  { schema: { type: 'array', items: { type: 'string', pattern: '^[a-z]{3,8}$' }, minItems: 3, maxItems: 6 } },
];
const requests = (): ChatRequest[] =>
  Array.from({ length: everyCase ? 40 : 8 }, (_, i) => ({
    messages,
    temperature: 0.9,
    seed: 7 * i + 1,
    maxTokens: 24 + (i % 5) * 8,
    parseReasoning: false,
    ...FORMS[i % FORMS.length],
  }));

describe('rows of different forms', () => {
  let free: Engine;
  beforeAll(async () => {
    free = await Engine.load(MODEL, {
      device: 'cpu',
      threads: 2,
      maxRows: 4,
      maxContext: 512,
      prefixCache: false,
      worker: false,
    });
  });
  afterAll(() => free.close());
  const idsOf = ({ tokenIds }: GenerationResult): readonly number[] => tokenIds;

  it('are as they are alone, through preemption, prefix hits and aborts', async () => {
    const alone: (readonly number[])[] = [];
    for (const request of requests()) alone.push(idsOf(await free.chat(request).result));
    const { bytesPerToken } = free.info.kv;
    await using engine = await Engine.load(MODEL, {
      device: 'cpu',
      threads: 2,
      maxRows: 8,
      maxContext: 240,
      maxBatchTokens: 40,
      kvMemory: 256 * bytesPerToken,
      worker: false,
    });
    const aborted = requests().map((request, i) => engine.chat({ ...request, seed: 1000 + i }));
    const together = requests().map((request) => engine.chat(request));
    for (const [i, generation] of aborted.entries())
      void (async () => {
        for await (const _ of generation) if (i % 3 > 0) generation.cancel();
      })();
    const results = await Promise.all(together.map(({ result }) => result));
    expect(results.map(idsOf)).toEqual(alone);
    await Promise.all(aborted.map(({ result }) => result));
    const { preemptions } = await engine.stats();
    expect(preemptions).toBeGreaterThan(0);
    expect(results.some(({ usage }) => usage.cachedTokens > 0)).toBe(true);
    // Some said nothing of the kind, or the test would show little.
    expect(results.filter(({ finishReason }) => finishReason === 'stop').length).toBeGreaterThan(2);
  });

  it('stop, are biased, and tell the log-probabilities of the model', async () => {
    const ask = (more: Partial<GenerateRequest>) =>
      free.generate({ prompt: 'The capital of France is', temperature: 0, ...more }).result;
    const stopped = await ask({ schema: { const: 'one-two' }, stop: ['-t'] });
    expect([stopped.text, stopped.finishReason]).toEqual(['"one', 'stop']);
    const begins = (text: string): number => free.tokenize(text, { addSpecialTokens: false })[0]!;
    const choice = ['alpha', 'zulu'];
    for (const word of choice)
      expect((await ask({ choice, logitBias: { [begins(word)]: 90 } })).text).toBe(word);
    expect((await ask({ choice: ['zulu'], logitBias: { [begins('zulu')]: -90 } })).text).toBe('zulu');

    const said = await ask({ maxTokens: 4, logprobs: true, topLogprobs: 2 });
    const held = await ask({ choice: [said.text], logprobs: true, topLogprobs: 2 });
    expect(held.tokenIds.slice(0, 4)).toEqual(said.tokenIds);
    expect(held.choices[0]!.logprobs!.slice(0, 4)).toEqual(said.choices[0]!.logprobs);
    // What is ruled out has a probability nonetheless.
    const odd = await ask({ choice: ['zulu'], logprobs: true, topLogprobs: 2 });
    expect(odd.choices[0]!.logprobs![0]!.top).toEqual(said.choices[0]!.logprobs![0]!.top);
  });
});
