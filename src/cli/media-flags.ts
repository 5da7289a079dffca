/** Flags of `kvant serve` about where pictures of requests may come from. */
import type { Command } from 'commander';
import type { EngineOptions } from '../engine/types.js';

export interface MediaFlags {
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
  allowMediaUrls,
  allowedMediaDomains,
  allowedLocalMediaPath,
}: MediaFlags): Pick<EngineOptions, 'allowMediaUrls' | 'allowedMediaDomains' | 'allowedLocalMediaPath'> {
  return {
    ...(allowMediaUrls === undefined ? {} : { allowMediaUrls }),
    ...(allowedMediaDomains === undefined ? {} : { allowedMediaDomains }),
    ...(allowedLocalMediaPath === undefined ? {} : { allowedLocalMediaPath }),
  };
}
