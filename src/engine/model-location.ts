/** From a model argument to a folder, or a GGUF file, on disk. */

import type { ResolveOptions } from '../weights/hub-options.js';
import { localModel } from '../weights/local-model.js';
import type { ModelPlace } from './texts/text-origin.js';
import type { EngineOptions } from './types.js';

type LocateOptions = Pick<EngineOptions, 'hub' | 'signal' | 'onProgress' | 'onLog'>;

/** The model, and what is to be its tokenizer. Errors: see `resolveModel`. */
export async function locatePlace(
  model: string,
  { tokenizer, mmproj, ...options }: LocateOptions & Pick<EngineOptions, 'tokenizer' | 'mmproj'>,
): Promise<ModelPlace> {
  const place = {
    path: await locateModel(model, options, mmproj === undefined ? {} : { projector: false }),
    ...(mmproj === undefined ? {} : { mmproj }),
  };
  if (tokenizer === undefined) return place;
  const { revision: _, ...hub } = options.hub ?? {};
  return { ...place, tokenizer: await locateModel(tokenizer, { ...options, hub }, { textOnly: true }) };
}

/**
 * A folder or a GGUF file as it is, what another program keeps by its name there, a hub id fetched into the cache. Errors: see `resolveModel`.
 * @param wanted which files of a hub model are enough
 */
export async function locateModel(
  model: string,
  options: LocateOptions,
  wanted: Pick<ResolveOptions, 'textOnly' | 'projector'> = {},
): Promise<string> {
  const { hub = {}, signal, onProgress, onLog } = options;
  // A folder needs nothing of the hub, nor its modules.
  const local = hub.revision === undefined ? await localModel(model) : undefined;
  if (local !== undefined) return local;
  const { resolveModel } = await import('../weights/hub.js');
  const argument = hub.revision === undefined ? model : `${model}@${hub.revision}`;
  const resolved = await resolveModel(argument, {
    env: {
      ...process.env,
      ...(hub.token === undefined ? {} : { HF_TOKEN: hub.token }),
      ...(hub.cacheDir === undefined ? {} : { HF_HUB_CACHE: hub.cacheDir }),
      ...(hub.endpoint === undefined ? {} : { HF_ENDPOINT: hub.endpoint }),
      ...(hub.offline === undefined ? {} : { HF_HUB_OFFLINE: hub.offline ? '1' : '' }),
    },
    ...(signal === undefined ? {} : { signal }),
    ...wanted,
    onProgress: ({ file, bytes, totalBytes }) =>
      onProgress?.({ phase: 'download', done: bytes, total: totalBytes, unit: 'bytes', item: file }),
  });
  if (resolved.notice !== undefined)
    onLog?.({ level: 'warn', message: 'model location', fields: { notice: resolved.notice } });
  return resolved.folder;
}
