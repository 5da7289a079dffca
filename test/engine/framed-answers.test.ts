/** Answers in channels, of a model that was never taught them: what holds it to them, and what takes them apart, meet in the engine. */
import { cp, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import type { ChatRequest } from '../../src/engine/types.js';
import { MODEL } from './engine-harness.js';

const TEMPLATE =
  '{% for tool in tools or [] %}<|start|>developer<|message|>{{ tool.function.name }}<|end|>{% endfor %}' +
  "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}{{ '<|start|>assistant' }}" +
  '{#- <|channel|>analysis {{ reasoning_effort }} -#}';
const messages = [{ role: 'user', content: 'What is the weather in Rome?' }];
const tools = [
  {
    type: 'function',
    function: {
      name: 'get_weather',
      parameters: {
        properties: { city: { enum: ['Rome', 'Paris'] } },
        required: ['city'],
        additionalProperties: false,
      },
    },
  },
];

describe('answers in channels', () => {
  let folder: string;
  let engine: Engine;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'kvant-channels-'));
    for (const name of await readdir(MODEL)) {
      if (name.endsWith('.safetensors')) await symlink(join(MODEL, name), join(folder, name));
      else await cp(join(MODEL, name), join(folder, name));
    }
    await writeFile(join(folder, 'chat_template.jinja'), TEMPLATE);
    engine = await Engine.load(folder, {
      device: 'cpu',
      threads: 2,
      maxRows: 4,
      maxContext: 512,
      worker: false,
    });
  });
  afterAll(async () => {
    await engine?.close();
    await rm(folder, { recursive: true, force: true });
  });
  const ask = (more: Partial<ChatRequest>) =>
    engine.chat({ messages, temperature: 1, seed: 5, maxTokens: 160, ...more }).result;

  it('have thoughts within their budget, then a form, a call, or a text', async () => {
    expect(engine.info.model.toolFormat).toBe('harmony');
    // It thinks if it is pushed to, whatever tokens it spells the channel with.
    const ids = Array.from({ length: engine.info.model.vocabSize }, (_, id) => id);
    const begins = ids.filter((id) => {
      const token = Buffer.from(engine.tokenBytes(id)).toString();
      return token !== '' && ['<|channel|>', 'analysis'].some((mark) => mark.startsWith(token));
    });
    const think = { thinkingBudget: 6, logitBias: Object.fromEntries(begins.map((id) => [id, 50])) };
    const [formed, called, said, plain] = await Promise.all([
      ask({ ...think, choice: ['yes', 'no'] }),
      ask({ ...think, tools, toolChoice: 'required' }),
      ask({ ...think, maxTokens: 120 }),
      ask({ choice: ['yes', 'no'], parseReasoning: false }),
    ]);
    expect(['yes', 'no']).toContain(formed.text);
    expect(plain).toMatchObject({ reasoning: '', finishReason: 'stop' });
    expect(['yes', 'no']).toContain(plain.text);
    expect(called.text).toBe('');
    expect(called.toolCalls).toHaveLength(1);
    expect(JSON.parse(called.toolCalls[0]!.function.arguments)).toEqual({ city: expect.any(String) });
    for (const { reasoning, usage, text } of [formed, called, said]) {
      expect(reasoning).not.toBe('');
      expect(usage.reasoningTokens).toBeGreaterThanOrEqual(6);
      expect(usage.reasoningTokens).toBeLessThan(40);
      expect(`${reasoning}${text}`).not.toContain('<|');
    }
    expect(said.text).not.toBe('');
  });

  it('are as hard as the template can be told', async () => {
    expect((await ask({ reasoningEffort: 'low', maxTokens: 1 })).usage.completionTokens).toBe(1);
    await expect(ask({ reasoningEffort: 'none' })).rejects.toMatchObject({ code: 'unsupported-parameter' });
  });
});
