/** A body's JSON reaches the chat template as Python's `json` would have read it. */
import { describe, expect, it } from 'vitest';
import type { ChatRequest } from '../../src/engine/types.js';
import { createApp } from '../../src/server/index.js';
import { ChatTemplate } from '../../src/text/chat-template.js';
import { readPacked } from '../fixtures/read-packed.js';
import { ScriptedEngine } from './scripted-engine.js';

interface Case {
  readonly template: string;
  readonly json: string;
  readonly rendered: string;
}
const fixture = readPacked('test/fixtures/text/json-prompts.json.br') as {
  readonly cases: readonly Case[];
};

const engine = new ScriptedEngine();
const app = createApp({ engine });
const send = (body: string): Response | Promise<Response> =>
  app.request('/v1/chat/completions', { method: 'POST', body });
const asked = async (body: string): Promise<ChatRequest> => {
  expect((await send(body)).status).toBe(200);
  return engine.requests.at(-1) as ChatRequest;
};
const render = (template: string, { messages, tools, templateOptions }: ChatRequest): string =>
  new ChatTemplate(template).render(messages, { tools, kwargs: templateOptions });

describe('a body', () => {
  it.each(fixture.cases)(
    'gives $template the $json that Python read',
    async ({ template, json, rendered }) => {
      const body = `{"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": {"name": "f"}, "v": ${json}}]}`;
      const request = await asked(body);
      const [tool] = request.tools as [object];
      // The fixture's tool has nothing but the value.
      const bare = Object.fromEntries(Object.entries(tool).filter(([key]) => key === 'v'));
      expect(render(template, { ...request, tools: [bare] })).toBe(rendered);
    },
  );

  it('keeps numbers in replayed calls, in messages and in template options', async () => {
    const call = (args: string): string =>
      `{"id": "1", "type": "function", "function": {"name": "f", "arguments": ${args}}}`;
    const request = await asked(
      `{"messages": [{"role": "user", "content": "x", "seen": 1.0}, {"role": "assistant", "content": null, "tool_calls": [
        ${call('{"id": 1234567890123456789, "2": 1e2, "1": -0.0}')}, ${call('"{\\"id\\": 1234567890123456789, \\"2\\": 1e2, \\"1\\": -0.0}"')}]}],
        "chat_template_kwargs": {"limit": 9223372036854775807, "ratio": 2.0}, "temperature": 1.0, "max_tokens": 5, "seed": 7}`,
    );
    expect(request).toMatchObject({ temperature: 1, maxTokens: 5, seed: 7 });
    const template =
      '{{ messages[0].seen }} {{ limit }} {{ ratio }}{% for m in messages %}{% for c in m.tool_calls or [] %}|{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}';
    const args = '{"id": 1234567890123456789, "2": 100.0, "1": -0.0}';
    expect(render(template, request)).toBe(`1.0 9223372036854775807 2.0|${args}|${args}`);
  });

  it('keeps the order of keys in tools and messages', async () => {
    const request = await asked(
      '{"tools": [{"strict": true, "function": {"parameters": {}, "name": "f"}, "type": "function"}], "messages": [{"content": "a", "z": "1", "role": "user"}]}',
    );
    expect(render('{{ tools | tojson }}{{ messages | tojson }}', request)).toBe(
      '[{"strict": true, "function": {"parameters": {}, "name": "f"}, "type": "function"}][{"content": "a", "z": "1", "role": "user"}]',
    );
  });

  it('refuses an integer of more digits than Python reads', async () => {
    const response = await send(`{"messages": [{"role": "user", "content": "x", "n": ${'9'.repeat(5000)}}]}`);
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({
      error: { code: 'invalid_json', message: expect.stringContaining('4300') as string },
    });
  });
});
