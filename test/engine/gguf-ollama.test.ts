/** Models that see in files of Ollama's own converters, model and tower in one: prompts and answers are those of the reference. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import { OLLAMA, writeOllama } from './ollama-files.js';
import { cases, MODEL, withImages } from './vision-cases.js';
import { casesOf, checkAnswer, ROOT } from './vision-fixtures.js';

let scratch: string;
beforeAll(() => {
  scratch = mkdtempSync(join(tmpdir(), 'kvant-ollama-'));
});
afterAll(() => rmSync(scratch, { recursive: true }));

describe.each(Object.keys(OLLAMA))('%s', (kind) => {
  const name = kind.replace(/,.*/, '');
  let engine: Engine;
  const told: string[] = [];
  beforeAll(async () => {
    const path = join(scratch, `${kind.replaceAll(/\W/g, '-')}.gguf`);
    await writeOllama(kind, join(ROOT, name), path);
    engine = await Engine.load(path, {
      device: 'cpu',
      worker: false,
      maxRows: 4,
      threads: 2,
      precision: 'reference',
      tokenizer: join(ROOT, name),
      onLog: ({ level, message }) => {
        if (level === 'warn') told.push(message);
      },
    });
  });
  afterAll(() => engine?.close());

  it.each(casesOf(name).map((one) => [JSON.stringify(one.sizes), one] as const))(
    'answers pictures of %s as the reference, and warns of nothing',
    async (_, one) => {
      await checkAnswer(engine, one);
      expect(told).toEqual([]);
    },
  );
});

it('demo-vision answers as the reference, with V of its tower in blocks and Q and K not', async () => {
  const path = join(scratch, 'demo.gguf');
  await writeOllama('qwen2.5-vl', MODEL, path, true);
  await using engine = await Engine.load(path, {
    device: 'cpu',
    worker: false,
    threads: 2,
    tokenizer: MODEL,
  });
  for (const one of cases.slice(0, 2)) {
    const answer = engine.chat({ messages: withImages(one), temperature: 0, maxTokens: 40 });
    const { tokenIds } = await answer.result;
    expect(answer.promptTokenIds).toEqual(one.prompt_ids);
    expect(tokenIds).toEqual(one.continuation_ids);
  }
});
