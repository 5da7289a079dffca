import { describe, expect, it } from 'vitest';
import { KvantError } from '../../errors.js';
import { Tokenizer } from '../tokenizer.js';
import { ggufText } from './gguf-tokenizer.js';
import type { TokenizerMetadata } from './tokenizer-metadata.js';

function metadata(values: Record<string, unknown>): TokenizerMetadata {
  const get = <T>(key: string): T | undefined => values[key.replace('tokenizer.ggml.', '')] as T | undefined;
  return {
    path: 'x.gguf',
    keys: () => [],
    text: get,
    flag: get,
    number: get,
    count: get,
    texts: get,
    numbers: get,
    odd: (key, wanted) => new KvantError('model-config', `${key}: ${wanted} is needed`, { fix: 'Fix it.' }),
  };
}

function made(keys: Record<string, unknown>): Tokenizer {
  const { tokenizer, tokenizerConfig } = ggufText(metadata(keys));
  return Tokenizer.fromJson(tokenizer, tokenizerConfig);
}

const ids = (keys: Record<string, unknown>, text: string): number[] => [
  ...made(keys).encode(text, { addSpecialTokens: true }),
];

const BERT = {
  model: 'bert',
  tokens: ['[UNK]', '[CLS]', '[SEP]', '▁caf', 'e', '▁a', '▁,', '▁▁', '', 'é', '▁[unused1]'],
  token_type: [3, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1],
  unknown_token_id: 0,
};

describe('WordPiece of a GGUF file', () => {
  it('takes pieces with a mark for beginnings of words, and stands a text between its two tokens', () => {
    expect(ids(BERT, 'Café a, cafe!')).toEqual([1, 3, 4, 5, 6, 3, 4, 0, 2]);
    expect(ids(BERT, '[SEP] a')).toEqual([1, 2, 5, 2]);
    expect(made(BERT).decode([3, 4, 6, 5])).toBe('cafe, a');
    const other = { ...BERT, tokens: BERT.tokens.map((token) => token.replace(/^\[(CLS|SEP)\]$/, '<$1>')) };
    expect(ids({ ...other, cls_token_id: 1, seperator_token_id: 2 }, 'a')).toEqual([1, 5, 2]);
    expect(ids({ ...other, cls_token_id: 99 }, 'a')).toEqual([5]);
    expect(ids({ ...BERT, add_bos_token: false, add_sep_token: false }, 'a')).toEqual([5]);
  });

  it('keeps case and accents where the vocabulary has capitals, or the file says so', () => {
    const cased = { ...BERT, tokens: [...BERT.tokens, '▁Caf'], token_type: [...BERT.token_type, 1] };
    expect(ids(cased, 'Café')).toEqual([1, 11, 9, 2]);
    expect(ids({ ...cased, 'normalizer.lowercase': true }, 'Café')).toEqual([1, 3, 4, 2]);
    const kept = { ...BERT, 'normalizer.lowercase': true, 'normalizer.strip_accents': false };
    expect(ids(kept, 'Café')).toEqual([1, 3, 9, 2]);
  });
});

const UNIGRAM = {
  model: 't5',
  tokens: ['<s>', '<pad>', '</s>', '<unk>', '▁', 'a', '▁a', 'ab', '[PAD8]'],
  token_type: [3, 3, 3, 2, 1, 1, 1, 1, 5],
  scores: [0, 0, 0, 0, -3, -4, -2, -3, -10_000],
  bos_token_id: 0,
  eos_token_id: 2,
};

describe('Unigram of a GGUF file', () => {
  it('takes the best pieces, and never a row that fills up', () => {
    // ▁ + ab has −6, ▁a + unknown less.
    expect(ids(UNIGRAM, 'ab a')).toEqual([0, 4, 7, 6, 2]);
    expect(ids(UNIGRAM, '[PAD8]')).not.toContain(8);
    expect(ids(UNIGRAM, 'a  a')).toEqual([0, 6, 4, 6, 2]);
    expect(ids({ ...UNIGRAM, remove_extra_whitespaces: true }, 'a  a ')).toEqual([0, 6, 6, 2]);
    expect(ids({ ...UNIGRAM, add_space_prefix: false }, 'a')).toEqual([0, 5, 2]);
  });

  it('refuses what does not fit', () => {
    expect(() => ggufText(metadata({ ...UNIGRAM, scores: [1] }))).toThrow(/scores/);
    expect(() => made({ ...UNIGRAM, precompiled_charsmap: [255, 0, 0, 0] })).toThrow(KvantError);
  });
});
