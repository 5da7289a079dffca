/** What llama.cpp's converters call tensors of encoders, and what they write of tokenizers, for tests that write such files. */

import { bool, f32s, i32s, string, strings, type Value } from '../setup/gguf-writer.js';

type Json = Record<string, unknown>;

/** The keys of a tokenizer; `ids` gives the id of a token. */
export type TokenizerKeys = (json: TokenizerJson, ids: (token: string) => Value) => Record<string, Value>;

export interface TokenizerJson {
  readonly model: Json & {
    readonly vocab: Record<string, number> | [string, number][];
    readonly merges?: string[][];
  };
  readonly added_tokens: readonly { readonly id: number; readonly content: string }[];
}

const NORMAL = 1;
const CONTROL = 3;

/** All tokens by id, with the types that a converter gives them. */
export function vocabulary(json: TokenizerJson): { tokens: string[]; types: number[] } {
  const { vocab } = json.model;
  const tokens: string[] = Array.isArray(vocab)
    ? vocab.map(([piece]) => piece)
    : Object.entries(vocab).reduce<string[]>((list, [piece, id]) => {
        list[id] = piece;
        return list;
      }, []);
  for (const { id, content } of json.added_tokens) tokens[id] = content;
  const special = new Set(json.added_tokens.map(({ id }) => id));
  return { tokens, types: tokens.map((_, id) => (special.has(id) ? CONTROL : NORMAL)) };
}

export const pieces: TokenizerKeys = (json, ids) => {
  const { tokens, types } = vocabulary(json);
  const phantom = (token: string, id: number): string =>
    types[id] === CONTROL ? token : token.startsWith('##') ? token.slice(2) : `\u2581${token}`;
  return {
    'tokenizer.ggml.model': string('bert'),
    'tokenizer.ggml.pre': string('jina-v2-en'),
    'tokenizer.ggml.tokens': strings(tokens.map(phantom)),
    'tokenizer.ggml.token_type': i32s(types),
    'tokenizer.ggml.unknown_token_id': ids('[UNK]'),
    'tokenizer.ggml.seperator_token_id': ids('[SEP]'),
    'tokenizer.ggml.padding_token_id': ids('[PAD]'),
    'tokenizer.ggml.cls_token_id': ids('[CLS]'),
  };
};

export const byteLevel =
  (pre: string, more: (ids: (token: string) => Value) => Record<string, Value>): TokenizerKeys =>
  (json, ids) => {
    const { tokens, types } = vocabulary(json);
    return {
      'tokenizer.ggml.model': string('gpt2'),
      'tokenizer.ggml.pre': string(pre),
      'tokenizer.ggml.tokens': strings(tokens),
      'tokenizer.ggml.token_type': i32s(types),
      'tokenizer.ggml.merges': strings(json.model.merges!.map((merge) => merge.join(' '))),
      ...more(ids),
    };
  };

export const scored: TokenizerKeys = (json, ids) => {
  const { tokens, types } = vocabulary(json);
  const vocab = json.model.vocab as [string, number][];
  const unknown = tokens.indexOf('<unk>');
  return {
    'tokenizer.ggml.model': string('t5'),
    'tokenizer.ggml.pre': string('default'),
    'tokenizer.ggml.tokens': strings(tokens),
    'tokenizer.ggml.token_type': i32s(types.map((type, id) => (id === unknown ? 2 : type))),
    'tokenizer.ggml.scores': f32s(vocab.map(([, score]) => score)),
    'tokenizer.ggml.add_space_prefix': bool(true),
    'tokenizer.ggml.remove_extra_whitespaces': bool(false),
    'tokenizer.ggml.bos_token_id': ids('<s>'),
    'tokenizer.ggml.eos_token_id': ids('</s>'),
    'tokenizer.ggml.unknown_token_id': ids('<unk>'),
    'tokenizer.ggml.seperator_token_id': ids('</s>'),
  };
};

export const BERT_NAMES = {
  'embeddings.word_embeddings': 'token_embd',
  'embeddings.LayerNorm': 'token_embd_norm',
  'embeddings.token_type_embeddings': 'token_types',
  'embeddings.position_embeddings': 'position_embd',
  'attention.self.query': 'attn_q',
  'attention.self.key': 'attn_k',
  'attention.self.value': 'attn_v',
  'attention.output.dense': 'attn_output',
  'attention.output.LayerNorm': 'attn_output_norm',
  'intermediate.dense': 'ffn_up',
  'output.dense': 'ffn_down',
  'output.LayerNorm': 'layer_output_norm',
};

export const MODERN_NAMES = {
  'embeddings.tok_embeddings': 'token_embd',
  'embeddings.norm': 'token_embd_norm',
  final_norm: 'output_norm',
  'attn.Wqkv': 'attn_qkv',
  'attn.Wo': 'attn_output',
  attn_norm: 'attn_norm',
  mlp_norm: 'ffn_norm',
  'mlp.Wi': 'ffn_up',
  'mlp.Wo': 'ffn_down',
};

export const modernEnds = (ids: (token: string) => Value): Record<string, Value> => ({
  'tokenizer.ggml.add_bos_token': bool(true),
  'tokenizer.ggml.add_eos_token': bool(true),
  'tokenizer.ggml.add_sep_token': bool(true),
  'tokenizer.ggml.bos_token_id': ids('[CLS]'),
  'tokenizer.ggml.eos_token_id': ids('[SEP]'),
  'tokenizer.ggml.seperator_token_id': ids('[SEP]'),
});
