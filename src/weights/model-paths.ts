/** Model arguments that are paths: told apart from names on the hub, and what was meant by one that leads nowhere. */

import { lstat, readdir, stat } from 'node:fs/promises';
import { homedir } from 'node:os';
import { basename, dirname, join, parse } from 'node:path';
import { closestName } from '../did-you-mean.js';
import { isGgufName } from './foreign-formats.js';

/** Folders named in an error. */
const MOST_NAMED = 4;

/** A path with `~` for the home folder spelled out: a shell leaves it in quotes, and a program has none to do it. */
export function expandHome(path: string): string {
  return path.replace(/^~(?=$|[/\\])/, () => homedir());
}

/** True for what is written as a path, and so no name on the hub. */
export function isPath(argument: string): boolean {
  return (
    /^(\.{0,2}|~|[A-Za-z]:)[/\\]|^(\.{1,2}|~)$/.test(argument) ||
    argument.includes('\\') ||
    argument.endsWith('/') ||
    // A revision may be a path of its own: org/name@refs/pr/3.
    argument.split('@')[0]!.split('/').length > 2
  );
}

/** True where the folder of a path that leads nowhere is there, so that a path was meant. */
export async function hasParent(path: string): Promise<boolean> {
  const parent = dirname(path);
  return parent !== '.' && (await isFolder(parent));
}

/**
 * Folders that may have been meant by a path that leads nowhere, as one would write them: the one with its parts corrected,
 * else models that lie beside it.
 *
 * @example await nearbyModels('models/demo-tex') // ['models/demo-text']
 */
export async function nearbyModels(path: string): Promise<string[]> {
  if (path === '') return [];
  // A name without its folder is looked for where models are kept.
  const bare = !/[/\\]/.test(path);
  for (const candidate of bare ? [path, join('models', path)] : [path]) {
    const corrected = await correctedPath(candidate);
    if (corrected !== undefined) return [corrected];
  }
  return await modelsWithin(bare ? 'models' : dirname(path));
}

/** A link that leads nowhere, as caches have them whose files were removed or not fetched. */
export async function isDeadLink(path: string): Promise<boolean> {
  return (await lstat(path).catch(() => undefined))?.isSymbolicLink() === true;
}

/** GGUF files that may have been meant by a path that leads to none: the one that is spelled almost so, else those beside it. */
export async function nearbyFiles(path: string): Promise<string[]> {
  const folder = dirname(path);
  const others = (await readdir(folder).catch(() => [])).filter((name) => name !== basename(path));
  const names = others.filter(isGgufName).sort();
  const meant = closestName(basename(path), names);
  return (meant === undefined ? names.slice(0, MOST_NAMED) : [meant]).map((name) => join(folder, name));
}

/** Folders of models in a folder, GGUF ones among them: those right in it, and the snapshots of a hub model's cache. */
export async function modelsWithin(folder: string): Promise<string[]> {
  const found: string[] = [];
  for (const inner of [folder, join(folder, 'snapshots')]) {
    for (const name of await foldersIn(inner)) {
      const path = join(inner, name);
      if (await isModel(path)) found.push(path);
      if (found.length === MOST_NAMED) return found;
    }
  }
  return found;
}

/** The folder of a model that a file belongs to. */
export async function modelOfFile(path: string): Promise<string | undefined> {
  const folder = dirname(path);
  return (await isModel(folder)) ? folder : undefined;
}

/** Part by part the folder that is there, or the one that is spelled almost so. */
async function correctedPath(path: string): Promise<string | undefined> {
  const { root } = parse(path);
  const lead = root === '' && /^\.[/\\]/.test(path) ? './' : '';
  let at = root;
  for (const part of path.slice(root.length).split(/[/\\]+/)) {
    if (part === '' || part === '.') continue;
    const next = join(at, part);
    if (await isFolder(next)) {
      at = next;
      continue;
    }
    const meant = closestName(part, await foldersIn(at === '' ? '.' : at));
    if (meant === undefined) return undefined;
    at = join(at, meant);
  }
  return at === '' ? undefined : lead + at;
}

async function foldersIn(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true }).catch(() => []);
  return entries
    .filter(
      (entry) => (entry.isDirectory() || entry.isSymbolicLink()) && !basename(entry.name).startsWith('.'),
    )
    .map(({ name }) => name)
    .sort();
}

async function isModel(folder: string): Promise<boolean> {
  if ((await stat(join(folder, 'config.json')).catch(() => undefined)) !== undefined) return true;
  return (await readdir(folder).catch(() => [])).some(isGgufName);
}

export const isFolder = async (path: string): Promise<boolean> =>
  (await stat(path).catch(() => undefined))?.isDirectory() === true;
