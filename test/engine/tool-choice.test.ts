/** Calls that a real model is held to, drawn at a temperature at which it writes nonsense. */
import { Ajv2020 } from 'ajv/dist/2020.js';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { judgeAnswer, readQuestions } from '../../src/cli/eval/question-sets.js';
import { Engine } from '../../src/engine/engine.js';
import type { ChatRequest, ToolChoice } from '../../src/engine/types.js';
import { everyCase } from '../setup/every-case.js';
import { MODEL, refusal } from './engine-harness.js';

const messages = [{ role: 'user', content: 'What is the weather in Rome?' }];
const weather = {
  type: 'object',
  properties: { city: { type: 'string', maxLength: 12 }, unit: { enum: ['celsius', 'fahrenheit'] } },
  required: ['city', 'unit'],
  additionalProperties: false,
};
const light = {
  type: 'object',
  properties: { on: { type: 'boolean' }, level: { type: 'integer', minimum: 0, maximum: 9 } },
  required: ['on'],
  additionalProperties: false,
};
const tools = [
  { type: 'function', function: { name: 'get_weather', parameters: weather } },
  { type: 'function', function: { name: 'set_light', parameters: light } },
];

interface AskedFunction {
  readonly name: string;
  readonly parameters: object;
}
/** Some of the set are functions by themselves. */
const functionOf = (tool: unknown): AskedFunction =>
  (tool as { function?: AskedFunction }).function ?? (tool as AskedFunction);

describe('tool choice', () => {
  let engine: Engine;
  beforeAll(async () => {
    engine = await Engine.load(MODEL, {
      device: 'cpu',
      threads: 2,
      maxRows: 8,
      maxContext: 1024,
      worker: false,
    });
  });
  afterAll(() => engine.close());

  const validators: Record<string, (value: unknown) => boolean> = {
    get_weather: new Ajv2020().compile(weather),
    set_light: new Ajv2020().compile(light),
  };
  const ask = (toolChoice: ToolChoice, more: Partial<ChatRequest> = {}) =>
    engine.chat({ messages, tools, toolChoice, temperature: 1.5, maxTokens: 200, seed: 3, n: 6, ...more })
      .result;

  it('has the model call, with arguments that fit', async () => {
    const [required, named, allowed] = await Promise.all([
      ask('required', { parallelToolCalls: false }),
      ask({ name: 'set_light' }),
      ask({ mode: 'required', tools: ['set_light'] }, { parallelToolCalls: false }),
    ]);
    const called = new Set<string>();
    for (const [i, { choices }] of [required, named, allowed].entries())
      for (const { toolCalls, text, finishReason } of choices) {
        if (finishReason !== 'stop') continue;
        expect([text, toolCalls.length]).toEqual(['', 1]);
        const { name, arguments: given } = toolCalls[0]!.function;
        if (i > 0) expect(name).toBe('set_light');
        called.add(name);
        expect([given, validators[name]!(JSON.parse(given))]).toEqual([given, true]);
      }
    expect(called.size).toBe(2);
  });

  it('holds strict tools to their schemas where the model may call, and lets it answer', async () => {
    const strict = tools.map((tool) => ({ ...tool, function: { ...tool.function, strict: true } }));
    // Without it the model leaves out what the schema requires.
    const [free, held] = await Promise.all([
      ask('auto', { temperature: 0, n: 1 }),
      ask('auto', { temperature: 0, n: 1, tools: strict }),
    ]);
    const given = (result: typeof free): unknown => JSON.parse(result.toolCalls[0]!.function.arguments);
    expect(given(free)).toEqual({ city: 'Rome' });
    expect(given(held)).toMatchObject({ city: 'Rome', unit: expect.any(String) });
    expect(validators.get_weather!(given(held))).toBe(true);
    const drawn = await ask('auto', { tools: strict, temperature: 1.2 });
    for (const { toolCalls, finishReason } of drawn.choices)
      for (const { function: fn } of finishReason === 'stop' ? toolCalls : [])
        expect([fn, validators[fn.name]!(JSON.parse(fn.arguments))]).toEqual([fn, true]);
    const chat = { messages: [{ role: 'user', content: 'Hello! Who are you?' }], temperature: 0 };
    expect((await ask('auto', { ...chat, n: 1, tools: strict })).text).toBe(
      (await ask('auto', { ...chat, n: 1 })).text,
    );
  });

  it('goes with a form of the answer: the model calls, or answers in it', async () => {
    const schema = {
      type: 'object',
      properties: { a: { const: 1 } },
      required: ['a'],
      additionalProperties: false,
    };
    const { choices } = await ask('auto', { schema });
    for (const { text, toolCalls, finishReason } of choices)
      if (finishReason === 'stop' && toolCalls.length === 0) expect(JSON.parse(text)).toEqual({ a: 1 });
    const called = await ask({ name: 'get_weather' }, { schema, temperature: 0, n: 1 });
    expect(called.toolCalls[0]!.function.name).toBe('get_weather');
  });

  it('shows no tools with none, and refuses what cannot be', async () => {
    const none = await ask('none', { temperature: 0, n: 1, maxTokens: 8 });
    const without = await engine.chat({ messages, temperature: 0, maxTokens: 8 }).result;
    expect(none.tokenIds).toEqual(without.tokenIds);
    const bad = [{ type: 'function', function: { name: 'f', parameters: { $dynamicRef: '#a' } } }];
    expect(
      await refusal(engine.chat({ messages, tools: bad, toolChoice: 'required' }).accepted),
    ).toMatchObject({
      code: 'unsupported-schema',
      where: 'tools[0].function.parameters',
    });
    expect(
      await refusal(engine.chat({ messages, tools, toolChoice: 'required', ignoreEos: true }).accepted),
    ).toMatchObject({
      code: 'conflicting-parameters',
      where: 'ignoreEos',
    });
  });

  // With every case each question at temperature 0, and 40 of them drawn: 100 calls. A few show the same in less time.
  it('answers questions of the tools set with calls that fit', { timeout: 600_000 }, async () => {
    const all = await readQuestions('test/fixtures/eval/eval-tools.jsonl.br');
    const greedy = all.slice(0, everyCase ? 60 : 4);
    const questions = [...greedy, ...(everyCase ? all.slice(0, 40) : [])];
    const answers = await Promise.all(
      questions.map(
        (question, i) =>
          engine.chat({
            messages: question.messages,
            tools: question.tools!,
            toolChoice: 'required',
            parallelToolCalls: false,
            temperature: i < greedy.length ? 0 : 1,
            seed: i,
            maxTokens: 300,
          }).result,
      ),
    );
    const right = answers.filter(({ toolCalls, text }, i) => {
      expect([toolCalls.length, text]).toEqual([1, '']);
      const { name, arguments: given } = toolCalls[0]!.function;
      const call = { name, arguments: JSON.parse(given) as unknown };
      const tool = questions[i]!.tools!.map(functionOf).find((one) => one.name === name)!;
      const fits = new Ajv2020({ strict: false }).compile(tool.parameters);
      expect([given, fits(call.arguments)]).toEqual([given, true]);
      return (
        i < greedy.length && judgeAnswer(questions[i]!, `<tool_call>${JSON.stringify(call)}</tool_call>`)
      );
    });
    expect(right.length).toBeGreaterThanOrEqual(greedy.filter(({ referenceOk }) => referenceOk).length);
  });
});
