/**
 * LM Studio's models: folders `PUBLISHER/REPO` of GGUF files or of MLX's safetensors.
 *
 * Source: LM Studio's documentation of its folders; its settings name another one (`downloadsFolder`), and a file in the user's folder
 * names another home.
 */

import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isGgufName } from './foreign-formats.js';
import { chooseGguf, ggufModels } from './gguf-files.js';
import { isFolder } from './model-paths.js';
import { namesIn, notStored, pathWithin } from './store-folders.js';

const MOST_LISTED = 200;

/**
 * The GGUF file of a model, or its folder of safetensors.
 *
 * @param name `publisher/repo`, with `:Q4_K_M` or `/file.gguf` where there are several; `repo` alone where one publisher has it
 * @throws KvantError `model-not-found`, `weights-gguf` where there are several
 */
export async function lmStudioModel(name: string, home: string): Promise<string> {
  const folders = await lmStudioFolders(home);
  const [, path = '', tag] = /^([^:]*)(?::([\w.-]{1,64}))?$/.exec(name) ?? [];
  const parts = path.split('/').filter((part) => part !== '');
  const safe = parts.length >= 1 && parts.length <= 4 && parts.every((part) => !part.startsWith('.'));
  for (const folder of safe ? folders : []) {
    const found =
      parts.length === 1 ? await ofAnyPublisher(folder, parts[0]!) : await pathWithin(folder, parts);
    if (found === undefined) continue;
    if (isGgufName(found) && !(await isFolder(found))) return found;
    const model = await modelIn(found, name, tag);
    if (model !== undefined) return model;
  }
  const known = (await Promise.all(folders.map(lmStudioModels))).flat();
  throw notStored({
    store: 'LM Studio',
    prefix: 'lmstudio',
    name,
    folders,
    known,
    advice: '`lms get NAME` fetches one; a path to any folder or *.gguf file will do as well.',
  });
}

/** The models of a folder as one would type them, sorted. */
async function lmStudioModels(folder: string): Promise<string[]> {
  const found: string[] = [];
  for (const publisher of await namesIn(folder))
    for (const repo of await namesIn(join(folder, publisher)))
      if (found.length < MOST_LISTED && (await isFolder(join(folder, publisher, repo))))
        found.push(`${publisher}/${repo}`);
  return found;
}

/** Where models lie: as the settings say, else in the folders of newer and older versions. */
export async function lmStudioFolders(home: string): Promise<string[]> {
  const pointer = await readFile(join(home, '.lmstudio-home-pointer'), 'utf8').catch(() => '');
  const own = pointer.trim() === '' ? join(home, '.lmstudio') : pointer.trim();
  const settings = await readFile(join(own, 'settings.json'), 'utf8').catch(() => '');
  const told = downloadsFolder(settings);
  const usual = [join(own, 'models'), join(home, '.cache', 'lm-studio', 'models')];
  return [...new Set([...(told === undefined ? [] : [told]), ...usual])];
}

function downloadsFolder(settings: string): string | undefined {
  try {
    const { downloadsFolder: folder } = JSON.parse(settings) as { downloadsFolder?: unknown };
    return typeof folder === 'string' && folder !== '' ? folder : undefined;
  } catch {
    return undefined;
  }
}

/** undefined where several publishers have one of that name, or none. */
async function ofAnyPublisher(folder: string, repo: string): Promise<string | undefined> {
  const publishers = await namesIn(folder);
  const found = await Promise.all(publishers.map((publisher) => pathWithin(join(folder, publisher), [repo])));
  const [only, ...others] = found.filter((path) => path !== undefined);
  return others.length === 0 ? only : undefined;
}

/** undefined where a folder holds nothing to load. */
async function modelIn(folder: string, name: string, tag: string | undefined): Promise<string | undefined> {
  const names = await namesIn(folder);
  if (ggufModels(names).length > 0) {
    const asked = `lmstudio:${tag === undefined ? name : name.slice(0, -tag.length - 1)}`;
    return join(folder, chooseGguf(asked, names, tag)[0]!);
  }
  return tag === undefined && names.some((one) => one.endsWith('.safetensors')) ? folder : undefined;
}
