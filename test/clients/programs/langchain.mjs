/** LangChain: structured output by each of its methods, and tools. */
import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { ChatOpenAI } from '@langchain/openai';
import { z } from 'zod/v4';

const model = new ChatOpenAI({
  model: 'demo-text',
  apiKey: 'none',
  temperature: 0,
  maxTokens: 200,
  modelKwargs: { reasoning_effort: 'none' },
  maxRetries: 0,
  configuration: { baseURL: process.env.BASE_URL },
});
const City = z.object({ city: z.string().max(20), size: z.enum(['small', 'large']) });
const found = {};
for (const method of ['jsonSchema', 'functionCalling'])
  found[method] = City.parse(
    await model.withStructuredOutput(City, { name: 'City', method }).invoke('Tell me of Rome.'),
  );

const asked = [];
const weather = tool(
  ({ city }) => {
    asked.push(city);
    return 'sunny';
  },
  { name: 'get_weather', description: 'Get the weather in a city', schema: z.object({ city: z.string() }) },
);
const messages = [new HumanMessage('What is the weather in Rome?')];
const first = await model.bindTools([weather], { tool_choice: 'any' }).invoke(messages);
messages.push(first);
for (const call of first.tool_calls)
  messages.push(new ToolMessage({ content: await weather.invoke(call.args), tool_call_id: call.id }));
const last = await model.bindTools([weather]).invoke(messages);
let chunks = 0;
let gathered;
for await (const chunk of await model
  .bindTools([weather], { strict: true })
  .stream('What is the weather in Rome?')) {
  chunks++;
  gathered = gathered === undefined ? chunk : gathered.concat(chunk);
}
console.log(
  JSON.stringify({
    ...found,
    asked,
    text: last.content,
    chunks,
    calls: gathered.tool_calls.map(({ name, args }) => ({ name, args })),
  }),
);
