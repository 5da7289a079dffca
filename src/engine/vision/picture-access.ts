/** Where pictures of requests may come from, by the engine's options. */

import { stat } from 'node:fs/promises';
import { KvantError } from '../../errors.js';
import type { EngineOptions } from '../types.js';

/** What is asked for; a video may be of any format, and what it is its bytes say. */
export type MediaKind = 'picture' | 'video';

/** Where pictures may come from besides the request itself. */
export interface PictureAccess {
  /** A folder in which `file:` URLs of requests may lie. Default: none. */
  readonly localPath?: string | undefined;
  /** Fetches a URL. Absent: none is fetched. Errors: its own, which name `where`. */
  readonly fetch?: ((url: string, where: string, signal: AbortSignal) => Promise<Uint8Array>) | undefined;
}

/** With `allowMediaUrls` all public hosts, with `allowedMediaDomains` only these, with both as well. */
export async function pictureAccess({
  allowMediaUrls = false,
  allowedMediaDomains,
  allowedLocalMediaPath: localPath,
}: EngineOptions): Promise<PictureAccess> {
  if (!allowMediaUrls && (allowedMediaDomains ?? []).length === 0) return { localPath };
  const { ImageFetcher } = await import('../../media/fetch-image.js');
  const fetcher = new ImageFetcher(allowedMediaDomains === undefined ? {} : { domains: allowedMediaDomains });
  return { localPath, fetch: (url, where, signal) => fetcher.fetch(url, where, signal) };
}

/** `example.com`, or `*.example.com`. */
export const isMediaDomain = (text: unknown): boolean =>
  typeof text === 'string' && /^(?:\*\.)?[a-z\d_-]+(?:\.[a-z\d_-]+)*$/i.test(text);

/** A folder of pictures is one. Errors: `invalid-option`. */
export async function checkLocalMedia(folder: string): Promise<void> {
  const found = await stat(folder).catch(() => null);
  if (found?.isDirectory() === true) return;
  throw new KvantError(
    'invalid-option',
    `\`allowedLocalMediaPath\` is ${folder}, ${found === null ? 'which is not there' : 'which is no folder'}.`,
    {
      kind: 'invalid-request',
      where: 'allowedLocalMediaPath',
      fix: 'Give the path of a folder of pictures.',
    },
  );
}
