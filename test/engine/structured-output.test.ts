/** Answers of a real model, drawn at a temperature at which it writes nonsense, that have the form they are held to. */
import { Ajv2020 } from 'ajv/dist/2020.js';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import type { GenerationResult } from '../../src/engine/types.js';
import { everyCase } from '../setup/every-case.js';
import { MODEL, refusal } from './engine-harness.js';

const messages = [{ role: 'user', content: 'Tell me of a dog.' }];
const SCHEMAS: readonly Record<string, unknown>[] = [
  {
    type: 'object',
    properties: {
      name: { type: 'string', maxLength: 12 },
      age: { type: 'integer', minimum: 0, maximum: 30 },
      kind: { enum: ['terrier', 'größer', 'poodle'] },
      friends: { type: 'array', items: { $ref: '#' }, maxItems: 2 },
    },
    required: ['name', 'kind'],
    additionalProperties: false,
  },
  { type: 'array', items: { type: ['number', 'null', 'boolean'] }, minItems: 2, maxItems: 5 },
  {
    anyOf: [
      {
        type: 'object',
        properties: { type: { const: 'a' }, x: { type: 'string', pattern: '^[a-f]{2,9}$' } },
        required: ['type', 'x'],
        additionalProperties: false,
      },
      {
        type: 'object',
        properties: {
          type: { const: 'b' },
          y: { type: 'array', items: { type: 'string', maxLength: 3 }, maxItems: 3 },
        },
        required: ['type'],
        additionalProperties: false,
      },
    ],
  },
];

describe('structured output', () => {
  let engine: Engine;
  beforeAll(async () => {
    engine = await Engine.load(MODEL, {
      device: 'cpu',
      threads: 2,
      maxRows: 8,
      maxContext: 512,
      worker: false,
    });
  });
  afterAll(() => engine.close());
  let answered = 0;

  // Of a chat the answer alone: this model likes to think.
  const options = { temperature: 1.5, maxTokens: 160 };
  const plain = { parseReasoning: false } as const;
  /** Answers that ended by themselves: those that were cut are whole as far as they go. */
  const whole = ({ choices }: GenerationResult): string[] =>
    choices.filter(({ finishReason }) => finishReason === 'stop').map(({ text }) => text);

  // With every case some 900 answers, of which more than 500 end by themselves.
  it.each(Array.from({ length: everyCase ? 30 : 1 }, (_, round) => round))(
    'follows schemas, round %s',
    async (round) => {
      const ajv = new Ajv2020({ strict: false });
      const results = await Promise.all(
        SCHEMAS.map(
          (schema, i) =>
            engine.chat({ messages, schema, n: 10, seed: 10 * round + i, ...options, ...plain }).result,
        ),
      );
      results.forEach((result, i) => {
        const validate = ajv.compile(SCHEMAS[i]!);
        const texts = whole(result);
        expect(texts.length).toBeGreaterThan(everyCase ? 1 : 5);
        for (const text of texts) expect([validate(JSON.parse(text)), text]).toEqual([true, text]);
        expect(new Set(texts).size).toBeGreaterThan(1);
        answered += texts.length;
      });
    },
  );

  it('has answered many', () => {
    expect(answered).toBeGreaterThan(everyCase ? 500 : 15);
  });

  it('follows patterns and choices, of raw prompts too, beside free rows', async () => {
    const prompt = 'The dog';
    const free = await engine.generate({ prompt, seed: 5, ...options, maxTokens: 20 }).result;
    const [regex, choice, json, beside] = await Promise.all([
      engine.generate({ prompt, regex: '[A-Z][a-z]{2,8}( [a-z]+){3}\\.', n: 4, ...options }).result,
      engine.chat({ messages, choice: ['yes', 'no', 'yes, but'], n: 6, ...options, ...plain }).result,
      engine.chat({ messages, json: true, n: 2, ...options, ...plain }).result,
      engine.generate({ prompt, seed: 5, ...options, maxTokens: 20 }).result,
    ]);
    for (const text of whole(regex)) expect(text).toMatch(/^[A-Z][a-z]{2,8}( [a-z]+){3}\.$/);
    for (const text of whole(choice)) expect(['yes', 'no', 'yes, but']).toContain(text);
    for (const text of whole(json)) expect(JSON.parse(text)).toBeTypeOf('object');
    expect(whole(choice)).toHaveLength(6);
    expect(beside.tokenIds).toEqual(free.tokenIds);
  });

  it('ends where the value is complete', async () => {
    const { text, tokenIds, finishReason } = await engine.chat({
      messages,
      schema: { const: [1, 'a'] },
      ...options,
      ...plain,
    }).result;
    expect(finishReason).toBe('stop');
    expect(JSON.parse(text)).toEqual([1, 'a']);
    expect(engine.info.model.eosTokenIds).toContain(tokenIds.at(-1));
  });

  it('lets the model think before it answers', async () => {
    const logitBias = { [engine.tokenize('<think>', { addSpecialTokens: false })[0]!]: 100 };
    const { choices } = await engine.chat({ messages, choice: ['yes', 'no'], n: 4, logitBias, ...options })
      .result;
    for (const { text, finishReason, reasoning } of choices) {
      expect(reasoning).not.toBe('');
      if (finishReason === 'stop') expect(['yes', 'no']).toContain(text);
      else expect(text).toBe('');
    }
  });

  it('says so where the request forbids all that may come', async () => {
    const ids = Array.from({ length: engine.info.model.vocabSize }, (_, id) => id);
    const suppressTokens = ids.filter((id) => engine.tokenBytes(id)[0] === 0x7a);
    const { choices } = await engine.generate({ prompt: 'The', choice: ['zoo'], suppressTokens }).result;
    expect(choices[0]!.error).toMatchObject({ code: 'no-token-left', status: 400 });
  });

  it('refuses what cannot be enforced, and what contradicts it', async () => {
    const refused = (request: object) => refusal(engine.chat({ messages, ...request }).result);
    expect(await refused({ schema: { $dynamicRef: '#a' } })).toMatchObject({
      code: 'unsupported-schema',
      where: 'schema',
      status: 400,
    });
    expect(await refused({ schema: { type: 'strin' } })).toMatchObject({ code: 'invalid-schema' });
    expect(await refused({ schema: {}, regex: 'a' })).toMatchObject({
      code: 'conflicting-parameters',
      where: 'regex',
    });
    expect(await refused({ json: true, ignoreEos: true })).toMatchObject({
      code: 'conflicting-parameters',
      where: 'ignoreEos',
    });
    expect(await refused({ json: true, minTokens: 3 })).toMatchObject({
      code: 'conflicting-parameters',
      where: 'minTokens',
    });
    expect(await refused({ regex: '(' })).toMatchObject({ code: 'invalid-pattern' });
  });
});
