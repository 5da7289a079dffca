import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { failure, folderWith } from '../../test/fixtures/weights/build.js';
import {
  isSmallModelFile,
  parseJsonObject,
  readJsonFile,
  readOptionalJsonFile,
  readOptionalTextFile,
} from './folder-files.js';

describe('readJsonFile', () => {
  it('reads an object, with a byte-order mark as well', async () => {
    using folder = folderWith({ 'a.json': { x: 1 }, 'b.json': '\ufeff{"y":2}' });
    expect(await readJsonFile(folder.path, 'a.json')).toEqual({ x: 1 });
    expect(await readJsonFile(folder.path, 'b.json')).toEqual({ y: 2 });
  });

  it.each([
    ['{"a": }', /not JSON/],
    ['', /empty/],
    ['[1]', /not an object/],
    ['null', /not an object/],
    ['version https://git-lfs.github.com/spec/v1\n', /Git LFS pointer/],
  ])('refuses %j', async (text, message) => {
    using folder = folderWith({ 'config.json': text });
    const error = await failure(readJsonFile(folder.path, 'config.json'));
    expect(error.code).toBe('model-file-broken');
    expect(error.message).toMatch(message);
    expect(error.message).toContain(join(folder.path, 'config.json'));
    expect(error.fix).toMatch(text.startsWith('version') ? /git lfs pull/ : /config\.json/);
  });

  it('tells a missing file from a missing folder and an unreadable file', async () => {
    using folder = folderWith({});
    const missing = await failure(readJsonFile(folder.path, 'config.json'));
    expect(missing).toMatchObject({
      code: 'model-file-missing',
      message: expect.stringMatching(/no config\.json/),
    });
    expect((await failure(readJsonFile(join(folder.path, 'x'), 'config.json'))).code).toBe(
      'model-folder-missing',
    );
    mkdirSync(join(folder.path, 'config.json'));
    expect((await failure(readJsonFile(folder.path, 'config.json'))).code).toBe('model-file-unreadable');
  });

  it('may be told that a file need not be there', async () => {
    using folder = folderWith({ 'chat_template.jinja': '{{ x }}' });
    expect(await readOptionalJsonFile(folder.path, 'generation_config.json')).toBeUndefined();
    expect(await readOptionalTextFile(folder.path, 'chat_template.jinja')).toBe('{{ x }}');
    expect(await readOptionalTextFile(folder.path, 'gone')).toBeUndefined();
    expect((await failure(() => parseJsonObject('x', 'stdin'))).message).toMatch(/^stdin is not JSON/);
  });
});

it.each([
  ['config.json', true],
  ['generation_config.json', true],
  ['tokenizer.json', true],
  ['tokenizer.model', true],
  ['tiktoken.model', true],
  ['tekken.json', true],
  ['vocab.txt', true],
  ['tokenizer_config.json', true],
  ['special_tokens_map.json', true],
  ['added_tokens.json', true],
  ['vocab.json', true],
  ['merges.txt', true],
  ['qwen.tiktoken', true],
  ['chat_template.jinja', true],
  ['chat_template.json', true],
  ['additional_chat_templates/tool.jinja', true],
  ['preprocessor_config.json', true],
  ['model.safetensors', false],
  ['model.safetensors.index.json', false],
  ['pytorch_model.bin', false],
  ['onnx/config.json', false],
  ['modeling_x.py', false],
  ['README.md', false],
  ['training_args.bin', false],
])('isSmallModelFile(%j) is %s', (path, expected) => {
  expect(isSmallModelFile(path)).toBe(expected);
});
