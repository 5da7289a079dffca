/** From a model argument to a folder on disk. */

import { stat } from 'node:fs/promises';
import { expandHome } from '../weights/model-paths.js';
import type { EngineOptions } from './types.js';

type LocateOptions = Pick<EngineOptions, 'hub' | 'signal' | 'onProgress' | 'onLog'>;

/** A folder as it is, a hub id fetched into the cache. Errors: see `resolveModel`. */
export async function locateModel(model: string, options: LocateOptions): Promise<string> {
  const { hub = {}, signal, onProgress, onLog } = options;
  // A folder needs nothing of the hub, nor its modules.
  const path = expandHome(model);
  if (hub.revision === undefined && (await stat(path).catch(() => undefined))?.isDirectory()) return path;
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
    onProgress: ({ file, bytes, totalBytes }) =>
      onProgress?.({ phase: 'download', done: bytes, total: totalBytes, unit: 'bytes', item: file }),
  });
  if (resolved.notice !== undefined)
    onLog?.({ level: 'warn', message: 'model location', fields: { notice: resolved.notice } });
  return resolved.folder;
}
