/** The openai client's helpers for schemas and tools against the running server. */
import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { question, type Serving, serveDemo } from './serving.js';

const model = 'demo-text';
const Weather = z.object({ city: z.string().max(20), unit: z.enum(['celsius', 'fahrenheit']) });
const parameters = {
  type: 'object',
  properties: { city: { type: 'string' }, unit: { enum: ['celsius', 'fahrenheit'] } },
  required: ['city', 'unit'],
  additionalProperties: false,
};
const tools: OpenAI.ChatCompletionTool[] = [
  { type: 'function', function: { name: 'get_weather', strict: true, parameters } },
  { type: 'function', function: { name: 'ping', strict: true } },
];

describe('the helpers of the openai client', () => {
  let serving: Serving;
  let client: OpenAI;
  beforeAll(async () => {
    serving = await serveDemo({ maxRows: 8 });
    client = new OpenAI({ baseURL: `${serving.url}/v1`, apiKey: 'none', maxRetries: 0 });
  });
  afterAll(() => serving.close());
  const messages = question('What is the weather in Rome?');
  const body = {
    model,
    messages,
    temperature: 0,
    max_tokens: 80,
    chat_template_kwargs: { enable_thinking: false },
  };

  it('parse an answer, whole and streamed', async () => {
    const response_format = zodResponseFormat(Weather, 'weather');
    const { choices, usage } = await client.chat.completions.parse({ ...body, response_format });
    expect(Weather.parse(choices[0]!.message.parsed)).toEqual(choices[0]!.message.parsed);
    expect(usage!.completion_tokens_details!.reasoning_tokens).toBe(0);
    const streamed = await client.chat.completions.stream({ ...body, response_format }).finalChatCompletion();
    expect(streamed.choices[0]!.message.parsed).toEqual(choices[0]!.message.parsed);
  });

  it('parse the arguments of forced and strict calls, whole and streamed', async () => {
    const ways: OpenAI.ChatCompletionToolChoiceOption[] = [
      'auto',
      'required',
      { type: 'function', function: { name: 'get_weather' } },
      {
        type: 'allowed_tools',
        allowed_tools: { mode: 'required', tools: [{ type: 'function', function: { name: 'get_weather' } }] },
      },
    ];
    for (const tool_choice of ways) {
      const asked = { ...body, tools, tool_choice };
      const { choices } = await client.chat.completions.parse(asked);
      const [call] = choices[0]!.message.tool_calls!;
      expect([choices[0]!.finish_reason, call!.function.name]).toEqual(['tool_calls', 'get_weather']);
      expect(Weather.parse(call!.function.parsed_arguments)).toEqual(call!.function.parsed_arguments);
      const streamed = await client.chat.completions.stream(asked).finalChatCompletion();
      expect(streamed.choices[0]!.message.tool_calls![0]!.function).toMatchObject({
        name: 'get_weather',
        arguments: call!.function.arguments,
      });
    }
  });

  it('run tools', async () => {
    const asked: unknown[] = [];
    const run = client.chat.completions.runTools({
      ...body,
      tools: [
        {
          type: 'function',
          function: {
            name: 'get_weather',
            description: 'Current weather of a place',
            parameters,
            parse: JSON.parse,
            function: (given: unknown) => {
              asked.push(given);
              return 'sunny, 20 degrees';
            },
          },
        },
      ],
    });
    expect(await run.finalContent()).toMatch(/\w/);
    expect(asked).toHaveLength(1);
    expect(asked[0]).toMatchObject({ city: 'Rome' });
  });

  it('are told which field cannot be enforced', async () => {
    const param = async (more: object): Promise<unknown> => {
      try {
        await client.chat.completions.create({ ...body, ...more } as never);
      } catch (error) {
        return (error as { param: unknown }).param;
      }
      return null;
    };
    const schema = { type: 'object', properties: { a: { $dynamicRef: '#a' } } };
    expect(
      await param({ response_format: { type: 'json_schema', json_schema: { name: 'x', schema } } }),
    ).toBe('response_format');
    expect(await param({ json_schema: schema })).toBe('json_schema');
    expect(await param({ structured_outputs: { json: schema } })).toBe('structured_outputs');
    expect(await param({ json_schema: false })).toBe('json_schema');
    expect(await param({ response_format: { type: 'json_object', schema: { enum: [] } } })).toBe(
      'response_format',
    );
    expect(await param({ structured_outputs: { regex: '(' } })).toBe('structured_outputs');
    expect(await param({ structured_outputs: { grammar: 'root ::= x' } })).toBe('structured_outputs');
    expect(await param({ grammar: 'root ::= x' })).toBe('grammar');
    const half = { structured_outputs: { choice: ['\ud800'] } };
    expect(await param(half)).toBe('structured_outputs');
    const two = { structured_outputs: { regex: 'a', choice: ['b'] } };
    await expect(client.chat.completions.create({ ...body, ...two } as never)).rejects.toThrow(
      '`structured_outputs.regex` and `structured_outputs.choice` do not go together',
    );
    const list = [{ type: 'function', function: { name: 'f', parameters: { type: ['array', 'null'] } } }];
    expect(await param({ tools: list, tool_choice: 'required' })).toBe('tools[0].function.parameters');
    const bad = [{ type: 'function', function: { name: 'f', parameters: schema } }];
    expect(await param({ tools: [...tools, ...bad], tool_choice: 'required' })).toBe(
      'tools[2].function.parameters',
    );
    expect(await param({ tools, tool_choice: { type: 'function', function: { name: 'nope' } } })).toBe(
      'tool_choice',
    );
    expect(await param({ tools: [], tool_choice: 'required' })).toBe('tool_choice');
  });

  it('take large bodies with tools, which are read elsewhere', async () => {
    // Six bytes of JSON each, and a token.
    const padding = '\u0007'.repeat(1400);
    const padded = [{ role: 'system' as const, content: `Be kind.${padding}` }, ...messages];
    const { choices } = await client.chat.completions.create({
      ...body,
      messages: padded,
      tools,
      tool_choice: { type: 'function', function: { name: 'get_weather' } },
    });
    const call = choices[0]!.message.tool_calls![0] as OpenAI.ChatCompletionMessageFunctionToolCall;
    expect(Weather.parse(JSON.parse(call.function.arguments))).toHaveProperty('city');
  });
});
