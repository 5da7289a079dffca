/** Tokenizers of BERT: `vocab.txt`, a token a line. */

import type { JsonObject } from '../json-file.js';

/** What a BertTokenizer takes where tokenizer_config.json is silent. */
export const BERT_ROLES = {
  unk_token: '[UNK]',
  sep_token: '[SEP]',
  pad_token: '[PAD]',
  cls_token: '[CLS]',
  mask_token: '[MASK]',
};
type Roles = Readonly<typeof BERT_ROLES>;

/** A text stands between `cls_token` and `sep_token`. `roles`: as texts. */
export function wordPieceTokenizer(
  text: string,
  roles: Roles,
  { do_lower_case: lower, tokenize_chinese_chars: chinese, strip_accents: strip }: JsonObject,
): JsonObject {
  const lines = text.split(/\r\n|\n|\r/);
  if (lines.at(-1) === '') lines.pop();
  const vocab = Object.fromEntries(lines.map((token, id) => [token, id]));
  const special = [...new Set(Object.values(roles))].filter((token) => Object.hasOwn(vocab, token));
  const idOf = (token: string): number => {
    const id = Object.hasOwn(vocab, token) ? vocab[token] : undefined;
    if (id === undefined) throw new RangeError(`no line is ${token}`);
    return id;
  };
  const first = { SpecialToken: { id: roles.cls_token, type_id: 0 } };
  const end = (type_id: number): JsonObject => ({ SpecialToken: { id: roles.sep_token, type_id } });
  const part = (id: string, type_id: number): JsonObject => ({ Sequence: { id, type_id } });
  return {
    version: '1.0',
    added_tokens: special.map((content) => ({
      id: idOf(content),
      content,
      normalized: false,
      special: true,
    })),
    normalizer: {
      type: 'BertNormalizer',
      clean_text: true,
      handle_chinese_chars: chinese !== false,
      strip_accents: typeof strip === 'boolean' ? strip : null,
      lowercase: lower !== false,
    },
    pre_tokenizer: { type: 'BertPreTokenizer' },
    post_processor: {
      type: 'TemplateProcessing',
      single: [first, part('A', 0), end(0)],
      pair: [first, part('A', 0), end(0), part('B', 1), end(1)],
      special_tokens: Object.fromEntries(
        [roles.cls_token, roles.sep_token].map((token) => [
          token,
          { id: token, ids: [idOf(token)], tokens: [token] },
        ]),
      ),
    },
    decoder: { type: 'WordPiece', prefix: '##', cleanup: true },
    model: {
      type: 'WordPiece',
      unk_token: roles.unk_token,
      continuing_subword_prefix: '##',
      max_input_chars_per_word: 100,
      vocab,
    },
  };
}
