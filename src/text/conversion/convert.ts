/**
 * Tokenizers of folders without tokenizer.json, made of the files that some checkpoints have in its place: SentencePiece's `tokenizer.model`, `vocab.json`
 * with `merges.txt`, `vocab.txt`, and ranks of tiktoken. How texts are cut is known by the class that tokenizer_config.json names, of BERT also by its
 * `model_type`. Mistral's `tekken.json` says it itself.
 */

import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { KvantError } from '../../errors.js';
import { splitPattern } from '../gguf/split-patterns.js';
import { isJsonObject, type JsonObject, readJsonObject, readTextFile } from '../json-file.js';
import { bytePairTokenizer, readMerges, readRanks } from './byte-pairs.js';
import { sentencePieceTokenizer } from './sentence-piece.js';
import { readSentencePiece } from './sentence-piece-model.js';
import { tekkenTokenizer } from './tekken.js';
import { BERT_ROLES, wordPieceTokenizer } from './word-pieces.js';

/** tokenizer.json and tokenizer_config.json, as the folder would have them. */
export interface ConvertedTokenizer {
  readonly tokenizer: JsonObject;
  readonly config: JsonObject;
  /** The file that the tokens are from. */
  readonly where: string;
}

interface Source {
  readonly folder: string;
  readonly config: JsonObject;
}

type Made = Omit<ConvertedTokenizer, 'config'> & { readonly config?: JsonObject };
type Convert = (source: Source) => Promise<Made>;

const LLAMA = { bos_token: '<s>', eos_token: '</s>', unk_token: '<unk>', add_bos_token: true };
const HUNYUAN_MARKS = ['<|endoftext|>', '<|startoftext|>', '<|bos|>', '<|eos|>', '<|pad|>'];
const GEMMA = {
  bos_token: '<bos>',
  eos_token: '<eos>',
  unk_token: '<unk>',
  pad_token: '<pad>',
  add_bos_token: true,
};

/** By class. `usual`: what the class takes where tokenizer_config.json is silent. */
const CLASSES: Readonly<Record<string, Convert>> = {
  LlamaTokenizer: sentencePiece(LLAMA),
  CodeLlamaTokenizer: sentencePiece(LLAMA),
  InternLMTokenizer: sentencePiece(LLAMA),
  InternLM2Tokenizer: sentencePiece(LLAMA),
  InternLM3Tokenizer: sentencePiece(LLAMA),
  GemmaTokenizer: sentencePiece(GEMMA),
  Qwen2Tokenizer: vocabulary('qwen2'),
  GPT2Tokenizer: vocabulary('gpt-2'),
  TikTokenTokenizer: ranks({
    file: 'tiktoken.model',
    split: 'kimi-k2',
    behind: (first) => Array.from({ length: 256 }, (_, i) => `<|reserved_token_${first + i}|>`),
    usual: () => ({}),
  }),
  HYTokenizer: ranks({
    file: 'hy.tiktoken',
    split: 'qwen2',
    behind: () => [...HUNYUAN_MARKS, ...Array.from({ length: 205 }, (_, i) => `<|extra_${i}|>`)],
    // It would also end a text with `eos_token`, behind which no model goes on.
    usual: ({ add_bod_token }) => ({
      bos_token: '<|startoftext|>',
      eos_token: '<|endoftext|>',
      pad_token: '<|pad|>',
      add_bos_token: add_bod_token !== false,
    }),
  }),
  BertTokenizer: wordPieces,
};
const TEKKEN = { ...LLAMA, pad_token: '<pad>' };
/** Classes of models whose tokenizer_config.json may name none. */
const BY_MODEL: Readonly<Record<string, string>> = { bert: 'BertTokenizer', nomic_bert: 'BertTokenizer' };

const POINTER = 'version https://git-lfs';

/** Files of such tokenizers, to name one in an error. */
const FILES = ['tekken.json', 'tokenizer.model', 'vocab.json', 'tiktoken.model', 'hy.tiktoken', 'vocab.txt'];

/**
 * Undefined where the folder has no files of a tokenizer.
 *
 * @param config tokenizer_config.json
 * @throws KvantError `tokenizer-unsupported` for another class, or what kvant does not compute; `tokenizer-broken`
 */
export async function convertTokenizer(
  folder: string,
  config: JsonObject,
): Promise<ConvertedTokenizer | undefined> {
  const found = await firstOf(folder, FILES);
  if (found === undefined) return undefined;
  const name = await className(folder, config);
  const known = name !== undefined && Object.hasOwn(CLASSES, name) ? CLASSES[name] : undefined;
  // Whatever class it names: some of them have a meaning in Mistral's own library alone.
  const convert = found === 'tekken.json' ? tekken : known;
  if (convert === undefined) {
    const what =
      name === undefined ? 'tokenizer_config.json names no tokenizer_class' : `a ${name} is not known`;
    throw unsupported(folder, found, `no tokenizer.json, and ${what}`);
  }
  const all = present(config);
  const made = await convert({ folder, config: all });
  const added = addedTokens(await readJsonObject(folder, 'added_tokens.json', 'tokenizer-broken'), all);
  const stated = isJsonObject(all.added_tokens_decoder) ? all.added_tokens_decoder : {};
  const decoder = { ...added, ...stated };
  const own = made.tokenizer.added_tokens as readonly { readonly id: number }[];
  return {
    where: made.where,
    // What tokenizer_config.json says of a token counts.
    tokenizer: {
      ...made.tokenizer,
      added_tokens: own.filter(({ id }) => !Object.hasOwn(decoder, String(id))),
    },
    config: { ...made.config, ...all, added_tokens_decoder: decoder },
  };
}

async function className(folder: string, config: JsonObject): Promise<string | undefined> {
  if (typeof config.tokenizer_class === 'string') return config.tokenizer_class.replace(/Fast$/, '');
  const model = await readJsonObject(folder, 'config.json', 'model-file-broken');
  const type = model?.model_type;
  return typeof type === 'string' && Object.hasOwn(BY_MODEL, type) ? BY_MODEL[type] : undefined;
}

function present(config: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(config).filter(([, value]) => value !== null));
}

async function firstOf(folder: string, names: readonly string[]): Promise<string | undefined> {
  for (const name of names) if ((await readTextFile(folder, name)) !== undefined) return name;
  return undefined;
}

/** added_tokens.json has ids by token; special are those that have a role. */
function addedTokens(ids: JsonObject | undefined, config: JsonObject): JsonObject {
  const listed = config.additional_special_tokens;
  const special = new Set(
    [...Object.values(config), ...(Array.isArray(listed) ? (listed as unknown[]) : [])].map(textOf),
  );
  return Object.fromEntries(
    Object.entries(ids ?? {}).map(([content, id]) => [
      String(id),
      { content, normalized: !special.has(content), special: special.has(content) },
    ]),
  );
}

/** A token is a text, or an object that has one. */
const textOf = (token: unknown): unknown => (isJsonObject(token) ? token.content : token);

function sentencePiece(usual: JsonObject): Convert {
  return async ({ folder, config }) => {
    const where = join(folder, 'tokenizer.model');
    const bytes = await readFile(where).catch(() => undefined);
    if (bytes === undefined)
      throw unsupported(folder, 'tokenizer_config.json', 'no tokenizer.json and no tokenizer.model');
    if (bytes.toString('latin1', 0, POINTER.length) === POINTER)
      throw new KvantError('tokenizer-broken', `${where} is a Git LFS pointer`, {
        kind: 'model',
        where,
        fix: 'Fetch the real file: run `git lfs pull` in the folder, or fetch the model again.',
      });
    const model = reading(where, () => readSentencePiece(bytes));
    const prefixes =
      typeof config.add_prefix_space === 'boolean' ? config.add_prefix_space : model.addsPrefix;
    const prefix = !prefixes ? 'none' : config.legacy === false ? 'first' : 'each';
    const all = { ...usual, ...config };
    const tokenizer = sentencePieceTokenizer(model, { prefix });
    const end = typeof all.eos_token === 'string' ? all.eos_token : undefined;
    const id = end === undefined ? -1 : model.pieces.indexOf(end);
    const ends = all.add_eos_token === true && end !== undefined && id >= 0;
    return {
      where,
      tokenizer: ends ? { ...tokenizer, post_processor: behind(end, id) } : tokenizer,
      config: usual,
    };
  };
}

function behind(end: string, id: number): JsonObject {
  return {
    type: 'TemplateProcessing',
    single: [{ Sequence: { id: 'A', type_id: 0 } }, { SpecialToken: { id: end, type_id: 0 } }],
    pair: [],
    special_tokens: { [end]: { id: end, ids: [id], tokens: [end] } },
  };
}

/** `split`: of `splitPattern`. */
function vocabulary(split: string): Convert {
  return async ({ folder, config }) => {
    const where = join(folder, 'vocab.json');
    const vocab = await readJsonObject(folder, 'vocab.json', 'tokenizer-broken');
    const merges = await readTextFile(folder, 'merges.txt');
    if (vocab === undefined || merges === undefined)
      throw unsupported(
        folder,
        vocab === undefined ? 'merges.txt' : 'vocab.json',
        'only one of vocab.json and merges.txt',
      );
    const pairs = reading(join(folder, 'merges.txt'), () => readMerges(merges));
    const prefix = config.add_prefix_space === true && split === 'gpt-2';
    return { where, tokenizer: bytePairTokenizer(vocab, pairs, splitPattern(split)!, prefix) };
  };
}

interface RankRules {
  readonly file: string;
  /** Of `splitPattern`. */
  readonly split: string;
  /** Names of the tokens behind the last rank, where tokenizer_config.json does not name them. `first`: the id of the first. */
  readonly behind: (first: number) => readonly string[];
  readonly usual: (config: JsonObject) => JsonObject;
}

function ranks({ file, split, behind, usual }: RankRules): Convert {
  return async ({ folder, config }) => {
    const where = join(folder, file);
    const text = await readTextFile(folder, file);
    if (text === undefined)
      throw unsupported(folder, 'tokenizer_config.json', `no tokenizer.json and no ${file}`);
    const { vocab, merges } = reading(where, () => readRanks(text));
    const first = Object.keys(vocab).length;
    const stated = isJsonObject(config.added_tokens_decoder) ? config.added_tokens_decoder : {};
    const pattern = { ...splitPattern(split)!, ignoreMerges: true };
    const tokenizer = bytePairTokenizer(vocab, merges, pattern, false);
    const added_tokens = behind(first)
      .map((content, at) => ({ id: first + at, content, normalized: false, special: true }))
      .filter(({ id }) => !Object.hasOwn(stated, String(id)));
    return { where, tokenizer: { ...tokenizer, added_tokens }, config: usual(config) };
  };
}

async function tekken({ folder }: Source): Promise<Made> {
  const where = join(folder, 'tekken.json');
  const json = (await readJsonObject(folder, 'tekken.json', 'tokenizer-broken'))!;
  return { where, tokenizer: reading(where, () => tekkenTokenizer(json)), config: TEKKEN };
}

async function wordPieces({ folder, config }: Source): Promise<Made> {
  const where = join(folder, 'vocab.txt');
  const text = await readTextFile(folder, 'vocab.txt');
  if (text === undefined)
    throw unsupported(folder, 'tokenizer_config.json', 'no tokenizer.json and no vocab.txt');
  const roles = { ...BERT_ROLES };
  for (const role of Object.keys(roles) as (keyof typeof BERT_ROLES)[]) {
    const stated = textOf(config[role]);
    if (typeof stated === 'string') roles[role] = stated;
  }
  return { where, tokenizer: reading(where, () => wordPieceTokenizer(text, roles, config)), config: roles };
}

function reading<T>(where: string, read: () => T): T {
  try {
    return read();
  } catch (cause) {
    throw new KvantError('tokenizer-broken', `${where} cannot be read: ${(cause as Error).message}`, {
      kind: 'model',
      where,
      fix: 'Fetch the model again; if it is whole, convert it once: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) in Python.',
      cause,
    });
  }
}

function unsupported(folder: string, name: string, what: string): KvantError {
  return new KvantError('tokenizer-unsupported', `${folder} has ${name}, but ${what}`, {
    kind: 'unsupported',
    where: join(folder, name),
    fix: 'Convert it once: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) in Python writes tokenizer.json.',
  });
}
