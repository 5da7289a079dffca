/** Why no model was found, and what is likely meant. */

import { KvantError } from '../errors.js';
import type { Environment } from './environment.js';
import { isGgufName } from './foreign-formats.js';
import type { HubConfig } from './hub-config.js';
import { type HubId, parseHubId } from './hub-id.js';
import { isDeadLink, isPath, modelOfFile, nearbyFiles, nearbyModels } from './model-paths.js';
import { storedAs } from './model-stores.js';

const GIVE_A_MODEL =
  'Give a folder with config.json and *.safetensors files, a *.gguf file, a hub id such as Qwen/Qwen3-0.6B, Qwen/Qwen3-0.6B@main or, for a GGUF file, org/name:Q4_K_M; or a name such as ollama:llama3.2:1b or lmstudio:publisher/repo.';

export async function isAFile(argument: string, path: string): Promise<KvantError> {
  const folder = await modelOfFile(path);
  return new KvantError('model-not-found', `${argument} is a file, and no GGUF file`, {
    kind: 'not-found',
    where: argument,
    fix: folder !== undefined ? `Give the folder of the model: ${folder}` : GIVE_A_MODEL,
  });
}

/** @param path the argument as a path */
export async function notAModel(argument: string, path: string, env?: Environment): Promise<KvantError> {
  const onHub = /^https?:\/\/(?:www\.)?(?:huggingface\.co|hf\.co)\/([\w.-]+\/[\w.-]+)/.exec(argument)?.[1];
  const hubId = isPath(argument) ? undefined : parseHubId(argument);
  const stored = isPath(argument) ? undefined : await storedAs(argument, env);
  const gguf = onHub === undefined && isGgufName(path);
  const near =
    onHub !== undefined || stored !== undefined
      ? []
      : gguf
        ? await nearbyFiles(path)
        : await nearbyModels(path);
  const fixes = [
    ...(onHub === undefined ? [] : [`Give the name alone: ${onHub}`]),
    ...(stored === undefined ? [] : [`Did you mean ${stored}?`]),
    ...(near.length === 1 ? [`Did you mean ${near[0]}?`] : []),
    ...(near.length > 1 ? [`These are there: ${near.join(', ')}.`] : []),
    ...(hubId === undefined
      ? []
      : [
          `For a model of that name on the hub write ${hubId.id}${hubId.tag === undefined ? '' : `:${hubId.tag}`}@${hubId.revision}`,
        ]),
  ];
  if (await isDeadLink(path))
    return new KvantError('model-not-found', `${JSON.stringify(argument)} is a link that leads nowhere`, {
      kind: 'not-found',
      where: argument,
      fix: 'Fetch the model again, or give the path of the files themselves.',
    });
  const what = `there is no ${gguf ? 'file' : 'folder'} ${JSON.stringify(argument)}`;
  // Of what is written as a path, or nearly so, nobody asks whether it is a name on the hub.
  const plain = gguf || isPath(argument) || hubId !== undefined || near.length === 1;
  const neither = plain ? what : `${what}, and it is not a hub id`;
  return new KvantError('model-not-found', neither, {
    kind: 'not-found',
    where: argument,
    fix: fixes.length === 0 ? GIVE_A_MODEL : fixes.join(' '),
  });
}

export function offlineError({ id, revision }: HubId, config: HubConfig, partly: boolean): KvantError {
  const what = partly ? 'is only partly' : 'is not';
  return new KvantError(
    'hub-offline',
    `${id}@${revision} ${what} in ${config.cacheFolder}, and offline mode is on`,
    {
      kind: 'not-found',
      where: id,
      fix: 'Unset HF_HUB_OFFLINE once to fetch it (`kvant pull`), or give a folder with the model.',
    },
  );
}
