/**
 * Turns a model argument into a folder or a GGUF file: what lies on this machine (local-model.ts) as it is, or a hub id
 * (`org/name[:tag][@revision]`, also behind `hf:`) fetched into the standard Hugging Face cache. A tag asks for a GGUF file
 * (gguf-files.ts).
 */

import { stat } from 'node:fs/promises';
import { basename } from 'node:path';
import { KvantError } from '../errors.js';
import { hasTag } from './gguf-files.js';
import { HubCache } from './hub-cache.js';
import { hubConfig } from './hub-config.js';
import { isAFile, notAModel, offlineError } from './hub-errors.js';
import { HUB_PREFIX, parseHubId } from './hub-id.js';
import { fetchModel } from './hub-model.js';
import type { ResolvedModel, ResolveOptions } from './hub-options.js';
import { localModel } from './local-model.js';
import { expandHome, hasParent, isPath } from './model-paths.js';

export { type HubId, parseHubId } from './hub-id.js';
export type { HubProgress, ResolvedModel, ResolveOptions } from './hub-options.js';

/**
 * Finds or fetches a model.
 *
 * Only what kvant reads is fetched: configuration, tokenizer, templates, safetensors. Small files come first and
 * weights last, so a snapshot with all of its weights is complete.
 *
 * @throws KvantError `model-not-found` for an argument that is neither, `hub-…` (see hub-fetch.ts and
 * hub-download.ts), `hub-offline`, `hub-package-missing`, `weights-none`, `weights-pickle`, `weights-gguf`,
 * `model-file-missing`, `disk-full`, `cancelled`
 */
export async function resolveModel(argument: string, options: ResolveOptions = {}): Promise<ResolvedModel> {
  const path = expandHome(argument);
  const local = await localModel(argument, options.env);
  if (local !== undefined) return { folder: local, from: 'folder' };
  if ((await stat(path).catch(() => undefined)) !== undefined) throw await isAFile(argument, path);
  const name = argument.replace(HUB_PREFIX, '');
  const text = options.revision === undefined ? name : `${name}@${options.revision}`;
  const hubId = isPath(name) ? undefined : parseHubId(text);
  if (hubId === undefined) throw await notAModel(name === argument ? text : argument, path, options.env);

  const config = await hubConfig(options.env);
  const cache = new HubCache(config.cacheFolder, hubId.id);
  const known = await cache.commitOf(hubId.revision);
  const whole =
    known === undefined
      ? undefined
      : hubId.tag !== undefined
        ? await cache.completeGguf(known, hubId.tag)
        : options.textOnly
          ? await cache.withText(known)
          : await cache.complete(known);
  // The hub may have others: it is asked, where it can be.
  const only =
    whole === undefined && known !== undefined && hubId.tag === undefined && !options.textOnly
      ? await cache.completeGguf(known)
      : undefined;
  const cached = whole ?? only;
  // `mine/demo-tex` beside a folder `mine` is a path that leads nowhere, though it may be a name on the hub as well.
  if (cached === undefined && argument === hubId.id && text === argument && (await hasParent(path)))
    throw await notAModel(text, path, options.env);
  // The hub may have a file whose tag is the one that was asked for, and not only the end of its name.
  const near =
    cached !== undefined && hubId.tag !== undefined && !hasTag(cached, hubId.tag) ? cached : undefined;
  const fromCache = (reason?: string): ResolvedModel => {
    const taken = only
      ? `${basename(only)} is the only GGUF file of ${hubId.id} in the cache, and taken`
      : near && `${basename(near)} is in the cache, and taken for ${hubId.tag}`;
    const notice = [reason, taken].filter((part) => part !== undefined).join('; ');
    return {
      folder: cached!,
      from: 'cache',
      id: hubId.id,
      commit: known!,
      ...(notice === '' ? {} : { notice }),
    };
  };
  // A commit never changes; anything else is looked up, unless told not to.
  const pinned =
    known === hubId.revision &&
    only === undefined &&
    near === undefined &&
    (hubId.tag !== undefined || (await cache.hasTokenizer(known)));
  if (cached !== undefined && (config.offline || pinned)) return fromCache();
  if (config.offline) throw offlineError(hubId, config, known !== undefined);
  try {
    return await fetchModel(hubId, config, cache, options);
  } catch (error) {
    const passing = [
      'hub-network',
      'hub-proxy',
      'hub-answer',
      'hub-package-missing',
      'hub-cache',
      'disk-full',
    ];
    if (cached === undefined || !(error instanceof KvantError) || !passing.includes(error.code)) throw error;
    return fromCache(`${error.message}; using the copy in the cache`);
  }
}
