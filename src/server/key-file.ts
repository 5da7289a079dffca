/**
 * A file of API keys: JSON lines, one key each.
 *
 *     {"name": "web", "sha256": "2bb80d53…", "priority": 0}
 *     {"name": "ops", "key": "…", "admin": true}
 *
 * Lines that are empty or begin with # are passed over. No message quotes a line: it may hold a key.
 */
import { open } from 'node:fs/promises';
import { checkArgument, TEXT } from '../arguments.js';
import { KvantError } from '../errors.js';
import { systemReason } from '../system-errors.js';
import { type ApiKey, KEY_FIELDS as FIELDS, keyDigest, keyProblem } from './api-keys.js';

/** Far more than keys take: what is larger is another file. */
const MOST_BYTES = 16 * 2 ** 20;
const EXAMPLE = 'A line is like {"name": "web", "sha256": "64 hexadecimal digits", "priority": 0}.';
const OTHERS_READ = 0o004;
const OTHERS_WRITE = 0o022;

export interface KeyFile {
  readonly keys: readonly ApiKey[];
  /** What is amiss with the file and does not keep it from being used. */
  readonly warnings: readonly string[];
}

/** Errors: `api-key-file-unreadable`; `api-key-file-invalid`, whose `where` is `path:line`. */
export async function readKeyFile(path: string): Promise<KeyFile> {
  checkArgument('path', path, TEXT);
  const { bytes, mode } = await read(path);
  const keys = parseKeys(bytes, path);
  const warnings: string[] = [];
  if (process.platform !== 'win32') {
    if ((mode & OTHERS_READ) !== 0 && keys.some(({ key }) => key !== undefined))
      warnings.push('all users of this machine can read the file of API keys: chmod o-r');
    if ((mode & OTHERS_WRITE) !== 0)
      warnings.push('other users of this machine can write to the file of API keys: chmod go-w');
  }
  return { keys, warnings };
}

/** Errors: `api-key-file-invalid`. */
export function parseKeys(bytes: Uint8Array, path: string): ApiKey[] {
  const keys: ApiKey[] = [];
  /** Lines of digests and of names. */
  const seen = { digest: new Map<string, number>(), name: new Map<string, number>() };
  const bad = (line: number, what: string, fix: string): KvantError =>
    invalid(`${path}:${line}`, `Line ${line} of ${path}: ${what}.`, fix);
  for (const [index, text] of decode(bytes, path)
    .split(/\r\n|\n|\r/)
    .entries()) {
    if (text.trim() === '' || text.trimStart().startsWith('#')) continue;
    const line = index + 1;
    const entry = parseLine(text);
    if (entry === null) throw bad(line, 'it is not a JSON object', EXAMPLE);
    const unknown = Object.keys(entry).find((field) => !FIELDS.includes(field));
    if (unknown !== undefined)
      throw bad(line, `it has a field that is none${shown(unknown)}`, `Fields are ${FIELDS.join(', ')}.`);
    const problem = keyProblem(entry);
    if (problem !== null) throw bad(line, problem.text, problem.fix);
    const { name } = entry;
    const digest = keyDigest(entry);
    const sameKey = seen.digest.get(digest);
    if (sameKey !== undefined) throw bad(line, `it has the key of line ${sameKey}`, 'Leave one of them out.');
    const sameName = name === undefined ? undefined : seen.name.get(name);
    if (sameName !== undefined)
      throw bad(line, `it has the name of line ${sameName}`, 'Give every key a name of its own.');
    seen.digest.set(digest, line);
    if (name !== undefined) seen.name.set(name, line);
    keys.push(entry);
  }
  if (keys.length === 0) throw invalid(path, `${path} holds no keys.`, EXAMPLE);
  return keys;
}

async function read(path: string): Promise<{ bytes: Buffer; mode: number }> {
  try {
    const file = await open(path, 'r');
    try {
      const { mode } = await file.stat();
      const parts: Buffer[] = [];
      let size = 0;
      for await (const part of file.createReadStream({ autoClose: false, end: MOST_BYTES })) {
        parts.push(part as Buffer);
        size += (part as Buffer).length;
      }
      if (size > MOST_BYTES) throw new Error(`it has more than ${MOST_BYTES} bytes`);
      return { bytes: Buffer.concat(parts), mode };
    } finally {
      await file.close();
    }
  } catch (cause) {
    throw new KvantError(
      'api-key-file-unreadable',
      `The file of API keys ${path} cannot be read: ${systemReason(cause)}.`,
      {
        kind: 'invalid-request',
        where: path,
        fix: 'Check the path and its permissions: this user must be able to read it.',
        cause,
      },
    );
  }
}

function decode(bytes: Uint8Array, path: string): string {
  try {
    // A byte order mark goes with it.
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw invalid(path, `${path} is not UTF-8 text.`, 'Save it as UTF-8.');
  }
}

/** The error of JSON.parse quotes the line: it goes no further. */
function parseLine(text: string): ApiKey | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as ApiKey) : null;
  } catch {
    return null;
  }
}

/** The field's name where it is surely no key that came into the wrong place. */
function shown(field: string): string {
  return /^[a-z_]{1,20}$/i.test(field) ? `: \`${field}\`` : '';
}

function invalid(where: string, message: string, fix: string): KvantError {
  return new KvantError('api-key-file-invalid', message, { kind: 'invalid-request', where, fix });
}
