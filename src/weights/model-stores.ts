/**
 * Models that other programs keep on this machine: `ollama:llama3.2:1b`, `lmstudio:publisher/repo:Q4_K_M`. Their files are read where
 * they lie; nothing is fetched and nothing written.
 */

import { homedir } from 'node:os';
import type { Environment } from './environment.js';
import { lmStudioModel } from './lm-studio-store.js';
import { ollamaModel } from './ollama-store.js';

/** True for an argument that names a model of another program. */
export function isStored(argument: string): boolean {
  return /^(ollama|lm-?studio):/i.test(argument);
}

/** How a name that leads nowhere would be written for a program that has it: `llama3.2:1b` as `ollama:llama3.2:1b`. */
export async function storedAs(
  name: string,
  env: Environment = process.env,
  home: string = homedir(),
): Promise<string | undefined> {
  for (const program of ['ollama', 'lmstudio']) {
    const found = await storedModel(`${program}:${name}`, env, home).catch(() => undefined);
    if (found !== undefined) return `${program}:${name}`;
  }
  return undefined;
}

/**
 * The folder or GGUF file that such an argument stands for.
 *
 * @param env default `process.env`: `OLLAMA_MODELS` names Ollama's folder
 * @param home default: the user's
 * @throws KvantError `model-not-found` with what was looked for and what is there, `weights-gguf` where a folder holds several files,
 * `model-config-unsupported` for a model that is more than its file
 * @example await storedModel('ollama:llama3.2:1b') // '/home/me/.ollama/models/blobs/sha256-74701a8c…'
 */
export async function storedModel(
  argument: string,
  env: Environment = process.env,
  home: string = homedir(),
): Promise<string> {
  const at = argument.indexOf(':');
  const name = argument.slice(at + 1).replace(/^\/\//, '');
  return argument.slice(0, at).toLowerCase() === 'ollama'
    ? await ollamaModel(name, env, home)
    : await lmStudioModel(name, home);
}
