/** instructor in each of its modes: a forced tool, a JSON object, a schema. */
import createInstructor from '@instructor-ai/instructor';
import OpenAI from 'openai';
import { z } from 'zod';

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: 'none', maxRetries: 0 });
const City = z.object({ city: z.string().max(20), size: z.enum(['small', 'large']) });
const found = {};
for (const mode of ['TOOLS', 'JSON_SCHEMA']) {
  const instructor = createInstructor({ client, mode });
  const { city, size } = await instructor.chat.completions.create({
    model: 'demo-text',
    temperature: 0,
    max_tokens: 200,
    max_retries: 0,
    messages: [{ role: 'user', content: 'Tell me of Rome.' }],
    response_model: { schema: City, name: 'City' },
  });
  found[mode] = City.parse({ city, size });
}
console.log(JSON.stringify(found));
