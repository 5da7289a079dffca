/**
 * The small files of a model folder: which ones there are, and reading the JSON ones with errors that help.
 */

import { readFile, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { KvantError } from '../errors.js';
import { parseLenientJson } from '../lenient-json.js';

export type JsonObject = { readonly [key: string]: unknown };

/** Larger than any tokenizer known; a bigger "config" is a mistake. */
const MAX_JSON_BYTES = 256 * 1024 * 1024;

const SMALL_FILES = [
  /^config\.json$/,
  /^generation_config\.json$/,
  /^tokenizer.*\.(json|model|txt)$/,
  /^(special_tokens_map|added_tokens|vocab|processor_config|preprocessor_config|video_preprocessor_config)\.json$/,
  /^(image_processor_config|feature_extractor_config)\.json$/,
  /^(vocab|merges)\.txt$/,
  /^(spiece|sentencepiece.*|vocab)\.model$/,
  /^tiktoken\.model$/,
  /^tekken\.json$/,
  /\.(tiktoken)$/,
  /^chat_template\.(jinja|json)$/,
  /^(modules|config_sentence_transformers|sentence_bert_config)\.json$/,
  // What stands behind a model that makes embeddings: a pooling, dense layers of a few megabytes.
  /^\d+_[A-Za-z]+\/(config\.json|model\.safetensors)$/,
  /^additional_chat_templates\/[^/]+\.jinja$/,
];

/** Files that a tokenizer is read from: one of them is enough. */
export const TOKENIZER_FILES: readonly string[] = [
  'tokenizer.json',
  'tokenizer.model',
  'tekken.json',
  'vocab.json',
  'vocab.txt',
  'tiktoken.model',
  'hy.tiktoken',
];

/** True for the files beside the weights that a model needs: configuration, tokenizer, templates. */
export function isSmallModelFile(path: string): boolean {
  return SMALL_FILES.some((pattern) => pattern.test(path));
}

/**
 * Makes sure that a folder is there.
 * @throws KvantError `model-folder-missing`
 */
export async function requireFolder(folder: string): Promise<void> {
  const found = await stat(folder).catch(() => undefined);
  if (found?.isDirectory()) return;
  const what =
    found === undefined ? `there is no folder ${folder}` : `${folder} is a file, not a model folder`;
  throw new KvantError('model-folder-missing', what, {
    kind: 'not-found',
    where: folder,
    fix: 'Give the folder that holds config.json and the *.safetensors files, or a hub id such as Qwen/Qwen3-0.6B.',
  });
}

/**
 * Reads a JSON object.
 *
 * @throws KvantError `model-file-missing`, `model-file-unreadable` (permissions, absurd size) or
 * `model-file-broken` (not JSON, not an object; the message says where)
 */
export async function readJsonFile(folder: string, name: string): Promise<JsonObject> {
  const value = await readOptionalJsonFile(folder, name);
  if (value !== undefined) return value;
  await requireFolder(folder);
  throw new KvantError('model-file-missing', `${folder} has no ${name}`, {
    kind: 'not-found',
    where: join(folder, name),
    fix: `Fetch the model again, with ${name}: the folder is not a complete Hugging Face checkpoint.`,
  });
}

/** As {@link readJsonFile}, but undefined where the file does not exist. */
export async function readOptionalJsonFile(folder: string, name: string): Promise<JsonObject | undefined> {
  const text = await readOptionalTextFile(folder, name);
  if (text === undefined) return undefined;
  return parseJsonObject(text, join(folder, name));
}

/** A text file as UTF-8, undefined where it does not exist. */
export async function readOptionalTextFile(folder: string, name: string): Promise<string | undefined> {
  const path = join(folder, name);
  try {
    const found = await stat(path);
    const { size } = found;
    if (!found.isFile()) throw unreadable(path, 'it is not a file');
    if (size > MAX_JSON_BYTES) throw unreadable(path, `it has ${size} bytes`);
    return await readFile(path, 'utf8');
  } catch (cause) {
    if (cause instanceof KvantError) throw cause;
    const code = (cause as NodeJS.ErrnoException).code;
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
    throw unreadable(path, code ?? String(cause), cause);
  }
}

/**
 * @param path names the text in errors
 * @throws KvantError `model-file-broken`
 */
export function parseJsonObject(text: string, path: string): JsonObject {
  let value: unknown;
  try {
    value = parseLenientJson(text);
  } catch (cause) {
    const lfs = text.startsWith('version https://git-lfs');
    const what = lfs
      ? 'a Git LFS pointer'
      : text.length === 0
        ? 'empty'
        : `not JSON: ${(cause as Error).message}`;
    throw broken(path, what, lfs ? 'Run `git lfs pull` in the folder of the model.' : undefined, cause);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw broken(path, 'JSON, but not an object');
  }
  return value as JsonObject;
}

function broken(path: string, what: string, fix?: string, cause?: unknown): KvantError {
  return new KvantError('model-file-broken', `${path} is ${what}`, {
    kind: 'model',
    where: path,
    fix: fix ?? `Fetch ${basename(path)} again, or correct it by hand.`,
    ...(cause === undefined ? {} : { cause }),
  });
}

function unreadable(path: string, what: string, cause?: unknown): KvantError {
  return new KvantError('model-file-unreadable', `${path} cannot be read (${what})`, {
    kind: 'model',
    where: path,
    fix: 'Check that it is a plain file that you may read.',
    ...(cause === undefined ? {} : { cause }),
  });
}
