/** The openai client's own helpers: answers and calls parsed, whole and streamed, and tools that it runs. */
import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod/v4';

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: 'none', maxRetries: 0 });
const common = { model: 'demo-text', temperature: 0, max_tokens: 200, reasoning_effort: 'none' };
const ask = (content) => [{ role: 'user', content }];
const City = z.object({ city: z.string().max(20), people: z.int().min(0).max(99_999_999) });
const response_format = zodResponseFormat(City, 'city');
const parameters = {
  type: 'object',
  properties: { city: { type: 'string' } },
  required: ['city'],
  additionalProperties: false,
};

const parsed = await client.chat.completions.parse({
  ...common,
  messages: ask('Tell me of Rome.'),
  response_format,
});
const stream = client.chat.completions.stream({
  ...common,
  messages: ask('Tell me of Rome.'),
  response_format,
});
let deltas = '';
stream.on('content.delta', ({ delta }) => {
  deltas += delta;
});
const streamed = await stream.finalChatCompletion();

const asked = [];
const runner = client.chat.completions.runTools({
  ...common,
  messages: ask('What is the weather in Rome?'),
  tools: [
    {
      type: 'function',
      function: {
        name: 'get_weather',
        description: 'Get the weather in a city',
        parameters,
        strict: true,
        parse: JSON.parse,
        function: ({ city }) => {
          asked.push(city);
          return 'sunny';
        },
      },
    },
  ],
});
const said = await runner.finalContent();
const runnerStream = client.chat.completions.runTools({
  ...common,
  stream: true,
  messages: ask('What is the weather in Rome?'),
  tool_choice: { type: 'function', function: { name: 'get_weather' } },
  tools: [
    {
      type: 'function',
      function: { name: 'get_weather', parameters, parse: JSON.parse, function: ({ city }) => city },
    },
  ],
});
const call = await runnerStream.finalFunctionToolCall();

console.log(
  JSON.stringify({
    parsed: City.parse(parsed.choices[0].message.parsed),
    streamed: streamed.choices[0].message.parsed,
    deltas: JSON.parse(deltas),
    asked,
    said,
    call: JSON.parse(call.arguments),
  }),
);
