/** Which GGUF files of a folder or repository are models, and which of them was asked for. */

import { readdir, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { KvantError } from '../errors.js';
import { isGgufName } from './foreign-formats.js';

/** Files shown in an error. */
const MOST_NAMED = 12;
const LATER_SHARD = /-(?!0+1-)\d{5}-of-\d{5}\.gguf$/i;
/** What sees or hears for a model, what was measured to quantise it, drafts and adapters of it, and vocabularies: none is a model alone. */
const NO_MODEL =
  /(^|[._-])mm[_-]?proj|imatrix|vocab-only|^ggml-(vocab|lora)-|^(mtp|eagle3|dflash|dspark)-|-(lora|vocab)\.gguf$/i;

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
  // GGUF repositories may hold the config.json of the model that they were made from.
  if (names.some((name) => /\.safetensors(\.index\.json)?$/.test(name))) return undefined;
  const [only, ...others] = ggufModels(names);
  if (only === undefined) return undefined;
  if (others.length > 0) throw severalGguf(folder, [only, ...others]);
  return join(folder, only);
}

/** The first file of the set that a file's name says it belongs to, where it lies beside it; else the file. */
export async function firstOfSet(path: string): Promise<string> {
  const first = path.replace(/-\d{5}(-of-\d{5}\.gguf)$/i, '-00001$1');
  return first !== path && (await stat(first).catch(() => undefined))?.isFile() === true ? first : path;
}

/** The name of a file, or of its set, without its ending. */
const ggufStem = (name: string): string =>
  basename(name)
    .replace(/\.gguf$/i, '')
    .replace(/-\d{5}-of-\d{5}$/, '');

/** What is written behind a colon to ask for a file: `Q4_K_M` of `name-Q4_K_M.gguf` or `Q4_K_M/name-00001-of-00002.gguf`. */
export function ggufTag(name: string): string {
  const stem = ggufStem(name);
  return /(?:^|[-._])((?:UD-)?(?:I?Q\d|TQ\d|MXFP4|NVFP4|BF16|F16|F32)\w*)$/i.exec(stem)?.[1] ?? stem;
}

/**
 * The files of the model that a tag asks for: one, or all of its set.
 *
 * @param names all paths of a repository
 * @param tag as {@link ggufTag}, in any case; undefined takes the only model that there is
 * @throws KvantError `weights-gguf` where there are several, or none with that tag
 */
export function chooseGguf(id: string, names: readonly string[], tag: string | undefined): string[] {
  const models = ggufModels(names);
  const found = taggedModels(models, tag);
  const [first, ...others] = found;
  if (first === undefined || others.length > 0) throw noSuchTag(id, models, tag, found);
  const set = /^(.*-)0+1(-of-\d{5}\.gguf)$/i.exec(first);
  if (set === null) return [first];
  return names.filter((name) => name.startsWith(set[1]!) && name.endsWith(set[2]!)).sort();
}

/**
 * Those with the tag, in any case; where there is none, those whose names end in it: `Q4_K_XL` of `UD-Q4_K_XL`, `i1-Q4_K_M` of
 * `m.i1-Q4_K_M.gguf`.
 * @param tag undefined for all
 */
export function taggedModels(models: readonly string[], tag: string | undefined): readonly string[] {
  if (tag === undefined) return models;
  const exact = models.filter((name) => hasTag(name, tag));
  if (exact.length > 0) return exact;
  const end = tag.toLowerCase();
  return models.filter((name) => {
    const stem = ggufStem(name).toLowerCase();
    return stem.endsWith(end) && /(^|[-._])$/.test(stem.slice(0, -end.length));
  });
}

/** Whether a file's tag is another in no more than its case. */
export const hasTag = (name: string, tag: string): boolean =>
  ggufTag(name).toLowerCase() === tag.toLowerCase();

function noSuchTag(
  id: string,
  models: readonly string[],
  tag: string | undefined,
  found: readonly string[],
): KvantError {
  const tags = [...new Set((found.length > 0 ? found : models).map(ggufTag))];
  const shown = tags.slice(0, MOST_NAMED).join(', ');
  const what =
    tag === undefined ? `${found.length} GGUF models` : `${found.length || 'no'} GGUF models ${tag}`;
  return new KvantError('weights-gguf', `${id} holds ${what}${models.length === 0 ? '' : `: ${shown}`}`, {
    kind: 'invalid-request',
    where: id,
    fix:
      tags.length > 1 || (tags.length === 1 && found.length === 0)
        ? `Say which, such as ${id}:${tags.find((one) => /^Q4_K_M$/i.test(one)) ?? tags[0]}.`
        : 'Fetch the file itself, and give its path.',
  });
}

/** A folder with several models: nothing says which is meant. */
export function severalGguf(folder: string, names: readonly string[]): KvantError {
  const shown = names.slice(0, MOST_NAMED).join(', ');
  const more = names.length > MOST_NAMED ? ` and ${names.length - MOST_NAMED} more` : '';
  return new KvantError('weights-gguf', `${folder} holds ${names.length} GGUF models: ${shown}${more}`, {
    kind: 'invalid-request',
    where: folder,
    fix: `Say which: ${folder}:${ggufTag(names[0]!)}, or the path of the file, such as ${join(folder, names[0]!)}.`,
  });
}

/** A file with a tag behind it, as if it were one of several. */
export function taggedFile(path: string, tag: string): KvantError {
  return new KvantError('weights-gguf', `${path} is one GGUF file: there is no ${tag} in it to choose`, {
    kind: 'invalid-request',
    where: path,
    fix: `Give the file itself: ${path}`,
  });
}

/** A later file of a set in the place of its first one. */
export function notFirst(path: string, number: number): KvantError {
  return new KvantError('weights-gguf', `${path} is file ${number + 1} of a set, by another name`, {
    kind: 'model',
    where: path,
    fix: 'Give the files their published names, name-00001-of-0000N.gguf, in one folder; or merge them with llama-gguf-split --merge.',
  });
}

/** What sees for a model, or a later file of a set, where a model is looked for. */
export function notAlone(path: string): KvantError {
  const later = LATER_SHARD.test(path);
  const what = later ? 'belongs to a set whose first file is not here' : 'is no model of its own';
  return new KvantError('weights-gguf', `${basename(path)} ${what}`, {
    kind: 'invalid-request',
    where: path,
    fix: later
      ? 'Fetch all files of the set into one folder.'
      : 'Give the GGUF file of the model that it goes with.',
  });
}
