import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';

/** What the README shows, as a program of its own: the package by its name, as it is built. */
const PROGRAM = `
import { Engine } from 'kvant';
import { listen } from 'kvant/server';
const engine = await Engine.load('models/demo-text', { device: 'cpu', maxContext: 256 });
const server = await listen({ engine, port: 0 });
const { data } = await (await fetch(server.url + '/v1/models')).json();
const answer = engine.chat({
  messages: [{ role: 'user', content: 'What is the capital of Japan?' }],
  temperature: 0,
});
let text = '';
for await (const delta of answer) text += delta.text;
const { finishReason } = await answer.result;
const tools = [{ type: 'function', function: { name: 'get_time', description: 'Tells the time in a city', parameters: {
  type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } } }];
const messages = [{ role: 'user', content: 'What time is it in Rome?' }];
const asked = await engine.chat({ messages, tools, temperature: 0, maxTokens: 60 }).result;
messages.push({ role: 'assistant', content: asked.text, tool_calls: asked.toolCalls },
  { role: 'tool', tool_call_id: asked.toolCalls[0].id, content: '10:00' });
const told = await engine.chat({ messages, tools, temperature: 0, maxTokens: 60 }).result;
await server.close();
await engine.close();
const called = asked.toolCalls.map((call) => call.function);
console.log(JSON.stringify([data[0].id, text, finishReason, Request.name, process.getActiveResourcesInfo(), asked.text, called, told.finishReason]));
`;

describe('kvant as a library', () => {
  it('serves and answers in a program of one line, then lets it end', async () => {
    const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', PROGRAM]);
    const [id, text, finish, request, resources, beside, called, toldFinish] = JSON.parse(stdout);
    expect([id, text, finish]).toEqual(['demo-text', 'The capital of Japan is Tokyo.', 'stop']);
    expect([beside, called, toldFinish]).toEqual([
      '',
      [{ name: 'get_time', arguments: '{"city": "Rome"}' }],
      'stop',
    ]);
    // The host's globals are its own.
    expect(request).toBe('Request');
    expect(resources.filter((r: string) => !/Pipe|TTY|Immediate/.test(r))).toEqual([]);
  });
});
