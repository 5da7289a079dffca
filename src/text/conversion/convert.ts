/**
 * Tokenizers of folders without tokenizer.json, made of the files that older checkpoints have: SentencePiece's `tokenizer.model`, `vocab.json`
 * with `merges.txt`, and ranks of tiktoken. How texts are cut is known by the class that tokenizer_config.json names, and by nothing else.
 */

import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { KvantError } from '../../errors.js';
import { splitPattern } from '../gguf/split-patterns.js';
import { isJsonObject, type JsonObject, readJsonObject, readTextFile } from '../json-file.js';
import { bytePairTokenizer, readMerges, readRanks } from './byte-pairs.js';
import { sentencePieceTokenizer } from './sentence-piece.js';
import { readSentencePiece } from './sentence-piece-model.js';

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

type Convert = (
  source: Source,
) => Promise<Omit<ConvertedTokenizer, 'config'> & { readonly config?: JsonObject }>;

const LLAMA = { bos_token: '<s>', eos_token: '</s>', unk_token: '<unk>', add_bos_token: true };
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
  TikTokenTokenizer: ranks('kimi-k2', 256),
};

const POINTER = 'version https://git-lfs';

/** Files of such tokenizers, to name one in an error. */
const FILES = ['tokenizer.model', 'vocab.json', 'tiktoken.model', 'tekken.json', 'vocab.txt'];

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
  const name =
    typeof config.tokenizer_class === 'string' ? config.tokenizer_class.replace(/Fast$/, '') : undefined;
  const convert = name !== undefined && Object.hasOwn(CLASSES, name) ? CLASSES[name] : undefined;
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

function present(config: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(config).filter(([, value]) => value !== null));
}

async function firstOf(folder: string, names: readonly string[]): Promise<string | undefined> {
  for (const name of names) if ((await readTextFile(folder, name)) !== undefined) return name;
  return undefined;
}

/** added_tokens.json has ids by token; special are those that have a role. */
function addedTokens(ids: JsonObject | undefined, config: JsonObject): JsonObject {
  const text = (value: unknown): unknown => (isJsonObject(value) ? value.content : value);
  const listed = config.additional_special_tokens;
  const special = new Set(
    [...Object.values(config), ...(Array.isArray(listed) ? (listed as unknown[]) : [])].map(text),
  );
  return Object.fromEntries(
    Object.entries(ids ?? {}).map(([content, id]) => [
      String(id),
      { content, normalized: !special.has(content), special: special.has(content) },
    ]),
  );
}

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

/** `reserved`: tokens behind the last rank, which have names of their number where tokenizer_config.json does not name them. */
function ranks(split: string, reserved: number): Convert {
  return async ({ folder, config }) => {
    const where = join(folder, 'tiktoken.model');
    const text = await readTextFile(folder, 'tiktoken.model');
    if (text === undefined)
      throw unsupported(folder, 'tokenizer_config.json', 'no tokenizer.json and no tiktoken.model');
    const { vocab, merges } = reading(where, () => readRanks(text));
    const first = Object.keys(vocab).length;
    const stated = isJsonObject(config.added_tokens_decoder) ? config.added_tokens_decoder : {};
    const tokenizer = bytePairTokenizer(vocab, merges, splitPattern(split)!, false);
    const rest = Array.from({ length: reserved }, (_, i) => first + i).filter(
      (id) => !Object.hasOwn(stated, String(id)),
    );
    const added_tokens = rest.map((id) => ({
      id,
      content: `<|reserved_token_${id}|>`,
      normalized: false,
      special: true,
    }));
    return { where, tokenizer: { ...tokenizer, added_tokens } };
  };
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
