/** Model arguments that need no hub: folders, GGUF files, and what other programs keep on this machine. */

import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Environment } from './environment.js';
import { chooseGguf, ggufOfFolder } from './gguf-files.js';
import { isGgufFile } from './gguf-path.js';
import { expandHome } from './model-paths.js';
import { isStored, storedModel } from './model-stores.js';

/**
 * The folder, or the GGUF file, that an argument stands for: a path, `FOLDER:Q4_K_M` for one of several GGUF files, or the name that
 * another program has for it (model-stores.ts).
 *
 * @returns undefined where it is none of these: a hub id, or nothing at all
 * @throws KvantError `weights-gguf` for a folder with several GGUF models, or none with that tag, and those of {@link storedModel}
 */
export async function localModel(argument: string, env?: Environment): Promise<string | undefined> {
  const path = expandHome(argument);
  const found = await stat(path).catch(() => undefined);
  if (found?.isDirectory()) return (await ggufOfFolder(path)) ?? path;
  if (found !== undefined) return (await isGgufFile(path)) ? path : undefined;
  if (isStored(argument)) return await storedModel(argument, env);
  const [, folder, tag] = /^(.+):([\w.-]{1,64})$/.exec(path) ?? [];
  if (folder === undefined || !(await stat(folder).catch(() => undefined))?.isDirectory()) return undefined;
  return join(folder, chooseGguf(folder, await readdir(folder), tag)[0]!);
}
