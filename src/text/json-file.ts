import { readFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { KvantError } from '../errors.js';
import { parseLenientJson } from '../lenient-json.js';

/** A parsed JSON object; its values are checked where they are used. */
export type JsonObject = { readonly [key: string]: unknown };

export function isJsonObject(value: unknown): value is JsonObject {
  // A boxed number is a float: see lossless-json.ts.
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Number);
}

/** The text of a file of a model folder, or `undefined` where there is none. */
export async function readTextFile(folder: string, name: string): Promise<string | undefined> {
  const path = join(folder, name);
  try {
    return await readFile(path, 'utf8');
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code;
    if (code === 'ENOENT' || code === 'ENOTDIR') return undefined;
    throw new KvantError('file-unreadable', `Cannot read ${path}: ${(cause as Error).message}`, {
      kind: 'model',
      where: path,
      fix: 'Check that the file is readable by this user and that the path names a model folder.',
      cause,
    });
  }
}

/**
 * Parses the text of a JSON file that must hold an object.
 *
 * @param code the error code to raise when it does not
 * @throws KvantError with that code: the text is truncated, is no JSON, or is no object.
 */
export function parseJsonObject(text: string, path: string, code: string): JsonObject {
  let value: unknown;
  try {
    value = parseLenientJson(text);
  } catch (cause) {
    const truncated = text.trim().length === 0 || /end of JSON input|Unterminated/.test(String(cause));
    const pointer = text.startsWith('version https://git-lfs');
    const what = pointer ? 'is a Git LFS pointer' : truncated ? 'is truncated' : 'is not valid JSON';
    throw new KvantError(code, `${basename(path)} ${what}: ${(cause as Error).message}`, {
      kind: 'model',
      where: path,
      fix: pointer
        ? 'Fetch the real file: run `git lfs pull` in the folder, or fetch the model again.'
        : 'Fetch the model again; the file did not arrive whole or was edited.',
      cause,
    });
  }
  if (!isJsonObject(value)) {
    throw new KvantError(code, `${basename(path)} must hold a JSON object`, {
      kind: 'model',
      where: path,
      fix: 'Fetch the model again; the file is not what its name says.',
    });
  }
  return value;
}

/** Reads and parses a JSON file of a model folder; `undefined` where there is none. */
export async function readJsonObject(
  folder: string,
  name: string,
  code: string,
): Promise<JsonObject | undefined> {
  const text = await readTextFile(folder, name);
  return text === undefined ? undefined : parseJsonObject(text, join(folder, name), code);
}
