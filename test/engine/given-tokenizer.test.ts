/** `tokenizer`: the text side of another folder, for weights that have none or in place of their own. */
import { copyFile, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { Engine } from '../../src/engine/engine.js';
import { ModelText } from '../../src/engine/model-text.js';
import { textFiles } from '../../src/engine/text-files.js';
import { f32, ggufBytes, i32s, string, strings, u32, type Value } from '../setup/gguf-writer.js';

const MODEL = new URL('../../models/demo-text', import.meta.url).pathname;
const TEXT_FILES = ['tokenizer.json', 'tokenizer_config.json', 'chat_template.jinja'];
const OPTIONS = { device: 'cpu', threads: 1, maxContext: 256 } as const;
const MESSAGES = [{ role: 'user', content: 'What is the capital of Japan?' }];

let folder: string;
const at = (name: string): string => join(folder, name);
const place = async (name: string, files: readonly string[]): Promise<void> => {
  await mkdir(at(name));
  for (const file of files) await symlink(join(MODEL, file), join(at(name), file));
};

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'kvant-tokenizer-'));
  const names = await readdir(MODEL);
  await place(
    'bare',
    names.filter((name) => !TEXT_FILES.includes(name)),
  );
  await place('text', ['tokenizer.json', 'tokenizer_config.json']);
  await writeFile(join(at('text'), 'chat_template.jinja'), "{{ messages[0].content + '!' }}");
  await place('large', ['tokenizer_config.json']);
  const json = JSON.parse(await readFile(join(MODEL, 'tokenizer.json'), 'utf8'));
  const { vocab_size: rows } = JSON.parse(await readFile(join(MODEL, 'config.json'), 'utf8'));
  json.added_tokens.push({ ...json.added_tokens[0], id: rows, content: '<|one too many|>' });
  await writeFile(join(at('large'), 'tokenizer.json'), JSON.stringify(json));
  await copyFile(join(MODEL, 'chat_template.jinja'), join(at('large'), 'chat_template.jinja'));
});

afterAll(() => rm(folder, { recursive: true }));

it('makes a model without a tokenizer answer as the whole one does', async () => {
  const request = { messages: MESSAGES, temperature: 0, maxTokens: 6 };
  await expect(Engine.load(at('bare'), OPTIONS)).rejects.toMatchObject({ code: 'tokenizer-missing' });
  await using whole = await Engine.load(MODEL, OPTIONS);
  await using given = await Engine.load(at('bare'), { ...OPTIONS, tokenizer: MODEL });
  const [one, other] = await Promise.all([whole.chat(request).result, given.chat(request).result]);
  expect(other.tokenIds).toEqual(one.tokenIds);
  expect(other.text).toBe(one.text);
  expect(given.info.model).toMatchObject({
    path: at('bare'),
    eosTokenIds: whole.info.model.eosTokenIds,
    toolFormat: whole.info.model.toolFormat,
  });
});

it('goes before the model’s own, on threads for texts as well', async () => {
  const text = await ModelText.load({ path: MODEL, tokenizer: at('text') });
  expect(text.render(MESSAGES, {})).toBe('What is the capital of Japan?!');
  const again = await ModelText.forTasks(text.origin!);
  expect(again.render(MESSAGES, {})).toBe('What is the capital of Japan?!');
  expect(text.defaults).toEqual((await ModelText.load({ path: MODEL })).defaults);
});

it('is refused with more tokens than the model has, and for made-up weights', async () => {
  await expect(Engine.load(MODEL, { ...OPTIONS, tokenizer: at('large') })).rejects.toMatchObject({
    code: 'tokenizer-mismatch',
    where: 'tokenizer',
  });
  await expect(Engine.loadShape('qwen3-0.6b', { tokenizer: MODEL })).rejects.toMatchObject({
    code: 'invalid-option',
    where: 'tokenizer',
  });
});

it('serves a GGUF file with no tokenizer, and one that ends answers at a token of its own', async () => {
  const write = async (name: string, metadata: Record<string, Value>): Promise<string> => {
    await writeFile(at(name), ggufBytes({ metadata, tensors: [] }));
    return at(name);
  };
  const architecture = { 'general.architecture': string('llama') };
  const bare = await write('bare.gguf', {
    ...architecture,
    'tokenizer.ggml.model': string('none'),
    'general.sampling.top_k': { type: 'i32', value: 7 },
  });
  const own = await ModelText.load({ path: MODEL });
  await expect(ModelText.load({ path: bare })).rejects.toMatchObject({
    code: 'tokenizer-missing',
    fix: expect.stringContaining('--tokenizer'),
  });
  const text = await ModelText.load({ path: bare, tokenizer: MODEL });
  expect(text.defaults).toEqual({ topK: 7 });
  expect(text.eosIds).toEqual(own.eosIds);
  expect([...text.encode('Tokyo', false)]).toEqual([...own.encode('Tokyo', false)]);
  const ended = await write('ended.gguf', {
    ...architecture,
    'tokenizer.ggml.model': string('gpt2'),
    'tokenizer.ggml.pre': string('qwen2'),
    'tokenizer.ggml.tokens': strings(['a', 'b', 'end']),
    'tokenizer.ggml.token_type': i32s([1, 1, 3]),
    'tokenizer.ggml.merges': strings([]),
    'tokenizer.ggml.eos_token_id': u32(2),
  });
  const ends = [...new Set([2, ...own.eosIds!])].sort((a, b) => a - b);
  expect((await ModelText.load({ path: ended, tokenizer: MODEL })).eosIds).toEqual(ends);
  // A way to split that is not known, and none at all: neither keeps a given tokenizer out.
  const odd = {
    ...architecture,
    'tokenizer.ggml.model': string('gpt2'),
    'tokenizer.ggml.tokens': strings(['a', 'b', 'end']),
    'tokenizer.ggml.token_type': i32s([1, 1, 3]),
    'tokenizer.ggml.eos_token_id': u32(2),
  };
  for (const pre of [{ 'tokenizer.ggml.pre': string('of-my-own') }, {}]) {
    const path = await write('odd.gguf', { ...odd, ...pre });
    await expect(ModelText.load({ path })).rejects.toMatchObject({ code: 'tokenizer-unsupported' });
    expect((await ModelText.load({ path, tokenizer: MODEL })).eosIds).toEqual(ends);
  }
});

it('is not needed to know how a GGUF file samples and ends', async () => {
  const metadata = { 'general.sampling.temp': f32(0.5) };
  await writeFile(at('none.gguf'), ggufBytes({ metadata, tensors: [] }));
  const files = await textFiles({ path: at('none.gguf') });
  expect((await files.generation()).defaults).toMatchObject({ temperature: 0.5 });
  await expect(files.tokenizer()).rejects.toMatchObject({ code: 'tokenizer-missing' });
});

it.each([
  ['clip', 'mmproj', /is what sees for a model/],
  ['llama', 'adapter', /kind "adapter", not a model/],
  ['whisper', 'model', /"whisper" is not known/],
])(
  'missing in a file of %s of the kind %s, that is not what is wrong',
  async (architecture, kind, message) => {
    const metadata = { 'general.architecture': string(architecture), 'general.type': string(kind) };
    await writeFile(at('other.gguf'), ggufBytes({ metadata, tensors: [] }));
    await expect(ModelText.load({ path: at('other.gguf') })).rejects.toMatchObject({
      code: 'model-architecture-unknown',
      message: expect.stringMatching(message) as string,
    });
  },
);
