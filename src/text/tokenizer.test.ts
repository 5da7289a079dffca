import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readPacked } from '../../test/fixtures/read-packed.js';
import { ChatTemplate } from './chat-template.js';
import { Tokenizer } from './tokenizer.js';

const FOLDERS = {
  'demo-text': 'models/demo-text',
  'byte-level': 'test/fixtures/text/byte-level',
  sentencepiece: 'test/fixtures/text/sentencepiece',
  metaspace: 'test/fixtures/text/metaspace',
} as const;
type Name = keyof typeof FOLDERS;

interface Fixture {
  readonly vocabSize: number;
  readonly texts: readonly {
    readonly text: string;
    readonly ids: readonly number[];
    readonly idsWithSpecial: readonly number[];
    readonly decoded?: string;
  }[];
  readonly sequences: readonly {
    readonly ids: readonly number[];
    readonly skipped: string;
    readonly shown: string;
  }[];
}

const fixtures = readPacked('test/fixtures/text/tokenizers.json.br') as Record<Name, Fixture>;

describe.each(Object.keys(FOLDERS) as Name[])('Tokenizer of %s', (name) => {
  let tokenizer: Tokenizer;
  const fixture = fixtures[name];
  beforeAll(async () => {
    tokenizer = await Tokenizer.load(FOLDERS[name]);
  });

  it('has the size of the reference', () => {
    expect(tokenizer.vocabSize).toBe(fixture.vocabSize);
    expect(tokenizer.tokenTable.size).toBe(fixture.vocabSize);
  });

  it.each(fixture.texts)('encodes and decodes $text as the reference does', (sample) => {
    expect([...tokenizer.encode(sample.text, { addSpecialTokens: false })]).toEqual(sample.ids);
    expect([...tokenizer.encode(sample.text)]).toEqual(sample.idsWithSpecial);
    if (sample.decoded !== undefined) expect(tokenizer.decode(sample.ids)).toBe(sample.decoded);
  });

  it('decodes sequences that no text encodes to as the reference does', () => {
    for (const sequence of fixture.sequences) {
      expect(tokenizer.decode(sequence.ids)).toBe(sequence.skipped);
      expect(tokenizer.decode(sequence.ids, { skipSpecialTokens: false })).toBe(sequence.shown);
    }
  });
});

describe('Tokenizer of demo-text', () => {
  it('gives the ids of every reference prompt', async () => {
    interface Case {
      readonly text?: string;
      readonly messages?: readonly unknown[];
      readonly tools?: readonly unknown[];
      readonly template_kwargs?: Record<string, unknown>;
      readonly prompt_ids: readonly number[];
      readonly continuation_ids: readonly number[];
      readonly continuation_text: string;
    }
    const { cases } = readPacked('test/fixtures/demo-text.json.br') as { cases: Case[] };
    const tokenizer = await Tokenizer.load(FOLDERS['demo-text']);
    const template = await ChatTemplate.load(FOLDERS['demo-text']);
    expect(cases.length).toBeGreaterThan(5);
    for (const sample of cases) {
      const prompt =
        sample.text ??
        template.render(sample.messages, {
          ...(sample.tools === undefined ? {} : { tools: sample.tools }),
          ...(sample.template_kwargs === undefined ? {} : { kwargs: sample.template_kwargs }),
        });
      const ids = tokenizer.encode(prompt, { addSpecialTokens: sample.text !== undefined });
      expect([...ids]).toEqual(sample.prompt_ids);
      expect(tokenizer.decode(sample.continuation_ids, { skipSpecialTokens: false })).toBe(
        sample.continuation_text,
      );
    }
  });

  it('knows its special tokens', async () => {
    const tokenizer = await Tokenizer.load(FOLDERS['demo-text']);
    expect(tokenizer.specialTokens).toEqual({ eos_token: '<|im_end|>', pad_token: '<|endoftext|>' });
    expect(tokenizer.idOfSpecial('eos_token')).toBe(4085);
    expect(tokenizer.idOfSpecial('bos_token')).toBeUndefined();
    expect(tokenizer.idOf('<think>')).toBe(4094);
    expect(tokenizer.idOf('no such token')).toBeUndefined();
    expect(tokenizer.tokenOf(4094)).toBe('<think>');
    expect([...tokenizer.specialIds].sort()).toEqual([4083, 4084, 4085, 4086, 4087, 4088, 4089]);
  });
});

describe('Tokenizer errors', () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'kvant-tokenizer-'));
  });
  afterAll(() => rm(folder, { recursive: true }));

  const write = (text: string) => writeFile(join(folder, 'tokenizer.json'), text);
  const minimal = (change: object) =>
    JSON.stringify({ model: { type: 'BPE', vocab: { a: 0 }, merges: [] }, added_tokens: [], ...change });

  it('names a missing file, and the format found in its place', async () => {
    await expect(Tokenizer.load(folder)).rejects.toMatchObject({ code: 'tokenizer-missing' });
    await writeFile(join(folder, 'tokenizer.model'), 'x');
    await expect(Tokenizer.load(folder)).rejects.toMatchObject({
      code: 'tokenizer-unsupported',
      message: expect.stringContaining('tokenizer.model') as string,
      fix: expect.stringContaining('save_pretrained') as string,
    });
    await rm(join(folder, 'tokenizer.model'));
  });

  it('tells truncated from broken files', async () => {
    const whole = await readFile('test/fixtures/text/sentencepiece/tokenizer.json', 'utf8');
    for (const cut of [0, 1, 100, whole.length - 10]) {
      await write(whole.slice(0, cut));
      await expect(Tokenizer.load(folder)).rejects.toMatchObject({
        code: 'tokenizer-broken',
        where: join(folder, 'tokenizer.json'),
      });
    }
    await write('');
    await expect(Tokenizer.load(folder)).rejects.toThrow('truncated');
    await write('{"model": oops}');
    await expect(Tokenizer.load(folder)).rejects.toThrow('not valid JSON');
    await write('version https://git-lfs.github.com/spec/v1\noid sha256:0\n');
    await expect(Tokenizer.load(folder)).rejects.toThrow('Git LFS pointer');
    await write('[]');
    await expect(Tokenizer.load(folder)).rejects.toMatchObject({ code: 'tokenizer-broken' });
  });

  it.each([
    ['no model', { model: undefined }, 'tokenizer-broken'],
    ['no vocabulary', { model: { type: 'BPE', merges: [] } }, 'tokenizer-broken'],
    ['an empty vocabulary', { model: { type: 'BPE', vocab: {}, merges: [] } }, 'tokenizer-broken'],
    ['a bad id', { model: { type: 'BPE', vocab: { a: -1 }, merges: [] } }, 'tokenizer-broken'],
    ['no merges', { model: { type: 'BPE', vocab: { a: 0 } } }, 'tokenizer-broken'],
    ['a bad unigram entry', { model: { type: 'Unigram', vocab: [['a']] } }, 'tokenizer-broken'],
    ['a bad added token', { added_tokens: [{ id: 'x' }] }, 'tokenizer-broken'],
    ['another model', { model: { type: 'WordLevel', vocab: { a: 0 } } }, 'tokenizer-unsupported'],
    [
      'a merge of unknown tokens',
      { model: { type: 'BPE', vocab: { a: 0 }, merges: ['a b'] } },
      'tokenizer-broken',
    ],
    ['an unknown post-processor', { post_processor: { type: 'Nope' } }, 'tokenizer-unsupported'],
    ['a normalizer that is no object', { normalizer: 'NFC' }, 'tokenizer-broken'],
    ['an unknown pre-tokenizer', { pre_tokenizer: { type: 'Nope' } }, 'tokenizer-unsupported'],
    ['a decoder without bytes per token', { decoder: { type: 'CTC' } }, 'tokenizer-unsupported'],
    ['an unknown normalizer', { normalizer: { type: 'Nope' } }, 'tokenizer-unsupported'],
  ])('refuses %s', async (_what, change, code) => {
    await write(minimal(change));
    await expect(Tokenizer.load(folder)).rejects.toMatchObject({ name: 'KvantError', code });
  });

  it('refuses a broken tokenizer_config.json', async () => {
    await cp('test/fixtures/text/sentencepiece/tokenizer.json', join(folder, 'tokenizer.json'));
    await writeFile(join(folder, 'tokenizer_config.json'), '{"bos_token": "<s>"');
    await expect(Tokenizer.load(folder)).rejects.toMatchObject({
      code: 'tokenizer-broken',
      where: join(folder, 'tokenizer_config.json'),
    });
    await rm(join(folder, 'tokenizer_config.json'));
    const bare = await Tokenizer.load(folder);
    expect(bare.specialTokens).toEqual({});
  });

  it('reads files with a byte-order mark', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'kvant-bom-'));
    try {
      const json = await readFile(join(FOLDERS.sentencepiece, 'tokenizer.json'), 'utf8');
      await writeFile(join(folder, 'tokenizer.json'), `\ufeff${json}`);
      expect((await Tokenizer.load(folder)).vocabSize).toBe(fixtures.sentencepiece.vocabSize);
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  it('says so when the vocabulary lacks a token that its rules produce', () => {
    const tokenizer = Tokenizer.fromJson({
      model: { type: 'BPE', vocab: { a: 0 }, merges: [] },
      post_processor: {
        type: 'TemplateProcessing',
        single: [{ SpecialToken: { id: '<s>', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
        pair: [],
        special_tokens: {},
      },
    });
    expect([...tokenizer.encode('a', { addSpecialTokens: false })]).toEqual([0]);
    expect(() => tokenizer.encode('a')).toThrow('no token for a part of the text');
  });

  it('takes over added tokens that only the configuration names, and adds the BOS it asks for', () => {
    const tokenizer = Tokenizer.fromJson(
      { model: { type: 'BPE', vocab: { a: 0 }, merges: [] } },
      {
        added_tokens_decoder: { '5': { content: '<s>', special: true } },
        bos_token: { content: '<s>' },
        add_bos_token: true,
      },
    );
    expect(tokenizer.vocabSize).toBe(6);
    expect(tokenizer.specialIds).toEqual(new Set([5]));
    expect([...tokenizer.encode('a<s>a')]).toEqual([5, 0, 5, 0]);
    expect([...tokenizer.encode('<s>a')]).toEqual([5, 0]);
    expect([...tokenizer.encode('a', { addSpecialTokens: false })]).toEqual([0]);
  });
});
