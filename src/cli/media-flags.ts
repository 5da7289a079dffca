/** Flags of `kvant serve` about where pictures of requests may come from. */
import type { Command } from 'commander';
import type { EngineOptions } from '../engine/types.js';
import { bytes } from './flag-numbers.js';

export interface MediaFlags {
  readonly imageCacheBytes?: number;
  readonly allowMediaUrls?: boolean;
  readonly allowedMediaDomains?: readonly string[];
  readonly allowedLocalMediaPath?: string;
}

const list = (text: string, before: readonly string[] = []): string[] => [
  ...before,
  ...text.split(',').map((one) => one.trim()),
];

export function addMediaFlags(command: Command): void {
  command
    .option('--image-cache-bytes <size>', 'bytes on the device for what is computed of pictures', bytes)
    .option('--allow-media-urls', 'fetch pictures by http and https URLs, from public addresses only')
    .option(
      '--allowed-media-domains <hosts>',
      'fetch them from these hosts alone, such as example.com,*.example.org; several may be given',
      list,
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
