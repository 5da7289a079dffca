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
await server.close();
await engine.close();
console.log(JSON.stringify([data[0].id, text, finishReason, Request.name, process.getActiveResourcesInfo()]));
`;

describe('kvant as a library', () => {
  it('serves and answers in a program of one line, then lets it end', async () => {
    const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', PROGRAM]);
    const [id, text, finish, request, resources] = JSON.parse(stdout);
    expect([id, text, finish]).toEqual(['models/demo-text', 'The capital of Japan is Tokyo.', 'stop']);
    // The host's globals are its own.
    expect(request).toBe('Request');
    expect(resources.filter((r: string) => !/Pipe|TTY|Immediate/.test(r))).toEqual([]);
  });
});
