/** Which GGUF files of a folder or repository are models, and which of them was asked for. */

import { readdir } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { KvantError } from '../errors.js';
import { isGgufName } from './foreign-formats.js';

/** Files shown in an error. */
const MOST_NAMED = 12;
const LATER_SHARD = /-(?!0+1-)\d{5}-of-\d{5}\.gguf$/i;
/** What sees or hears for a model, what was measured to quantise it, and drafts of it: none is a model alone. */
const NO_MODEL = /^mmproj|[.-]mmproj|imatrix|vocab-only/i;

/**
 * The models among some names: one file, or the first of a set, each.
 * @example ggufModels(['a-00001-of-00002.gguf', 'a-00002-of-00002.gguf', 'mmproj-a.gguf']) // ['a-00001-of-00002.gguf']
 */
export function ggufModels(names: readonly string[]): string[] {
  return names
    .filter((name) => isGgufName(name) && !LATER_SHARD.test(name) && !NO_MODEL.test(basename(name)))
    .sort();
}

/**
 * The one GGUF model of a folder that is none in another format; undefined where the folder has anything else to load.
 * @throws KvantError `weights-gguf` where it holds several
 */
export async function ggufOfFolder(folder: string): Promise<string | undefined> {
  const names = await readdir(folder).catch(() => []);
  if (names.some((name) => name === 'config.json' || name.endsWith('.safetensors'))) return undefined;
  const [only, ...others] = ggufModels(names);
  if (only === undefined) return undefined;
  if (others.length > 0) throw severalGguf(folder, [only, ...others]);
  return join(folder, only);
}

/** A folder with several models: nothing says which is meant. */
export function severalGguf(folder: string, names: readonly string[]): KvantError {
  const shown = names.slice(0, MOST_NAMED).join(', ');
  const more = names.length > MOST_NAMED ? ` and ${names.length - MOST_NAMED} more` : '';
  return new KvantError('weights-gguf', `${folder} holds ${names.length} GGUF models: ${shown}${more}`, {
    kind: 'invalid-request',
    where: folder,
    fix: `Give the path of one of them, such as ${join(folder, names[0]!)}.`,
  });
}
