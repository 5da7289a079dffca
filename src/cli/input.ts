/** What a command reads: a prompt, standard input, a conversation in a file. */
import { readFile } from 'node:fs/promises';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { brotliDecompress, gunzip } from 'node:zlib';
import type { EngineChatMessage } from '../engine/types.js';
import { KvantError } from '../errors.js';
import { parseLossless } from '../text/lossless-json.js';

export interface Conversation {
  readonly messages: readonly EngineChatMessage[];
  readonly tools?: readonly unknown[];
}

/** The file's text, unpacked if its name ends in `.gz` or `.br`; `-` is standard input. Errors: `file-not-readable`. */
export async function readText(path: string): Promise<string> {
  try {
    if (path === '-') return await text(process.stdin);
    const bytes = await readFile(path);
    if (path.endsWith('.br')) return (await promisify(brotliDecompress)(bytes)).toString('utf8');
    return (path.endsWith('.gz') ? await promisify(gunzip)(bytes) : bytes).toString('utf8');
  } catch (cause) {
    throw new KvantError('file-not-readable', `${path} cannot be read: ${(cause as Error).message}.`, {
      kind: 'invalid-request',
      where: path,
      fix: 'Check the path and its permissions.',
      cause,
    });
  }
}

/**
 * A JSON file with a list of messages, or an object `{messages, tools?}` such as a chat request's body.
 * Errors: `file-not-readable`, `invalid-json`, `invalid-conversation`.
 */
export async function readConversation(path: string): Promise<Conversation> {
  const value = parseLosslessJson(await readText(path), path);
  const body = Array.isArray(value) ? { messages: value } : value;
  if (typeof body === 'object' && body !== null && 'messages' in body && Array.isArray(body.messages)) {
    const tools = 'tools' in body && Array.isArray(body.tools) ? body.tools : undefined;
    return { messages: body.messages as EngineChatMessage[], ...(tools === undefined ? {} : { tools }) };
  }
  throw new KvantError('invalid-conversation', `${path} holds no conversation.`, {
    kind: 'invalid-request',
    where: path,
    fix: 'Write a JSON list of {"role", "content"} messages, or an object with "messages" and, if wanted, "tools".',
  });
}

/** A JSON file with a list of tools in OpenAI's form. */
export async function readTools(path: string): Promise<readonly unknown[]> {
  const value = parseLosslessJson(await readText(path), path);
  if (Array.isArray(value)) return value;
  throw new KvantError('invalid-tools', `${path} is not a list of tools.`, {
    kind: 'invalid-request',
    where: path,
    fix: 'Write a JSON list of {"type": "function", "function": {…}} objects.',
  });
}

/** Errors: `invalid-json`, naming the place. */
export function parseJson(source: string, where: string): unknown {
  return readJson(source, where, JSON.parse);
}

/** For what a chat template prints. Errors: `invalid-json`, naming the place. */
export function parseLosslessJson(source: string, where: string): unknown {
  return readJson(source, where, parseLossless);
}

function readJson(source: string, where: string, parse: (text: string) => unknown): unknown {
  try {
    return parse(source);
  } catch (cause) {
    throw new KvantError('invalid-json', `${where} is not JSON: ${(cause as Error).message}.`, {
      kind: 'invalid-request',
      where,
      fix: 'Check it with a JSON linter.',
      cause,
    });
  }
}
