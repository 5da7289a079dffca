/** Model arguments that need no hub: folders, GGUF files, and what other programs keep on this machine. */

import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Environment } from './environment.js';
import { isGgufName } from './foreign-formats.js';
import { chooseGguf, firstOfSet, ggufOfFolder, taggedFile } from './gguf-files.js';
import { isGgufFile } from './gguf-path.js';
import { expandHome, modelsWithin } from './model-paths.js';
import { isStored, storedModel } from './model-stores.js';
import { noWeights } from './shards.js';

/** What a model, or a tokenizer alone, has beside it. */
const OF_A_MODEL = /\.(json|safetensors|model|txt)$/;

/**
 * The folder, or the GGUF file, that an argument stands for: a path, `FOLDER:Q4_K_M` for one of several GGUF files, or the name that
 * another program has for it (model-stores.ts). Of a set of GGUF files any may be given, and the first is what it stands for.
 *
 * @returns undefined where it is none of these: a hub id, or nothing at all
 * @throws KvantError `weights-gguf` for a folder with several GGUF models, or none with that tag, or a tag behind a file, those of
 * {@link noWeights} for a folder in which nothing is a model's, and those of {@link storedModel}
 */
export async function localModel(argument: string, env?: Environment): Promise<string | undefined> {
  const path = expandHome(argument);
  const found = await stat(path).catch(() => undefined);
  if (found?.isDirectory()) {
    const only = await ggufOfFolder(path);
    if (only === undefined) await refuseNoModel(path);
    return only ?? path;
  }
  if (found !== undefined) return (await isGgufFile(path)) ? await firstOfSet(path) : undefined;
  if (isStored(argument)) return await storedModel(argument, env);
  const [, folder, tag] = /^(.+):([\w.-]{1,64})$/.exec(path) ?? [];
  const named = folder === undefined ? undefined : await stat(folder).catch(() => undefined);
  if (folder === undefined || named === undefined) return undefined;
  if (!named.isDirectory()) {
    if (await isGgufFile(folder)) throw taggedFile(folder, tag!);
    return undefined;
  }
  return join(folder, chooseGguf(folder, await readdir(folder), tag)[0]!);
}

async function refuseNoModel(folder: string): Promise<void> {
  const names = (await readdir(folder)).sort();
  // Parts of GGUF models may lie beside the config.json of the model that they were made from.
  const wanted = names.some(isGgufName) ? /\.safetensors$|^tokenizer/ : OF_A_MODEL;
  if (!names.some((name) => wanted.test(name))) throw noWeights(folder, names, await modelsWithin(folder));
}
