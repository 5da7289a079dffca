/** Answers that are read by a schema of zod. */
import { afterAll, beforeAll, describe, expect, expectTypeOf, it } from 'vitest';
import { z } from 'zod';
import * as v3 from 'zod/v3';
import { Engine } from '../../src/engine/engine.js';
import { readTypedSchema } from '../../src/engine/typed-schema.js';
import { compileAsk } from '../../src/grammar/ask.js';
import { MODEL, refusal } from './engine-harness.js';

const messages = [{ role: 'user', content: 'Tell me of a dog.' }];
const Dog = z.object({
  name: z.string().max(12),
  kind: z.enum(['terrier', 'poodle']),
  age: z.int().min(0).max(30),
  born: z.iso.date().transform((text) => new Date(text)),
});

describe('answers read by a schema of zod', () => {
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

  it('are typed, and what the schema reads', async () => {
    const { value, choices } = await engine.chat({
      messages,
      schema: Dog,
      n: 6,
      temperature: 1.3,
      seed: 4,
      maxTokens: 160,
      parseReasoning: false,
    }).result;
    expectTypeOf(value).toEqualTypeOf<z.output<typeof Dog> | null>();
    expect(value).toEqual(choices[0]!.value);
    const whole = choices.filter(({ finishReason }) => finishReason === 'stop');
    expect(whole.length).toBeGreaterThan(2);
    for (const { value: read, text } of whole) {
      expect(read).toEqual(Dog.parse(JSON.parse(text)));
      expect((read as z.output<typeof Dog>).born).toBeInstanceOf(Date);
    }
    const cut = await engine.chat({ messages, schema: Dog, maxTokens: 2, parseReasoning: false }).result;
    expect([cut.finishReason, cut.value]).toEqual(['length', null]);
  });

  it('are held to what zod says, in JSON Schema that can be enforced', async () => {
    const schema = z.object({ mail: z.email(), tags: z.record(z.string(), z.boolean()).optional() });
    const { json, read } = readTypedSchema(schema)!;
    expect(json).toEqual({
      type: 'object',
      properties: {
        // What the format's name would allow besides, zod refuses.
        mail: { type: 'string', pattern: z.regexes.email.source },
        tags: { type: 'object', additionalProperties: { type: 'boolean' } },
      },
      required: ['mail'],
      additionalProperties: false,
    });
    compileAsk({ kind: 'schema', schema: JSON.stringify(json), strict: false });
    expect(await read('{"mail":"a@b.org"}')).toEqual({ mail: 'a@b.org' });
    // What a refinement of zod refuses is no value.
    expect(await read('{"mail":"a..b@c.org"}')).toBe(null);
    expect(await read('{"mail":')).toBe(null);
  });

  const formats: Readonly<Record<string, z.ZodType>> = {
    datetime: z.iso.datetime({ precision: 0 }),
    offset: z.iso.datetime({ offset: true, precision: 3 }),
    date: z.iso.date(),
    duration: z.iso.duration(),
    uuid: z.uuidv4(),
    host: z.hostname(),
    ip: z.ipv6(),
  };
  it.each(Object.keys(formats))('are such as zod reads: %s', async (name) => {
    const schema = z.tuple([formats[name]!]);
    const { choices } = await engine.chat({
      messages,
      schema,
      n: 6,
      seed: 1,
      temperature: 1.3,
      maxTokens: 100,
      parseReasoning: false,
    }).result;
    const whole = choices.filter(({ finishReason }) => finishReason === 'stop');
    expect(whole.length).toBeGreaterThan(0);
    for (const { text, value } of whole) expect(value, text).not.toBe(null);
  });

  it('may be read in a while; where a refinement throws, the result is that', async () => {
    const ask = (schema: z.ZodType) =>
      engine.chat({ messages, schema, temperature: 0, maxTokens: 60, parseReasoning: false });
    const later = z.object({ a: z.string().max(4) }).refine(async () => true);
    const { value, text } = await ask(later).result;
    expect(value).toEqual(JSON.parse(text));
    const thrower = z.literal('x').refine(() => {
      throw new RangeError('boom');
    });
    const broken = ask(thrower);
    expect(await refusal(broken.result)).toMatchObject({
      code: 'invalid-parameter',
      where: 'schema',
      message: expect.stringContaining('boom'),
    });
    let told = '';
    for await (const delta of broken) told += delta.text;
    expect(told).toBe('"x"');
  });

  it('leave answers of plain schemas as they were', async () => {
    const { text, ...rest } = await engine.chat({ messages, schema: { const: 1 }, parseReasoning: false })
      .result;
    expect(text).toBe('1');
    expect(rest).not.toHaveProperty('value');
  });

  it('say no to zod 3, and to what JSON has no form for', async () => {
    const old = v3.z.object({ a: v3.z.string() });
    expect(await refusal(engine.chat({ messages, schema: old as never }).accepted)).toMatchObject({
      code: 'invalid-parameter',
      where: 'schema',
      message: '`schema` is a schema of zod 3.',
    });
    const date = z.object({ a: z.date() });
    expect(await refusal(engine.chat({ messages, schema: date }).accepted)).toMatchObject({
      code: 'unsupported-schema',
      where: 'schema',
    });
    expect(readTypedSchema({ type: 'string' })).toBe(null);
    expect(readTypedSchema(true)).toBe(null);
  });
});
