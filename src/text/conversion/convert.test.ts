/** Tokenizers without tokenizer.json beside SentencePiece, transformers, mistral-common, and tiktoken's rule (scripts/fixtures/tokenizer_files.py). */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { readPacked } from '../../../test/fixtures/read-packed.js';
import { ChatTemplate } from '../chat-template.js';
import { Tokenizer } from '../tokenizer.js';

interface Made {
  readonly files: Readonly<Record<string, string>>;
  readonly cases: readonly (readonly [text: string, ids: readonly number[]])[];
  /** Of BERT: a text of its own, and two. */
  readonly whole?: readonly number[];
  readonly pair?: readonly number[];
}
const FIXTURE = readPacked(
  join(import.meta.dirname, '../../../test/fixtures/text/tokenizer-files.json.br'),
) as Readonly<Record<string, Made>>;

const folders: string[] = [];
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
});

function folderOf(files: Readonly<Record<string, string>>): string {
  const folder = mkdtempSync(join(tmpdir(), 'kvant-tokenizer-files-'));
  folders.push(folder);
  for (const [name, text] of Object.entries(files))
    writeFileSync(join(folder, name), name === 'tokenizer.model' ? Buffer.from(text, 'base64') : text);
  return folder;
}

describe('a folder without tokenizer.json', () => {
  it.each(Object.entries(FIXTURE))('of %s gives every text its ids', async (_, { files, cases }) => {
    const tokenizer = await Tokenizer.load(folderOf(files));
    expect(cases.length).toBeGreaterThan(60);
    for (const [text, ids] of cases)
      expect([...tokenizer.encode(text, { addSpecialTokens: false })], JSON.stringify(text)).toEqual(ids);
  });

  const llama = FIXTURE.llama!.files;

  it('takes what its class takes where tokenizer_config.json is silent, and what that or special_tokens_map.json says', async () => {
    const usual = await Tokenizer.load(folderOf(llama));
    expect(usual.specialTokens).toEqual({ bos_token: '<s>', eos_token: '</s>', unk_token: '<unk>' });
    expect([...usual.encode('a')].slice(0, 1)).toEqual([1]);
    // As of every special token, what is behind it begins with a space.
    expect([...usual.encode('<s>a', { addSpecialTokens: false })]).toEqual([...usual.encode('a')]);
    expect(usual.decode(usual.encode('a b\n今'))).toBe('a b\n今');
    const stated = { tokenizer_class: 'LlamaTokenizer', add_bos_token: false, add_eos_token: true };
    const map = JSON.stringify({ pad_token: { content: '</s>' } });
    const other = folderOf({
      ...llama,
      'tokenizer_config.json': JSON.stringify(stated),
      'special_tokens_map.json': map,
    });
    const tokenizer = await Tokenizer.load(other);
    expect(tokenizer.specialTokens.pad_token).toBe('</s>');
    const ids = [...tokenizer.encode('a')];
    expect([ids.at(0) === 1, ids.at(-1)]).toEqual([false, 2]);
  });

  it.each(['bert', 'bert, with capitals'])(
    'puts a text of %s, and two, between their tokens',
    async (name) => {
      const { files, whole, pair } = FIXTURE[name]!;
      const tokenizer = await Tokenizer.load(folderOf(files));
      expect([...tokenizer.encode('the cache')]).toEqual(whole);
      expect([...tokenizer.encodePair('the cache', 'of tokens', 100)!.ids]).toEqual(pair);
      expect(tokenizer.decode(whole!)).toBe('the cache');
    },
  );

  it('of Mistral begins a text as its models want it, whatever class is named, and so do templates', async () => {
    const { files } = FIXTURE.tekken!;
    const named = { ...files, ...config({ tokenizer_class: 'MistralCommonBackend' }) };
    const folder = folderOf({ ...named, 'chat_template.jinja': '{{ bos_token }}[INST]{{ eos_token }}' });
    const tokenizer = await Tokenizer.load(folder);
    expect([...tokenizer.encode('a')]).toEqual([1, 24 + 97]);
    const template = await ChatTemplate.find(folder, tokenizer.config);
    expect(template!.render([{ role: 'user', content: '' }])).toBe('<s>[INST]</s>');
  });

  it('of Hunyuan begins a text with its own mark unless told otherwise', async () => {
    const { files } = FIXTURE.hunyuan!;
    const first = files['hy.tiktoken']!.split('\n').length - 1;
    expect([...(await Tokenizer.load(folderOf(files))).encode('a')]).toEqual([first + 1, 64]);
    const silent = { ...files, ...config({ tokenizer_class: 'HYTokenizer', add_bod_token: false }) };
    expect([...(await Tokenizer.load(folderOf(silent))).encode('a')]).toHaveLength(1);
  });

  const config = (fields: object): Record<string, string> => ({
    'tokenizer_config.json': JSON.stringify(fields),
  });
  it.each([
    [
      'a class that is not known',
      { ...llama, ...config({ tokenizer_class: 'MBartTokenizer' }) },
      /MBartTokenizer/,
    ],
    ['no class', { ...llama, ...config({}) }, /names no tokenizer_class/],
    [
      'another file than its class has',
      { ...llama, ...config({ tokenizer_class: 'Qwen2Tokenizer' }) },
      /vocab\.json/,
    ],
    [
      'half of its files',
      { 'vocab.json': '{}', ...config({ tokenizer_class: 'GPT2Tokenizer' }) },
      /only one of/,
    ],
    [
      'only the ranks',
      { 'tiktoken.model': 'YQ== 0', ...config({ tokenizer_class: 'GemmaTokenizer' }) },
      /tokenizer\.model/,
    ],
    ['words of a model that names no class', { 'vocab.txt': '[UNK]\n' }, /names no tokenizer_class/],
    [
      'no words for its class',
      { 'vocab.json': '{}', ...config({ tokenizer_class: 'BertTokenizer' }) },
      /no vocab\.txt/,
    ],
  ] as const)('is refused with %s', async (_, files, message) => {
    await expect(Tokenizer.load(folderOf(files))).rejects.toMatchObject({
      code: 'tokenizer-unsupported',
      message: expect.stringMatching(message) as string,
      fix: expect.stringContaining('save_pretrained') as string,
    });
  });

  const model = Buffer.from(llama['tokenizer.model']!, 'base64');
  it.each([
    ['cut off', model.subarray(0, model.length - 3)],
    ['of no bytes', model.subarray(0, 0)],
    ['a pointer', Buffer.from('version https://git-lfs.github.com/spec/v1\noid sha256:0\n')],
    ['something else', Buffer.from('IQ== 0\nIg== 1\n')],
  ])('is told as broken where tokenizer.model is %s', async (_, bytes) => {
    const folder = folderOf({ ...llama, 'tokenizer.model': Buffer.from(bytes).toString('base64') });
    await expect(Tokenizer.load(folder)).rejects.toMatchObject({
      code: 'tokenizer-broken',
      where: join(folder, 'tokenizer.model'),
    });
  });

  const tekken = JSON.parse(FIXTURE.tekken!.files['tekken.json']!) as {
    readonly config: object;
    readonly vocab: readonly object[];
    readonly special_tokens: readonly object[];
  };
  it.each([
    ['no pattern', { ...tekken, config: { ...tekken.config, pattern: null } }, /pattern/],
    [
      'no sizes',
      { ...tekken, config: { ...tekken.config, default_vocab_size: '400' } },
      /default_vocab_size/,
    ],
    ['too few tokens', { ...tekken, vocab: tekken.vocab.slice(0, 300) }, /does not list/],
    ['tokens in no order', { ...tekken, vocab: [...tekken.vocab].reverse() }, /entry 0/],
    [
      'a special token behind the last',
      { ...tekken, special_tokens: [{ rank: 24, token_str: '<s>' }] },
      /"special_tokens" has .*24/,
    ],
    ['no special tokens, in a version that lists them', { ...tekken, special_tokens: null }, /version v11/],
  ])('is told as broken where tekken.json has %s', async (_, json, message) => {
    const folder = folderOf({ 'tekken.json': JSON.stringify(json) });
    await expect(Tokenizer.load(folder)).rejects.toMatchObject({
      code: 'tokenizer-broken',
      where: join(folder, 'tekken.json'),
      message: expect.stringMatching(message) as string,
    });
  });

  it('is told as broken where vocab.txt has no token that ends a text', async () => {
    const folder = folderOf({
      'vocab.txt': '[UNK]\n[CLS]\n',
      ...config({ tokenizer_class: 'BertTokenizer' }),
    });
    await expect(Tokenizer.load(folder)).rejects.toMatchObject({
      code: 'tokenizer-broken',
      where: join(folder, 'vocab.txt'),
      message: expect.stringContaining('[SEP]') as string,
    });
  });

  it.each([
    ['merges.txt', { ...FIXTURE['gpt-2']!.files, 'merges.txt': '#version: 0.2\nab\n' }],
    ['tiktoken.model', { ...FIXTURE.kimi!.files, 'tiktoken.model': 'YQ== 0\nYg==\n' }],
  ])('is told as broken where %s has a line that makes no sense', async (name, files) => {
    const folder = folderOf(files);
    await expect(Tokenizer.load(folder)).rejects.toMatchObject({
      code: 'tokenizer-broken',
      where: join(folder, name),
      message: expect.stringContaining('line 2') as string,
    });
  });
});
