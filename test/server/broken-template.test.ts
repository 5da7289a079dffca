/** A chat template that does not compile is a matter of chats: the model loads, and raw prompts work. */
import { cp, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import type { LogEntry } from '../../src/engine/types.js';
import { createApp } from '../../src/server/index.js';
import { question } from './serving.js';

const DEMO = resolve('models/demo-text');

describe.each([
  [
    'does not compile',
    (folder: string) => writeFile(join(folder, 'chat_template.jinja'), '{% for m in messages %}'),
  ],
  [
    'has an unknown filter',
    (folder: string) => writeFile(join(folder, 'chat_template.jinja'), '{{ messages | nope }}'),
  ],
  [
    'is no text at all',
    (folder: string) => writeFile(join(folder, 'chat_template.json'), '{"chat_template": 5}'),
  ],
])('a chat template that %s', (_what, poison) => {
  let folder: string;
  let engine: Engine;
  const log: LogEntry[] = [];
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'kvant-broken-template-'));
    for (const name of await readdir(DEMO)) {
      if (name.endsWith('.safetensors')) await symlink(join(DEMO, name), join(folder, name));
      else if (name !== 'chat_template.jinja') await cp(join(DEMO, name), join(folder, name));
    }
    await poison(folder);
    engine = await Engine.load(folder, { device: 'cpu', maxContext: 512, onLog: (entry) => log.push(entry) });
  });
  afterAll(async () => {
    await engine?.close();
    await rm(folder, { recursive: true });
  });

  it('is told of at load', () => {
    expect(log).toContainEqual(
      expect.objectContaining({
        level: 'warn',
        message: expect.stringContaining('chat template is broken') as string,
      }),
    );
  });

  it('refuses chats with what is wrong, and takes raw prompts', async () => {
    const app = createApp({ engine });
    const post = (path: string, body: object): Response | Promise<Response> =>
      app.request(path, { method: 'POST', body: JSON.stringify(body) });
    const chat = await post('/v1/chat/completions', { messages: question('Hi'), max_tokens: 2 });
    expect(chat.status).toBe(400);
    const { error } = (await chat.json()) as { error: { code: string; message: string } };
    expect(error.code).toBe('chat_template_broken');
    expect(error.message).toContain('raw prompt');

    const raw = await post('/v1/completions', {
      prompt: 'The sun',
      max_tokens: 3,
      temperature: 0,
      ignore_eos: true,
    });
    expect(raw.status).toBe(200);
    const answer = (await raw.json()) as { usage: { completion_tokens: number } };
    expect(answer.usage.completion_tokens).toBe(3);
    // A template that is there is not taken for none.
    expect(engine.info.model.hasChatTemplate).toBe(true);
  });
});
