/** Tools that carry their handlers, called by a real model. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { Engine } from '../../src/engine/engine.js';
import type { ToolContext } from '../../src/engine/tool-run.js';
import type { ToolCall } from '../../src/engine/types.js';
import { MODEL, refusal } from './engine-harness.js';

const messages = [{ role: 'user', content: 'What is the weather in Rome?' }];
const parameters = z.object({ city: z.string(), unit: z.enum(['celsius', 'fahrenheit']).optional() });
type Args = z.output<typeof parameters>;

describe('a run of tools', () => {
  let engine: Engine;
  beforeAll(async () => {
    engine = await Engine.load(MODEL, {
      device: 'cpu',
      threads: 2,
      maxRows: 4,
      maxContext: 1024,
      worker: false,
    });
  });
  afterAll(() => engine.close());
  const description = 'Current weather of a place';
  const options = { messages, temperature: 0, maxTokens: 80 };
  const weather = (run: (args: Args, context: ToolContext) => unknown) => [
    { name: 'get_weather', description, parameters, run },
  ];

  it('calls them, and answers with what they say', async () => {
    const asked: Args[] = [];
    const result = await engine.runTools({
      ...options,
      toolChoice: 'required',
      tools: weather(async (args, { id }) => {
        expect(id).toMatch(/^call_/);
        asked.push(args);
        return { weather: 'sunny' };
      }),
    });
    expect(asked).toEqual([{ city: 'Rome' }]);
    expect([result.rounds, result.toolCalls, result.finishReason]).toEqual([2, [], 'stop']);
    expect(result.text).toMatch(/\w/);
    expect(result.messages.map(({ role }) => role)).toEqual(['assistant', 'tool', 'assistant']);
    expect(result.messages[1]).toMatchObject({ content: '{"weather":"sunny"}', name: 'get_weather' });
    expect(result.usage.completionTokens).toBeGreaterThan(result.tokenIds.length);
  });

  it('tells the model of a call that was cut off, as a conversation takes it', async () => {
    const asked: unknown[] = [];
    const result = await engine.runTools({
      ...options,
      toolChoice: 'required',
      // Within the arguments of the first call.
      stop: ['Rom'],
      maxRounds: 2,
      tools: weather((args) => asked.push(args)),
    });
    expect(asked).toEqual([]);
    expect(result.rounds).toBe(2);
    const [call, told] = result.messages;
    const [{ function: made }] = call!.tool_calls as [ToolCall];
    expect(made).toEqual({ name: 'get_weather', arguments: '{}' });
    expect(JSON.parse(told!.content as string).error).toContain('{"city": "');
  });

  it('is what a chat becomes whose tools carry handlers, and streams its answers', async () => {
    const run = engine.chat({ ...options, tools: weather(() => ({ weather: 'sunny' })) });
    const names: unknown[] = [];
    const ends: unknown[] = [];
    let text = '';
    for await (const delta of run) {
      text += delta.text;
      for (const call of delta.toolCalls ?? []) if (call.id !== undefined) names.push(call.function.name);
      if (delta.finishReason !== null) ends.push(delta.finishReason);
    }
    const result = await run.result;
    expect([names, ends, result.rounds]).toEqual([['get_weather'], ['stop', 'stop'], 2]);
    expect(text).toBe(result.text);
    const refused = engine.chat({ ...options, maxRounds: 0, tools: weather(() => '') });
    expect(await refusal(refused.result)).toMatchObject({ where: 'maxRounds' });
    await expect(refused[Symbol.asyncIterator]().next()).rejects.toMatchObject({ where: 'maxRounds' });
    const left = engine.chat({ ...options, tools: weather(() => '') });
    for await (const delta of left) if (delta.finishReason === null) break;
    expect(await left.result).toMatchObject({ finishReason: 'cancelled', rounds: 1 });
    let told: boolean | undefined;
    const ended: { readonly result: Promise<object>; cancel(): void } = engine.chat({
      ...options,
      toolChoice: 'required',
      tools: weather((_, { signal }) => {
        ended.cancel();
        told = signal?.aborted;
      }),
    });
    expect(await ended.result).toMatchObject({ finishReason: 'cancelled', rounds: 2 });
    expect(told).toBe(true);
  });

  it('tells the model what went wrong, and ends at its limit', async () => {
    const failing = weather(() => {
      throw new Error('no connection');
    });
    const failed = await engine.runTools({ ...options, tools: failing });
    expect(failed.messages[1]).toMatchObject({ role: 'tool', content: '{"error":"no connection"}' });
    let calls = 0;
    const one = await engine.runTools({ ...options, maxRounds: 1, tools: weather(() => calls++) });
    expect([one.rounds, one.toolCalls.length, calls]).toEqual([1, 1, 0]);
  });

  it('refuses what it cannot run', async () => {
    const none = [{ name: 'f' }] as never;
    expect(await refusal(engine.runTools({ ...options, tools: none }))).toMatchObject({
      where: 'tools[0].run',
    });
    const tools = weather(() => '');
    expect(await refusal(engine.runTools({ ...options, tools, maxRounds: 0 }))).toMatchObject({
      where: 'maxRounds',
    });
  });
});
