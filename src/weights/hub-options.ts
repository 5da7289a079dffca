/** What finding a model takes, and what is found. */

import type { Environment } from './environment.js';

export type HubLibrary = Pick<typeof import('@huggingface/hub'), 'modelInfo' | 'listFiles' | 'downloadFile'>;

export interface HubProgress {
  /** The file being fetched. */
  readonly file: string;
  readonly index: number;
  readonly files: number;
  /** Bytes of all files on the disk so far, of `totalBytes`. */
  readonly bytes: number;
  readonly totalBytes: number;
}

export interface ResolveOptions {
  /** Default `process.env`. */
  readonly env?: Environment;
  /** Branch, tag or commit of a hub model; instead of `@revision` in the argument. */
  readonly revision?: string;
  readonly signal?: AbortSignal;
  /** Tokenizer and chat template are enough: no weights are fetched, unless a tag names a GGUF file. */
  readonly textOnly?: boolean;
  /** False leaves out the mmproj file that sees for a GGUF model. Default true. */
  readonly projector?: boolean;
  readonly onProgress?: (progress: HubProgress) => void;
  /** Pause before a request is repeated, doubled each time. Default 500 ms. */
  readonly retryDelayMs?: number;
  /** Longest silence of the hub. Default 30 s. */
  readonly timeoutMs?: number;
  /** For tests: loads `@huggingface/hub`. */
  readonly importHub?: () => Promise<HubLibrary>;
}

export interface ResolvedModel {
  /** A folder, or a GGUF file. */
  readonly folder: string;
  /** `folder`: given as one. `cache`: found without the hub. `hub`: the hub was asked, and what was missing fetched. */
  readonly from: 'folder' | 'cache' | 'hub';
  /** `org/name`, for a hub model. */
  readonly id?: string;
  readonly commit?: string;
  /** Something the user should know, such as that the hub could not be reached and the cache was used. */
  readonly notice?: string;
}
