/**
 * The tokenizer of a GGUF file as the tokenizer.json and tokenizer_config.json of the model it was made from: from there on all is
 * one way. Three kinds are read: `gpt2` (byte-level BPE with merges), `llama` (SentencePiece pieces with scores) and `gemma4` (such pieces
 * with merges).
 */

import { KvantError } from '../../errors.js';
import { answerEnds } from '../answer-ends.js';
import type { JsonObject } from '../json-file.js';
import { enclosed, unigram, wordPiece } from './encoder-tokenizers.js';
import { mergesOfScores } from './score-merges.js';
import { splitNameOf } from './split-name.js';
import { markedSpacesOf, SPLIT_NAMES, type SplitPattern, splitPattern } from './split-patterns.js';
import type { TokenizerMetadata } from './tokenizer-metadata.js';

/** The small files of a model, made from a GGUF file. */
export interface GgufText {
  readonly tokenizer: JsonObject;
  /** With the chat templates. */
  readonly tokenizerConfig: JsonObject;
  /** What config.json would say of where an answer ends. */
  readonly config: JsonObject;
  /** What generation_config.json would say of sampling. */
  readonly generation: JsonObject;
}

/** `tokenizer.ggml.token_type`. */
const UNKNOWN = 2;
const CONTROL = 3;
const USER_DEFINED = 4;
const BYTE = 6;

const AT = 'tokenizer.ggml.';
const NO_TOKEN = 0xffff_ffff;
const ROLES = { bos: 'bos', eos: 'eos', unk: 'unknown', pad: 'padding' } as const;

/**
 * @throws KvantError `tokenizer-missing` where the file has none, `tokenizer-unsupported` for a kind or a split pattern that is
 * not known, `model-config` where its keys make no sense
 */
export function ggufText(metadata: TokenizerMetadata): GgufText {
  const model = metadata.text(`${AT}model`);
  const tokens = metadata.texts(`${AT}tokens`);
  // Files of weights alone.
  if (model === undefined || model === 'none' || tokens === undefined) throw missing(metadata.path);
  const types = metadata.numbers(`${AT}token_type`) ?? tokens.map(() => 1);
  if (types.length !== tokens.length)
    throw metadata.odd(`${AT}token_type`, `a list of ${tokens.length}, one for each token,`);
  const made = make(metadata, model, tokens, types);
  const special = specialTokens(metadata, tokens);
  const addBos = !made.encloses && (metadata.flag(`${AT}add_bos_token`) ?? made.addBos);
  const addEos = metadata.flag(`${AT}add_eos_token`) ?? false;
  const end = special.eos_token;
  const template = chatTemplate(metadata);
  return {
    tokenizer: {
      version: '1.0',
      added_tokens: addedTokens(tokens, types, takesSpaces(metadata, model)),
      normalizer: made.normalizer,
      pre_tokenizer: made.preTokenizer,
      post_processor: made.encloses
        ? enclosed(metadata, tokens, model === 't5' || metadata.text(`${AT}pre`) === 'roberta-bpe')
        : addEos && end !== undefined
          ? withEnd(end, tokens.indexOf(end))
          : null,
      decoder: made.decoder,
      model: made.model,
    },
    tokenizerConfig: {
      ...special,
      add_bos_token: addBos && special.bos_token !== undefined,
      ...(template === undefined ? {} : { chat_template: template }),
    },
    config: ggufEnds(metadata),
    generation: ggufSampling(metadata),
  };
}

/** What config.json would say of where an answer ends; nothing where the file has no tokens. It asks for no tokenizer that is known. */
export function ggufEnds(metadata: TokenizerMetadata): JsonObject {
  const tokens = metadata.texts(`${AT}tokens`);
  if (tokens === undefined) return {};
  return { eos_token_id: endIds(metadata, tokens, metadata.numbers(`${AT}token_type`) ?? []) };
}

interface Parts extends Pick<SplitPattern, 'preTokenizer' | 'normalizer' | 'addBos' | 'encloses'> {
  readonly model: JsonObject;
  readonly decoder: JsonObject;
}

type MadeParts = Omit<Parts, 'preTokenizer'> & { readonly preTokenizer: JsonObject | null };

function make(
  metadata: TokenizerMetadata,
  model: string,
  tokens: readonly string[],
  types: readonly number[],
): MadeParts {
  const marked = markedSpacesOf(metadata.text(`${AT}pre`) ?? '');
  // Ollama calls the pieces of Gemma 4 those of SentencePiece.
  if (model === 'gemma4' || marked !== undefined)
    return { ...markedSpaces(metadata, tokens, types), ...marked };
  if (model === 'gpt2') return byteLevel(metadata, tokens);
  if (model === 'llama') return sentencePiece(metadata, tokens, types);
  if (model === 'bert' || model === 't5')
    return {
      ...(model === 'bert' ? wordPiece : unigram)(metadata, tokens, types),
      addBos: false,
      encloses: true,
    };
  throw unsupported(
    metadata.path,
    `a tokenizer of the kind ${JSON.stringify(model)}`,
    'gpt2, llama, gemma4, bert and t5',
  );
}

function byteLevel(metadata: TokenizerMetadata, tokens: readonly string[]): Parts {
  const pre = splitNameOf(metadata, tokens);
  const pattern = splitPattern(pre ?? '');
  if (pattern === undefined) {
    const what =
      pre === undefined
        ? `a tokenizer that does not say how texts are split (${AT}pre)`
        : `the split pattern ${JSON.stringify(pre)} (${AT}pre)`;
    throw unsupported(metadata.path, what, SPLIT_NAMES.join(', '));
  }
  const merges = metadata.texts(`${AT}merges`);
  if (merges === undefined) throw metadata.odd(`${AT}merges`, 'a list of strings');
  return {
    preTokenizer: pattern.preTokenizer,
    normalizer: pattern.normalizer,
    addBos: pattern.addBos,
    encloses: pattern.encloses,
    decoder: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: {
      type: 'BPE',
      unk_token: null,
      byte_fallback: false,
      fuse_unk: false,
      ignore_merges: pattern.ignoreMerges,
      vocab: vocabulary(tokens),
      // A token may hold a space: where it is cut decides. The first one is between the two unless it begins the merge.
      merges: merges.map((merge) => cutMerge(merge)),
    },
  };
}

/** `"a b"` in two. */
function cutMerge(merge: string): [string, string] {
  const at = merge.indexOf(' ', 1);
  return at < 0 ? [merge, ''] : [merge.slice(0, at), merge.slice(at + 1)];
}

/** Pieces of SentencePiece whose merges are listed: a tokenizer.json of Gemma 4 has no word before merging, and marks spaces. */
function markedSpaces(
  metadata: TokenizerMetadata,
  tokens: readonly string[],
  types: readonly number[],
): MadeParts {
  const merges = metadata.texts(`${AT}merges`);
  if (merges === undefined) throw metadata.odd(`${AT}merges`, 'a list of strings');
  const made = pieces(metadata, tokens, types, false);
  return { ...made, model: { ...made.model, merges: merges.map((merge) => cutMerge(merge)) } };
}

const MARK = '\u2581';

function sentencePiece(
  metadata: TokenizerMetadata,
  tokens: readonly string[],
  types: readonly number[],
): MadeParts {
  const scores = metadata.numbers(`${AT}scores`);
  if (scores?.length !== tokens.length)
    throw metadata.odd(`${AT}scores`, `a list of ${tokens.length}, one for each token,`);
  const isPiece = (id: number): boolean =>
    types[id] !== CONTROL && types[id] !== USER_DEFINED && types[id] !== UNKNOWN && types[id] !== BYTE;
  // No text of Gemma begins with a space of its own, which Ollama's files do not say.
  const usual = !/^gemma/.test(metadata.text('general.architecture') ?? '');
  const made = pieces(metadata, tokens, types, metadata.flag(`${AT}add_space_prefix`) ?? usual);
  return { ...made, model: { ...made.model, merges: mergesOfScores(tokens, scores, isPiece) } };
}

/** All but the merges. `prefix`: a text begins with a space. */
function pieces(
  metadata: TokenizerMetadata,
  tokens: readonly string[],
  types: readonly number[],
  prefix: boolean,
): MadeParts {
  const unknown = metadata.count(`${AT}unknown_token_id`, 0);
  const bytes = types.includes(BYTE);
  const replace = { type: 'Replace', pattern: { String: ' ' }, content: MARK };
  const back = { type: 'Replace', pattern: { String: MARK }, content: ' ' };
  return {
    preTokenizer: null,
    normalizer: prefix
      ? { type: 'Sequence', normalizers: [{ type: 'Prepend', prepend: MARK }, replace] }
      : replace,
    addBos: true,
    encloses: false,
    decoder: {
      type: 'Sequence',
      decoders: [
        back,
        ...(bytes ? [{ type: 'ByteFallback' }] : []),
        { type: 'Fuse' },
        ...(prefix ? [{ type: 'Strip', content: ' ', start: 1, stop: 0 }] : []),
      ],
    },
    model: {
      type: 'BPE',
      unk_token: unknown === undefined ? null : (tokens[unknown] ?? null),
      byte_fallback: bytes,
      fuse_unk: true,
      ignore_merges: false,
      vocab: vocabulary(tokens),
    },
  };
}

function vocabulary(tokens: readonly string[]): JsonObject {
  return Object.fromEntries(tokens.map((token, id) => [token, id]));
}

/** Added tokens of Phi-3 that leave the spaces behind them where they are. */
const PHI3_PLAIN = ['<unk>', '<s>', '<|endoftext|>'];

/** Which added tokens take what is white behind them: files do not say it, and Phi-3 and 3.5 have such. */
function takesSpaces(metadata: TokenizerMetadata, model: string): (token: string) => boolean {
  const phi3 = model === 'llama' && metadata.text('general.architecture') === 'phi3';
  return (token) => phi3 && !PHI3_PLAIN.includes(token);
}

function addedTokens(
  tokens: readonly string[],
  types: readonly number[],
  rstrip: (token: string) => boolean,
): JsonObject[] {
  return tokens.flatMap((content, id) =>
    (types[id] !== CONTROL && types[id] !== USER_DEFINED) || content === ''
      ? []
      : [
          {
            id,
            content,
            single_word: false,
            lstrip: false,
            rstrip: rstrip(content),
            normalized: false,
            special: types[id] === CONTROL,
          },
        ],
  );
}

function specialTokens(
  metadata: TokenizerMetadata,
  tokens: readonly string[],
): Partial<Record<`${keyof typeof ROLES}_token`, string>> {
  const special: Partial<Record<`${keyof typeof ROLES}_token`, string>> = {};
  for (const role of Object.keys(ROLES) as (keyof typeof ROLES)[]) {
    const key = `${AT}${ROLES[role]}_token_id`;
    const id = metadata.number(key);
    // Some converters wrote 2^32 - 1 for none, others -1.
    if (id === undefined || id === NO_TOKEN || id === -1) continue;
    const token = tokens[id];
    if (token === undefined) {
      // Many models were trained with a token for padding that their tokenizer lacks: no text needs it.
      if (role === 'pad') continue;
      throw metadata.odd(key, `an id below ${tokens.length}`);
    }
    special[`${role}_token`] = token;
  }
  return special;
}

function endIds(metadata: TokenizerMetadata, tokens: readonly string[], types: readonly number[]): number[] {
  const stated = (name: string): number[] => {
    const id = metadata.number(`${AT}${name}_token_id`);
    return id === undefined || tokens[id] === undefined ? [] : [id];
  };
  const special = (token: string): number | undefined => {
    const id = tokens.indexOf(token);
    // Some converters call them the user's.
    return types[id] === CONTROL || types[id] === USER_DEFINED ? id : undefined;
  };
  const listed = (metadata.numbers(`${AT}eos_token_ids`) ?? []).filter((id) => tokens[id] !== undefined);
  const ends = [...stated('eos'), ...stated('eot'), ...stated('eom'), ...listed, ...answerEnds(special)];
  return [...new Set(ends)].sort((a, b) => a - b);
}

/** One template, or several by name. */
function chatTemplate(metadata: TokenizerMetadata): string | JsonObject[] | undefined {
  const usual = metadata.text('tokenizer.chat_template');
  const named = metadata.keys().flatMap((key) => {
    const name = /^tokenizer\.chat_template\.(.+)$/.exec(key)?.[1];
    return name === undefined ? [] : [{ name, template: metadata.text(key)! }];
  });
  if (named.length === 0) return usual;
  return usual === undefined ? named : [{ name: 'default', template: usual }, ...named];
}

const SAMPLING: Readonly<Record<string, string>> = {
  temp: 'temperature',
  top_k: 'top_k',
  top_p: 'top_p',
  min_p: 'min_p',
  penalty_repeat: 'repetition_penalty',
};

export function ggufSampling(metadata: TokenizerMetadata): JsonObject {
  return Object.fromEntries(
    Object.entries(SAMPLING).flatMap(([key, name]) => {
      const value = metadata.number(`general.sampling.${key}`);
      return value === undefined ? [] : [[name, value]];
    }),
  );
}

function withEnd(end: string, id: number): JsonObject {
  return {
    type: 'TemplateProcessing',
    single: [{ Sequence: { id: 'A', type_id: 0 } }, { SpecialToken: { id: end, type_id: 0 } }],
    pair: [],
    special_tokens: { [end]: { id: end, ids: [id], tokens: [end] } },
  };
}

const OTHER_TOKENIZER = 'Take the safetensors model, or a file made with a current llama.cpp.';

function missing(path: string): KvantError {
  return new KvantError('tokenizer-missing', `${path} holds no tokenizer`, {
    kind: 'model',
    where: `${AT}model`,
    fix: `Name a model that has it with --tokenizer (\`tokenizer\`), a folder or a hub id. ${OTHER_TOKENIZER}`,
  });
}

function unsupported(path: string, what: string, known: string): KvantError {
  return new KvantError('tokenizer-unsupported', `${path} has ${what}, which is not supported`, {
    kind: 'unsupported',
    where: AT.slice(0, -1),
    fix: `${OTHER_TOKENIZER} Known are ${known}.`,
  });
}
