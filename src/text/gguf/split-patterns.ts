/**
 * How texts are cut into words before byte-pair merging, by the name that GGUF files give it (`tokenizer.ggml.pre`).
 *
 * Source: the patterns of the models' own tokenizer.json files; which names share one is told by llama.cpp (llama-vocab.cpp).
 */

import type { JsonObject } from '../json-file.js';

/** What a name stands for, as parts of a tokenizer.json. */
export interface SplitPattern {
  readonly preTokenizer: JsonObject;
  readonly normalizer: JsonObject | null;
  /** A word that is a token as a whole is taken as that, whatever its merges say. */
  readonly ignoreMerges: boolean;
  /** Where the file does not say whether a text begins with a BOS token. */
  readonly addBos: boolean;
  /** An encoder's: a text stands between two tokens. */
  readonly encloses: boolean;
}

const CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const SPACES = '\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
const OTHERS = ' ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*';
const UPPER = '[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]';
const LOWER = '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]';
const BEFORE = '[^\\r\\n\\p{L}\\p{N}]?';

const LLAMA3 = `${CONTRACTIONS}|${BEFORE}\\p{L}+|\\p{N}{1,3}|${OTHERS}|${SPACES}`;
const QWEN2 = `${CONTRACTIONS}|${BEFORE}\\p{L}+|\\p{N}|${OTHERS}|${SPACES}`;
const QWEN35 = `${CONTRACTIONS}|${BEFORE}[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|${SPACES}`;
const GPT4O = `${BEFORE}${UPPER}*${LOWER}+${CONTRACTIONS}?|${BEFORE}${UPPER}+${LOWER}*${CONTRACTIONS}?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${SPACES}`;
const TEKKEN = `${BEFORE}${UPPER}*${LOWER}+|${BEFORE}${UPPER}+${LOWER}*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${SPACES}`;

const ASCII_MARKS = '[!"#$%&\'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]';
const DEEPSEEK3 = `${ASCII_MARKS}[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|${SPACES}`;

/** Words by GPT-2's pattern. */
const byteLevel = (useRegex: boolean): JsonObject => ({
  type: 'ByteLevel',
  add_prefix_space: false,
  trim_offsets: true,
  use_regex: useRegex,
});

const by = (Regex: string, more: Partial<SplitPattern> = {}): SplitPattern => ({
  preTokenizer: {
    type: 'Sequence',
    pretokenizers: [
      { type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false },
      byteLevel(false),
    ],
  },
  normalizer: null,
  ignoreMerges: false,
  addBos: false,
  encloses: false,
  ...more,
});

const GPT2: SplitPattern = {
  preTokenizer: byteLevel(true),
  normalizer: null,
  ignoreMerges: false,
  addBos: false,
  encloses: false,
};

/** GPT-2's words, with every digit by itself. */
const SINGLE_DIGITS: SplitPattern = {
  ...GPT2,
  preTokenizer: {
    type: 'Sequence',
    pretokenizers: [{ type: 'Digits', individual_digits: true }, byteLevel(true)],
  },
};

const NFC = { normalizer: { type: 'NFC' } };
const LIKE_LLAMA3 = by(LLAMA3, { ignoreMerges: true, addBos: true });
const LIKE_QWEN2 = by(QWEN2, NFC);

/** Numbers first, then what Chinese and Japanese are written in, then the rest. */
const LIKE_DEEPSEEK3: SplitPattern = {
  ...GPT2,
  preTokenizer: {
    type: 'Sequence',
    pretokenizers: [
      ...['\\p{N}{1,3}', '[一-龥\u3040-ゟ゠-ヿ]+', DEEPSEEK3].map((Regex) => ({
        type: 'Split',
        pattern: { Regex },
        behavior: 'Isolated',
        invert: false,
      })),
      byteLevel(false),
    ],
  },
};

const PATTERNS = new Map<string, SplitPattern>([
  ['llama3', LIKE_LLAMA3],
  ['llama-v3', LIKE_LLAMA3],
  ['llama-bpe', LIKE_LLAMA3],
  ['dbrx', by(LLAMA3)],
  ['smaug-bpe', by(LLAMA3)],
  ['qwen2', LIKE_QWEN2],
  ['deepseek-r1-qwen', LIKE_QWEN2],
  ['qwen35', by(QWEN35, NFC)],
  ['gpt-4o', by(GPT4O)],
  ['tekken', by(TEKKEN, { ignoreMerges: true })],
  ['glm4', by(LLAMA3)],
  ['chatglm-bpe', by(LLAMA3)],
  ['deepseek-v3', LIKE_DEEPSEEK3],
  ['hunyuan-dense', LIKE_DEEPSEEK3],
  ['gpt-2', GPT2],
  ['phi-2', GPT2],
  ['modern-bert', { ...GPT2, ...NFC, encloses: true }],
  ['roberta-bpe', { ...GPT2, encloses: true }],
  ['smollm', SINGLE_DIGITS],
  ['starcoder', SINGLE_DIGITS],
  ['refact', SINGLE_DIGITS],
  ['codeshell', SINGLE_DIGITS],
  ['command-r', { ...SINGLE_DIGITS, ...NFC }],
]);

/** Names that are known, sorted. */
export const SPLIT_NAMES: readonly string[] = [...PATTERNS.keys()].sort();

/** @returns undefined for a name that is not known: nothing may be guessed, for every id would be another */
export function splitPattern(name: string): SplitPattern | undefined {
  return PATTERNS.get(name);
}
