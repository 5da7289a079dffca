import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { KvantError } from '../../errors.js';
import { ChatTemplate } from '../chat-template.js';
import { byteAlphabet } from '../encoding/byte-alphabet.js';
import { createPreTokenizer } from '../encoding/pre-tokenizers.js';
import { Tokenizer } from '../tokenizer.js';
import { ggufEnds, ggufText } from './gguf-tokenizer.js';
import { mergesOfScores } from './score-merges.js';
import { splitNameOf } from './split-name.js';
import { SPLIT_NAMES, splitPattern } from './split-patterns.js';
import type { TokenizerMetadata } from './tokenizer-metadata.js';

function metadata(values: Record<string, unknown>): TokenizerMetadata {
  const get = <T>(key: string): T | undefined => values[key] as T | undefined;
  return {
    path: 'x.gguf',
    keys: () => Object.keys(values),
    text: get,
    flag: get,
    number: get,
    count: get,
    texts: get,
    numbers: get,
    odd: (key, wanted) => new KvantError('model-config', `${key}: ${wanted} is needed`, { fix: 'Fix it.' }),
  };
}

/** Made by scripts/fixtures/gguf-splits.py. */
const SPLITS = JSON.parse(
  readFileSync(new URL('../../../test/fixtures/text/gguf-splits.json', import.meta.url), 'utf8'),
) as { text: string; codePoints: Record<string, number[]>; symbols: Record<string, number[]> };

const at = (keys: Record<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(Object.entries(keys).map(([key, value]) => [`tokenizer.ggml.${key}`, value]));

const BPE = at({
  model: 'gpt2',
  pre: 'smollm',
  tokens: ['<|endoftext|>', '<|im_end|>', 'a', 'b', 'ab', 'Ġ', 'Ġab', '1', '2', '12', '<tool>', 'c'],
  token_type: [3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 4, 1],
  merges: ['a b', 'Ġ ab', '1 2'],
  bos_token_id: 0,
  eos_token_id: 0,
  padding_token_id: 0xffff_ffff,
});

const PIECES = ['<unk>', '<s>', '</s>', '<0x0A>', '▁', 'a', 'b', '▁a', 'ab', '▁ab', '▁b'];
const SPM = at({
  model: 'llama',
  tokens: PIECES,
  token_type: [2, 3, 3, 6, 1, 1, 1, 1, 1, 1, 1],
  scores: [0, 0, 0, 0, -8, -9, -10, -1, -2, -3, -4],
  bos_token_id: 1,
  eos_token_id: 2,
  unknown_token_id: 0,
});

function made(keys: Record<string, unknown>): Tokenizer {
  const { tokenizer, tokenizerConfig } = ggufText(metadata(keys));
  return Tokenizer.fromJson(tokenizer, tokenizerConfig);
}

const encode = (keys: Record<string, unknown>, text: string, addSpecialTokens = false): number[] => [
  ...made(keys).encode(text, { addSpecialTokens }),
];

function failure(keys: Record<string, unknown>): KvantError {
  try {
    ggufText(metadata(keys));
  } catch (error) {
    return error as KvantError;
  }
  throw new Error('nothing was thrown');
}

describe('byte-level BPE of a GGUF file', () => {
  it('merges, keeps digits apart by the pattern of its name, and takes added tokens whole', () => {
    expect(encode(BPE, 'ab ab12<tool>a<|im_end|>')).toEqual([4, 6, 7, 8, 10, 2, 1]);
    const runs = { ...BPE, 'tokenizer.ggml.pre': 'gpt-2' };
    expect(encode(runs, 'ab12')).toEqual([4, 9]);
    expect(made(BPE).decode([4, 6, 7, 8])).toBe('ab ab12');
  });

  it('begins a text with BOS where the file says so, or its pattern does', () => {
    expect(encode(BPE, 'a', true)).toEqual([2]);
    expect(encode({ ...BPE, 'tokenizer.ggml.add_bos_token': true }, 'a', true)).toEqual([0, 2]);
    const tekken = { ...BPE, 'tokenizer.ggml.pre': 'tekken' };
    expect(encode(tekken, 'a', true)).toEqual([0, 2]);
    const llama = { ...BPE, 'tokenizer.ggml.pre': 'llama-bpe' };
    expect(encode(llama, 'a', true)).toEqual([0, 2]);
    expect(encode({ ...llama, 'tokenizer.ggml.add_bos_token': false }, 'a', true)).toEqual([2]);
    expect(encode({ ...BPE, 'tokenizer.ggml.add_eos_token': true }, 'a', true)).toEqual([2, 0]);
  });

  it('takes a word of GLM whole that its merges do not reach, as its own tokenizer does', () => {
    // `Ġ a` is merged first, and nothing makes `Ġab` of what is left.
    const merges = ['Ġ a', 'a b', 'Ġ ab'];
    const unreached = {
      ...BPE,
      ...at({
        tokens: ['<|endoftext|>', 'a', 'b', 'ab', 'Ġ', 'Ġa', 'Ġab'],
        token_type: [3, 1, 1, 1, 1, 1, 1],
      }),
      ...at({ merges }),
    };
    for (const pre of ['glm4', 'glm5', 'chatglm-bpe'])
      expect(encode({ ...unreached, 'tokenizer.ggml.pre': pre }, ' ab')).toEqual([6]);
    expect(encode({ ...unreached, 'tokenizer.ggml.pre': 'qwen2' }, ' ab')).toEqual([5, 2]);
  });

  it('needs no token for padding that is there, as some files say -1 or one too many', () => {
    for (const id of [-1, 12, 32_000])
      expect(encode({ ...BPE, 'tokenizer.ggml.padding_token_id': id }, 'ab')).toEqual([4]);
    expect(encode({ ...BPE, 'tokenizer.ggml.bos_token_id': -1 }, 'ab', true)).toEqual([4]);
  });

  it('ends a turn at every token that does', () => {
    expect(ggufText(metadata(BPE)).config).toEqual({ eos_token_id: [0, 1] });
    const listed = { ...BPE, 'tokenizer.ggml.eos_token_ids': [0, 4, 99] };
    expect(ggufText(metadata(listed)).config).toEqual({ eos_token_id: [0, 1, 4] });
    const none = { ...BPE, 'tokenizer.ggml.eot_token_id': -1, 'tokenizer.ggml.eom_token_id': 0xffff_ffff };
    expect(ggufText(metadata(none)).config).toEqual({ eos_token_id: [0, 1] });
    const named = { ...BPE, 'tokenizer.ggml.eot_token_id': 1, 'tokenizer.ggml.eom_token_id': 3 };
    expect(ggufText(metadata(named)).config).toEqual({ eos_token_id: [0, 1, 3] });
    const ends = (tokens: readonly string[], types: readonly number[], more: object = {}) =>
      ggufEnds(metadata({ ...more, 'tokenizer.ggml.tokens': tokens, 'tokenizer.ggml.token_type': types }))
        .eos_token_id;
    // gpt-oss: <|end|> ends a message, not the answer, which ends at a call too.
    const harmony = ['<|start|>', '<|end|>', '<|message|>', '<|channel|>', '<|call|>', '<|return|>'];
    expect(ends(harmony, [3, 3, 3, 3, 3, 3], { 'tokenizer.ggml.eos_token_id': 5 })).toEqual([4, 5]);
    expect(ends(['a', '<turn|>', '<|tool_response>', '</s>', '<eos>'], [1, 3, 3, 1, 3])).toEqual([1, 2, 4]);
    expect(ends(['<|im_end|>', '<|eot_id|>'], [4, 3])).toEqual([0, 1]);
    expect(ends(['<|im_end|>', '<|eot_id|>'], [1, 3], { 'tokenizer.ggml.eot_token_id': 1 })).toEqual([1]);
  });

  it('refuses what would change ids in silence, and says what to do', () => {
    for (const pre of ['a-new-one', undefined])
      expect(failure({ ...BPE, 'tokenizer.ggml.pre': pre })).toMatchObject({
        code: 'tokenizer-unsupported',
        fix: expect.stringContaining('qwen2') as string,
      });
    expect(failure({ ...BPE, 'tokenizer.ggml.model': 'rwkv' }).message).toContain('"rwkv"');
    expect(failure({}).code).toBe('tokenizer-missing');
    expect(failure({ ...BPE, 'tokenizer.ggml.merges': undefined }).code).toBe('model-config');
    expect(failure({ ...BPE, 'tokenizer.ggml.token_type': [1] }).code).toBe('model-config');
    expect(failure({ ...BPE, 'tokenizer.ggml.bos_token_id': 99 }).code).toBe('model-config');
  });

  it('has a tokenizer for every name of a pattern', () => {
    expect(SPLIT_NAMES.length).toBeGreaterThan(10);
    for (const pre of SPLIT_NAMES)
      expect(encode({ ...BPE, 'tokenizer.ggml.pre': pre }, 'ab a1', false).length).toBeGreaterThan(2);
    expect(splitPattern('__proto__')).toBeUndefined();
  });

  it.each(Object.entries(SPLITS.codePoints))(
    'cuts by the pattern of %s as the Rust library does',
    (pre, wanted) => {
      const cut = createPreTokenizer(splitPattern(pre)!.preTokenizer);
      const alphabet = new Map(byteAlphabet());
      const textOf = (piece: string): string =>
        Buffer.from(Array.from(piece, (symbol) => alphabet.get(symbol)!)).toString();
      const pieces = cut({ pieces: [SPLITS.text], atStart: true }).pieces.map(textOf);
      expect(pieces.join('')).toBe(SPLITS.text);
      expect(pieces.map((piece) => [...piece].length)).toEqual(wanted);
    },
  );

  it.each(Object.entries(SPLITS.symbols))(
    'cuts by the pattern of %s, which cuts bytes as well, as the Rust library does',
    (pre, wanted) => {
      const cut = createPreTokenizer(splitPattern(pre)!.preTokenizer);
      const { pieces } = cut({ pieces: [SPLITS.text], atStart: true });
      expect(pieces.map((piece) => [...piece].length)).toEqual(wanted);
    },
  );

  it('knows the pattern of a file that does not say it by what it holds', () => {
    const tokens = [
      '<|start_header_id|>',
      '<|eot_id|>',
      '<|im_start|>',
      '<|endoftext|>',
      '<|start|>',
      '<|channel|>',
    ];
    const named = (architecture: string, pre?: string, held = tokens) =>
      splitNameOf(metadata({ 'general.architecture': architecture, 'tokenizer.ggml.pre': pre }), held);
    expect(named('llama')).toBe('llama-bpe');
    expect(named('llama', 'default')).toBe('llama-bpe');
    expect(named('llama', 'smaug-bpe')).toBe('smaug-bpe');
    expect(named('qwen2')).toBe('qwen2');
    expect(named('qwen35moe', 'default')).toBe('qwen35');
    expect(named('gptoss', 'default')).toBe('gpt-4o');
    expect(named('glmocr', 'llama-bpe', [])).toBe('chatglm-bpe');
    expect(named('llama', undefined, ['a'])).toBeUndefined();
    expect(named('llama', 'default', ['a'])).toBe('default');
  });

  it('cuts as the Rust library does by the same pattern', () => {
    const cut = createPreTokenizer(splitPattern('hunyuan-dense')!.preTokenizer);
    const text = "Hello, world! 12345 漢字かな x_y\\z don't\r\n\n  ok";
    const symbols = new Map([...byteAlphabet()].map(([symbol, byte]) => [byte, symbol]));
    const bytes = (piece: string): string =>
      [...Buffer.from(piece)].map((byte) => symbols.get(byte)).join('');
    expect(cut({ pieces: [text], atStart: true }).pieces).toEqual(
      ['Hello', ',', ' world', '!', ' ', '123', '45', ' ', '漢字かな', ' x', '_y', '\\z', ' don', "'t"]
        .concat(['\r\n\n', ' ', ' ok'])
        .map(bytes),
    );
  });
});

describe('SentencePiece of a GGUF file', () => {
  it('merges by score, puts a mark before the text, and spells in bytes what it lacks', () => {
    // ▁a has a better score than ab.
    expect(encode(SPM, 'ab')).toEqual([9]);
    expect(encode(SPM, 'ab', true)).toEqual([1, 9]);
    expect(encode(SPM, 'b\n')).toEqual([10, 3]);
    expect(made(SPM).decode([9, 10])).toBe('ab b');
    expect(encode({ ...SPM, 'tokenizer.ggml.add_space_prefix': false }, 'ab')).toEqual([8]);
  });

  it('orders merges as transformers does', () => {
    // Computed by transformers' generate_merges for these pieces and scores.
    expect(mergesOfScores(PIECES, [0, 0, 0, 0, -8, -9, -10, -1, -2, -3, -4], (id) => id > 3)).toEqual([
      ['▁', 'a'],
      ['a', 'b'],
      ['▁a', 'b'],
      ['▁', 'ab'],
      ['▁', 'b'],
    ]);
  });

  it('merges those of Gemma 4 by their list, with no mark before the text', () => {
    const gemma = {
      ...SPM,
      ...at({ model: 'gemma4', merges: ['▁ a', 'a b', '▁ ab', '▁a b'], add_bos_token: true }),
    };
    expect(encode(gemma, 'ab')).toEqual([PIECES.indexOf('ab')]);
    expect(encode(gemma, ' ab\nb', true)).toEqual([1, PIECES.indexOf('▁ab'), 3, PIECES.indexOf('b')]);
    expect(made(gemma).decode(encode(gemma, ' ab b'))).toBe(' ab b');
    expect(failure({ ...gemma, 'tokenizer.ggml.merges': undefined })).toMatchObject({ code: 'model-config' });
    // As Ollama names them, and as another model of this kind has them in a file of `gpt2`.
    for (const named of [at({ model: 'llama', pre: 'gemma4' }), at({ model: 'gpt2', pre: 'sarvam-moe' })]) {
      const other = { ...gemma, ...named };
      expect(encode(other, ' ab\nb', true)).toEqual([1, PIECES.indexOf('▁ab'), 3, PIECES.indexOf('b')]);
    }
  });

  it('puts no mark before the texts of a Gemma that does not say it', () => {
    expect(encode({ ...SPM, 'general.architecture': 'gemma3' }, 'ab')).toEqual([8]);
    expect(encode({ ...SPM, 'general.architecture': 'llama' }, 'ab')).toEqual([9]);
  });

  it('refuses scores that do not fit', () => {
    expect(failure({ ...SPM, 'tokenizer.ggml.scores': [1] }).code).toBe('model-config');
  });
});

it('lets the added tokens of Phi-3 take the spaces behind them', () => {
  const more = { 'tokenizer.ggml.tokens': [...PIECES, '<|user|>'], 'tokenizer.ggml.add_space_prefix': false };
  const list = (key: string, value: number): Record<string, unknown> => ({
    [`tokenizer.ggml.${key}`]: [...(SPM[`tokenizer.ggml.${key}`] as number[]), value],
  });
  const plain = { ...SPM, ...more, ...list('token_type', 3), ...list('scores', 0) };
  const phi3 = { ...plain, 'general.architecture': 'phi3' };
  expect(encode(plain, '<|user|>\n a<s> b')).toEqual([11, 3, 7, 1, 10]);
  expect(encode(phi3, '<|user|>\n a<s> b')).toEqual([11, 5, 1, 10]);
});

describe('chat templates and sampling of a GGUF file', () => {
  it('finds one template, or several by name', () => {
    const one = { ...BPE, 'tokenizer.chat_template': '{{ bos_token }}{{ messages[0].content }}' };
    const config = ggufText(metadata(one)).tokenizerConfig;
    expect(ChatTemplate.ofConfig(config, 'x')!.render([{ role: 'user', content: 'Hi' }])).toBe(
      '<|endoftext|>Hi',
    );
    const several = { ...one, 'tokenizer.chat_template.tool_use': 'tools' };
    const named = ChatTemplate.ofConfig(ggufText(metadata(several)).tokenizerConfig, 'x')!;
    expect(named.names).toEqual(['default', 'tool_use']);
    expect(ChatTemplate.ofConfig(ggufText(metadata(BPE)).tokenizerConfig, 'x')).toBeUndefined();
  });

  it('takes over what the file says of sampling', () => {
    const keys = { ...BPE, 'general.sampling.temp': 0.6, 'general.sampling.top_k': 20 };
    expect(ggufText(metadata(keys)).generation).toEqual({ temperature: 0.6, top_k: 20 });
  });
});
