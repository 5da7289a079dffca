/** Folders of other programs' models, read without minding case as these programs do. */

import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { closestName } from '../did-you-mean.js';
import { KvantError } from '../errors.js';

/** Models shown in an error. */
const MOST_NAMED = 12;

/** The names in a folder, sorted, none where it cannot be read; without those that are hidden. */
export async function namesIn(folder: string): Promise<string[]> {
  const names = await readdir(folder).catch(() => []);
  return names.filter((name) => !name.startsWith('.')).sort();
}

/**
 * A path within a folder, part by part as it is spelled there: exactly, else but for its case.
 * @returns undefined where it is not there
 */
export async function pathWithin(folder: string, parts: readonly string[]): Promise<string | undefined> {
  let at = folder;
  for (const part of parts) {
    const names = await namesIn(at);
    const found = names.includes(part)
      ? part
      : names.find((name) => name.toLowerCase() === part.toLowerCase());
    if (found === undefined) return undefined;
    at = join(at, found);
  }
  return at;
}

/** What a store lacks. */
export interface Missing {
  /** The program. */
  readonly store: string;
  /** What goes before a name on the command line. */
  readonly prefix: string;
  readonly name: string;
  /** Where it was looked for. */
  readonly folders: readonly string[];
  /** What is there. */
  readonly known: readonly string[];
  /** How it gets there, and what says where else. */
  readonly advice: string;
}

/** `Ollama has no model "llama9" in /home/me/.ollama/models`, with what it has. */
export function notStored({ store, prefix, name, folders, known, advice }: Missing): KvantError {
  const near = closestName(name, known);
  const listed = known.slice(0, MOST_NAMED).map((one) => `${prefix}:${one}`);
  const more = known.length > MOST_NAMED ? ` and ${known.length - MOST_NAMED} more` : '';
  const meant = near === undefined ? '' : `Did you mean ${prefix}:${near}? `;
  const there = known.length > 0 ? `These are there: ${listed.join(', ')}${more}.` : 'No model is there.';
  return new KvantError(
    'model-not-found',
    `${store} has no model ${JSON.stringify(name)} in ${folders.join(' or ')}`,
    { kind: 'not-found', where: `${prefix}:${name}`, fix: `${meant}${there} ${advice}` },
  );
}
