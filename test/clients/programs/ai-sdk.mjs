/** The AI SDK: objects, streamed objects, and tools in several steps. */
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateObject, generateText, stepCountIs, streamObject, streamText, tool } from 'ai';
import { z } from 'zod/v4';

const provider = createOpenAICompatible({
  name: 'kvant',
  baseURL: process.env.BASE_URL,
  supportsStructuredOutputs: true,
  includeUsage: true,
});
const common = {
  model: provider('demo-text'),
  temperature: 0,
  maxOutputTokens: 200,
  maxRetries: 0,
  providerOptions: { kvant: { reasoningEffort: 'none' } },
};
const schema = z.object({ city: z.string().max(20), size: z.enum(['small', 'large']) });
const asked = [];
const tools = {
  get_weather: tool({
    description: 'Get the weather in a city',
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => {
      asked.push(city);
      return 'sunny';
    },
  }),
};

const { object, usage } = await generateObject({ ...common, schema, prompt: 'Tell me of Rome.' });
const partial = streamObject({ ...common, schema, prompt: 'Tell me of Rome.' });
let parts = 0;
for await (const _ of partial.partialObjectStream) parts++;
const steps = await generateText({
  ...common,
  tools,
  stopWhen: stepCountIs(3),
  prompt: 'What is the weather in Rome?',
});
const forced = streamText({
  ...common,
  tools,
  toolChoice: 'required',
  prompt: 'What is the weather in Rome?',
});
const calls = (await forced.toolCalls).map(({ toolName, input }) => ({ toolName, input }));
console.log(
  JSON.stringify({
    object: schema.parse(object),
    streamed: schema.parse(await partial.object),
    parts,
    counted: usage.outputTokens > 0,
    text: steps.text,
    steps: steps.steps.length,
    asked,
    calls,
  }),
);
