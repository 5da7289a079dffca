/** Flags of `kvant serve` about where pictures of requests may come from. */
import { type Command, InvalidArgumentError } from 'commander';
import type { EngineOptions } from '../engine/types.js';
import { isMediaDomain } from '../engine/vision/picture-access.js';
import { shown } from '../printable.js';
import { bytes } from './flag-numbers.js';

export interface MediaFlags {
  readonly imageCacheBytes?: number;
  readonly allowMediaUrls?: boolean;
  readonly allowedMediaDomains?: readonly string[];
  readonly allowedLocalMediaPath?: string;
}

function hosts(text: string, before: readonly string[] = []): string[] {
  const given = text.split(',').map((one) => one.trim());
  const bad = given.find((one) => !isMediaDomain(one));
  if (bad === undefined) return [...before, ...given];
  const what = bad === '' ? 'A host is empty.' : `${shown(bad)} is no host.`;
  throw new InvalidArgumentError(`${what} Hosts are needed, each example.com or *.example.com.`);
}

export function addMediaFlags(command: Command): void {
  command
    .option('--image-cache-bytes <size>', 'bytes on the device for what is computed of pictures', bytes)
    .option('--allow-media-urls', 'fetch pictures by http and https URLs, from public addresses only')
    .option(
      '--allowed-media-domains <hosts>',
      'fetch them from these hosts alone, such as example.com,*.example.org; several may be given',
      hosts,
    )
    .option('--allowed-local-media-path <folder>', 'read pictures by file: URLs, those in this folder');
}

/** What the flags say, as engine options. */
export function mediaOptions({
  imageCacheBytes,
  allowMediaUrls,
  allowedMediaDomains,
  allowedLocalMediaPath,
}: MediaFlags): Pick<
  EngineOptions,
  'imageCacheBytes' | 'allowMediaUrls' | 'allowedMediaDomains' | 'allowedLocalMediaPath'
> {
  return {
    ...(imageCacheBytes === undefined ? {} : { imageCacheBytes }),
    ...(allowMediaUrls === undefined ? {} : { allowMediaUrls }),
    ...(allowedMediaDomains === undefined ? {} : { allowedMediaDomains }),
    ...(allowedLocalMediaPath === undefined ? {} : { allowedLocalMediaPath }),
  };
}
