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

const GPT2_WORDS = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

const SEED = `${CONTRACTIONS}|${BEFORE}\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|${SPACES}`;

/** Chinese by itself, and letters of other scripts as GPT-4o has them. */
const OTHER_UPPER = `(?:(?!\\p{Han})${UPPER})`;
const OTHER_LOWER = `(?:(?!\\p{Han})${LOWER})`;
const KIMI = `\\p{Han}+|${BEFORE}${OTHER_UPPER}*${OTHER_LOWER}+${CONTRACTIONS}?|${BEFORE}${OTHER_UPPER}+${OTHER_LOWER}*${CONTRACTIONS}?|\\p{N}{1,3}|${OTHERS}|${SPACES}`;

/** Of letters that have a case, those that DeepSeek's first tokenizer knows as such. */
const CASED =
  'A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\u{10400}-\u{1044f}\u{104b0}-\u{104d3}\u{104d8}-\u{104fb}\u{10c80}-\u{10cb2}\u{10cc0}-\u{10cf2}\u{118a0}-\u{118df}\u{1e900}-\u{1e943}';
const EAST_ASIAN = '[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+';

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

const split = (Regex: string): JsonObject => ({
  type: 'Split',
  pattern: { Regex },
  behavior: 'Isolated',
  invert: false,
});

/** One cut after the other. */
const inTurn = (...patterns: (string | JsonObject)[]): SplitPattern => ({
  ...GPT2,
  preTokenizer: {
    type: 'Sequence',
    pretokenizers: [...patterns.map((one) => (typeof one === 'string' ? split(one) : one)), byteLevel(false)],
  },
});
const EACH_DIGIT = { type: 'Digits', individual_digits: true };

/** Numbers first, then what Chinese and Japanese are written in, then the rest. */
const LIKE_DEEPSEEK3 = inTurn('\\p{N}{1,3}', '[一-龥\u3040-ゟ゠-ヿ]+', DEEPSEEK3);
const DEEPSEEK_LLM = inTurn(
  '[\\r\\n]',
  `\\s?[${CASED}]+`,
  '\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+',
  '\\s+$',
  EAST_ASIAN,
  EACH_DIGIT,
);
const DEEPSEEK_CODER = inTurn('[\\r\\n]', '\\s?\\p{L}+', '\\s?\\p{P}+', EAST_ASIAN, EACH_DIGIT);
/** Numbers by thousands, from their ends. */
const TINY_AYA = inTurn('\\d{1,3}(?=(?:\\d{3})*\\b)', GPT4O);
const AFMOE = inTurn(
  '\\p{Nd}{1,3}(?=(?:\\p{Nd}{3})*(?!\\p{Nd}))',
  '[一-鿿㐀-䶿豈-\ufaff\u3040-ゟ゠-ヿ･-ﾟ⼀-⿟เ-\u0e7f\u0e80-\u0effក-\u17ffက-႟ꩠ-ꩿ\ua9e0-\ua9ff가-\ud7afᄀ-ᇿ]+',
  DEEPSEEK3,
);

const YOUTU = inTurn(
  '[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-\u303f︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u3040-ゟ゠-ヿ]+',
  GPT4O.replace('{1,3}', ''),
);
const SPARK = inTurn(
  '\\p{N}{1,3}',
  '[一-龥\u3040-ゟ゠-ヿ]+',
  DEEPSEEK3.replace('+[\\r\\n]*|\\s*[\\r\\n]+', '+|[\\r\\n]'),
  '\\p{N}',
);
const MINICPM5 = inTurn('\\p{N}{1,3}', LLAMA3.replace('{1,3}', '+'));
const BAILING = `'(?i:[sdmt]|ll|ve|re)|${BEFORE}\\p{L}+|\\p{N}|${OTHERS}|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+`;
const EXAONE_MOE = `${CONTRACTIONS}|${BEFORE}(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+`;
const JAIS2 = LLAMA3.replace(
  '\\s+(?!\\S)|\\s+',
  `${[512, 256, 128, 64, 32, 16, 8, 4].map((most) => `\\s{${most}}(?!\\S)`).join('|')}|\\s{1,2}(?!\\S)|\\s{1}`,
);
/** Of BLOOM. */
const BETWEEN_SIGNS = ' ?[^(\\s|.,!?…。，、।۔،)]+';

/** Of Falcon, and where nothing else is said. Behind the third of its steps there are symbols of bytes. */
const FALCON_THREES = split('[0-9][0-9][0-9]');
const inSymbols = (...pretokenizers: JsonObject[]): SplitPattern => ({
  ...GPT2,
  preTokenizer: { type: 'Sequence', pretokenizers },
});
const FALCON = inSymbols(
  { type: 'Punctuation', behavior: 'Contiguous' },
  byteLevel(true),
  { type: 'Digits', individual_digits: false },
  FALCON_THREES,
);
const LLAMA_CPP_DEFAULT = inTurn('[\\p{P}$+<=>^~|]+', GPT2_WORDS, '\\p{N}+', '[0-9][0-9][0-9]');
const CHAMELEON = inTurn(
  '<sentinel:[0-9]+>',
  '(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z',
  '([\\t\\n]|    |  )',
  EACH_DIGIT,
  { type: 'Punctuation', behavior: 'Isolated' },
  GPT2_WORDS,
);

const named = (pattern: SplitPattern, ...names: string[]): [string, SplitPattern][] =>
  names.map((name) => [name, pattern]);

const PATTERNS = new Map<string, SplitPattern>([
  ...named(
    LIKE_LLAMA3,
    'llama3',
    'llama-v3',
    'llama-bpe',
    'falcon3',
    'falcon-h1',
    'lfm2',
    'midm-2.0',
    'pixtral',
    'jina-v5-nano',
  ),
  ...named(by(LLAMA3), 'dbrx', 'smaug-bpe'),
  // As of tiktoken's, whole words are taken first: merges of GLM do not reach all of its tokens.
  ...named(by(LLAMA3, { ignoreMerges: true }), 'glm4', 'glm5', 'chatglm-bpe'),
  ...named(LIKE_QWEN2, 'qwen2', 'deepseek-r1-qwen', 'kormo', 'f2llmv2', 'megrez'),
  ...named(LIKE_QWEN2, 'stablelm2'),
  ...named(by(QWEN2), 'hunyuan', 'solar-open', 'grok-2'),
  ...named(by(QWEN2.slice(CONTRACTIONS.length + 1)), 'ufakzeka'),
  ...named(inTurn('[^\\n]+|[\\n]+', QWEN2), 'laguna'),
  ...named(by(QWEN35, NFC), 'qwen35'),
  ...named(by(GPT4O), 'gpt-4o', 'llama4', 'minimax-m2', 'kanana2', 'talkie'),
  ...named(by(GPT4O, { ignoreMerges: true, encloses: true }), 'granite-embed-multi-97m'),
  ...named(by(TEKKEN, { ignoreMerges: true, addBos: true }), 'tekken'),
  ...named(by(SEED), 'seed-coder'),
  // Its own tokenizer takes a word that is a token before it merges.
  ...named(by(KIMI, { ignoreMerges: true }), 'kimi-k2'),
  ...named(TINY_AYA, 'tiny_aya', 'cohere2moe'),
  ...named(LIKE_DEEPSEEK3, 'deepseek-v3', 'hunyuan-dense', 'joyai-llm', 'hy_v4'),
  ...named(DEEPSEEK_LLM, 'deepseek-llm'),
  ...named(DEEPSEEK_CODER, 'deepseek-coder'),
  ...named(
    GPT2,
    'gpt-2',
    'phi-2',
    'exaone4',
    'olmo',
    'trillion',
    'granite-docling',
    'gigachat',
    'a.x-4.0',
    'mellum',
    'jais',
    'jina-es',
    'jina-de',
    'jina-v2-es',
    'jina-v2-de',
  ),
  ...named({ ...GPT2, ...NFC }, 'mpt'),
  ...named({ ...GPT2, ...NFC, encloses: true }, 'modern-bert'),
  ...named({ ...GPT2, encloses: true }, 'roberta-bpe', 'jina-v1-en', 'jina-v2-code'),
  ...named(SINGLE_DIGITS, 'smollm', 'starcoder', 'refact', 'codeshell', 'minerva-7b', 'exaone', 'mellum2'),
  ...named({ ...SINGLE_DIGITS, ...NFC }, 'command-r'),
  ...named({ ...MINICPM5, ignoreMerges: true }, 'minicpm5'),
  ...named({ ...YOUTU, ignoreMerges: true }, 'youtu'),
  ...named(SPARK, 'spark2_5'),
  ...named(AFMOE, 'afmoe'),
  ...named(by(BAILING), 'bailingmoe', 'bailingmoe2', 'llada-moe'),
  ...named(by(EXAONE_MOE), 'exaone-moe'),
  ...named(by(JAIS2), 'jais-2'),
  ...named(by(BETWEEN_SIGNS), 'poro-chat', 'bloom', 'gpt3-finnish'),
  ...named(inTurn(BETWEEN_SIGNS, EACH_DIGIT), 'viking'),
  ...named(inTurn('\\p{N}+', '(?=(\\d{3})+(?!\\d))'), 'superbpe'),
  ...named(FALCON, 'falcon'),
  ...named({ ...CHAMELEON, addBos: true }, 'chameleon'),
  ...named(LLAMA_CPP_DEFAULT, 'default'),
]);

/** Names of tokenizers that have no words before merging: spaces are marked, and a text is merged as a whole. */
const MARKED_SPACES: Readonly<Record<string, { readonly encloses: boolean }>> = {
  gemma4: { encloses: false },
  'sarvam-moe': { encloses: false },
  'granite-embed-multi-311m': { encloses: true },
};

/** @returns undefined for a name that stands for words */
export function markedSpacesOf(name: string): { readonly encloses: boolean } | undefined {
  return Object.hasOwn(MARKED_SPACES, name) ? MARKED_SPACES[name] : undefined;
}

/** Names that are known, sorted. */
export const SPLIT_NAMES: readonly string[] = [...PATTERNS.keys()].sort();

/** @returns undefined for a name that is not known: nothing may be guessed, for every id would be another */
export function splitPattern(name: string): SplitPattern | undefined {
  return PATTERNS.get(name);
}
