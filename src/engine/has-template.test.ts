import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { hasChatTemplate } from './has-template.js';

describe('whether a model has a chat template, from its small files', () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'kvant-template-'));
    await cp('test/fixtures/models/qwen2.5-vl/config.json', join(folder, 'config.json'));
    await cp('models/demo-text/tokenizer.json', join(folder, 'tokenizer.json'));
  });
  afterAll(async () => {
    await rm(folder, { recursive: true });
  });

  it('tells those that have one from those that have none', async () => {
    expect(await hasChatTemplate('models/demo-text', {})).toBe(true);
    expect(await hasChatTemplate(folder, {})).toBe(false);
  });

  it('looks at the tokenizer that is given instead', async () => {
    expect(await hasChatTemplate(folder, { tokenizer: 'models/demo-text' })).toBe(true);
    expect(await hasChatTemplate('models/demo-text', { tokenizer: folder })).toBe(false);
  });

  it('leaves what else is wrong to loading', async () => {
    expect(await hasChatTemplate(join(folder, 'nowhere'), { hub: { offline: true } })).toBe(true);
    await rm(join(folder, 'tokenizer.json'));
    expect(await hasChatTemplate(folder, {})).toBe(true);
    await writeFile(join(folder, 'chat_template.jinja'), '{% broken');
    expect(await hasChatTemplate(folder, {})).toBe(true);
  });
});
