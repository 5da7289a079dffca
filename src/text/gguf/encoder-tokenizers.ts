/**
 * Tokenizers of encoders in GGUF files: WordPiece (`bert`) and Unigram (`t5`). A text stands between two tokens.
 *
 * Source: what llama.cpp's converter writes (conversion/bert.py), and what such models have in their tokenizer.json.
 */

import type { JsonObject } from '../json-file.js';
import type { TokenizerMetadata } from './tokenizer-metadata.js';

/** `tokenizer.ggml.token_type`. */
const UNKNOWN = 2;
const CONTROL = 3;
const UNUSED = 5;

const AT = 'tokenizer.ggml.';
const MARK = '\u2581';
const CONTINUED = '##';

/** The parts of a tokenizer.json that the kind decides. */
export interface EncoderParts {
  readonly model: JsonObject;
  readonly normalizer: JsonObject | null;
  readonly preTokenizer: JsonObject | null;
  readonly decoder: JsonObject;
}

/** Pieces that begin a word have a mark before them in the file, and others nothing; here those go on with `##`. */
export function wordPiece(
  metadata: TokenizerMetadata,
  tokens: readonly string[],
  types: readonly number[],
): EncoderParts {
  const pieces = tokens.map((token, id) => {
    if (types[id] === CONTROL) return token;
    return token.startsWith(MARK) && token !== MARK ? token.slice(MARK.length) : CONTINUED + token;
  });
  // Older files do not say. A vocabulary of lower case has no capital letter in a word.
  const lowercase =
    metadata.flag(`${AT}normalizer.lowercase`) ??
    !pieces.some((piece, id) => types[id] !== CONTROL && /^(##)?\p{Lu}/u.test(piece));
  const unknown = metadata.count(`${AT}unknown_token_id`, 0);
  return {
    model: {
      type: 'WordPiece',
      unk_token: (unknown === undefined ? undefined : pieces[unknown]) ?? '[UNK]',
      continuing_subword_prefix: CONTINUED,
      max_input_chars_per_word: 100,
      vocab: Object.fromEntries(pieces.map((piece, id) => [piece, id])),
    },
    normalizer: {
      type: 'BertNormalizer',
      clean_text: true,
      handle_chinese_chars: true,
      strip_accents: metadata.flag(`${AT}normalizer.strip_accents`) ?? null,
      lowercase,
    },
    preTokenizer: { type: 'BertPreTokenizer' },
    decoder: { type: 'WordPiece', prefix: CONTINUED, cleanup: true },
  };
}

/** @throws KvantError `model-config` where scores are missing */
export function unigram(
  metadata: TokenizerMetadata,
  tokens: readonly string[],
  types: readonly number[],
): EncoderParts {
  const scores = metadata.numbers(`${AT}scores`);
  if (scores?.length !== tokens.length)
    throw metadata.odd(`${AT}scores`, `a list of ${tokens.length}, one for each token,`);
  const worst = scores.reduce(
    (least, score, id) => (types[id] === UNUSED ? least : Math.min(least, score)),
    0,
  );
  const charsmap = metadata.numbers(`${AT}precompiled_charsmap`);
  const space = {
    type: 'Metaspace',
    replacement: MARK,
    prepend_scheme: (metadata.flag(`${AT}add_space_prefix`) ?? true) ? 'always' : 'never',
    split: true,
  };
  const unknown = metadata.count(`${AT}unknown_token_id`, 0) ?? types.indexOf(UNKNOWN);
  return {
    model: {
      type: 'Unigram',
      unk_id: unknown < 0 ? null : unknown,
      byte_fallback: false,
      // No text may come to rows that only fill the table up.
      vocab: tokens.map((token, id) => (types[id] === UNUSED ? [`\0${token}`, worst] : [token, scores[id]!])),
    },
    normalizer:
      charsmap === undefined
        ? null
        : {
            type: 'Precompiled',
            precompiled_charsmap: Buffer.from(Uint8Array.from(charsmap)).toString('base64'),
          },
    preTokenizer:
      metadata.flag(`${AT}remove_extra_whitespaces`) === true
        ? { type: 'Sequence', pretokenizers: [{ type: 'WhitespaceSplit' }, space] }
        : space,
    decoder: space,
  };
}

/**
 * What stands before and behind a text: `[CLS]` and `[SEP]`, or what the file has in their place. Between the two texts of a pair it is
 * `[SEP]` once.
 * @param twice there it is twice, as RoBERTa has it
 * @returns null where the file wants neither
 */
export function enclosed(
  metadata: TokenizerMetadata,
  tokens: readonly string[],
  twice: boolean,
): JsonObject | null {
  const idOf = (keys: readonly string[], usual: string): number | undefined => {
    for (const key of keys) {
      const id = metadata.count(`${AT}${key}_token_id`, 0);
      if (id !== undefined && id < tokens.length) return id;
    }
    const found = tokens.indexOf(usual);
    return found < 0 ? undefined : found;
  };
  const wants = (...names: string[]): boolean =>
    names.map((name) => metadata.flag(`${AT}add_${name}_token`)).find((flag) => flag !== undefined) ?? true;
  const begin = wants('bos') ? idOf(['cls', 'bos'], '[CLS]') : undefined;
  const end = wants('sep', 'eos') ? idOf(['seperator', 'eos'], '[SEP]') : undefined;
  const special = (id: number | undefined): JsonObject[] =>
    id === undefined ? [] : [{ SpecialToken: { id: tokens[id]!, type_id: 0 } }];
  const ids = [begin, end].filter((id) => id !== undefined);
  if (ids.length === 0) return null;
  const text = (name: 'A' | 'B'): JsonObject => ({ Sequence: { id: name, type_id: 0 } });
  const single = [...special(begin), text('A'), ...special(end)];
  return {
    type: 'TemplateProcessing',
    single,
    pair: [...single, ...(twice ? special(end) : []), text('B'), ...special(end)],
    special_tokens: Object.fromEntries(
      ids.map((id) => [tokens[id]!, { id: tokens[id]!, ids: [id], tokens: [tokens[id]!] }]),
    ),
  };
}
