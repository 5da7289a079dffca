/** Fetching one file of the hub into the cache: resumed where it stopped, checked by its hash before it counts. */

import { createHash, type Hash } from 'node:crypto';
import { type FileHandle, open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { KvantError } from '../errors.js';
import { makeFolder } from '../make-folder.js';
import { systemReason } from '../system-errors.js';
import { withFileLock } from './file-lock.js';
import { exists, type HubCache } from './hub-cache.js';
import type { HubConfig } from './hub-config.js';
import { cancelled, MAX_TRIES, networkError, pause, RangeIgnored } from './hub-fetch.js';

/** A file as the hub lists it. */
export interface HubFile {
  readonly path: string;
  readonly size: number;
  /** Names the blob: the sha256 of a large file, the git object id of a small one. */
  readonly hash: string;
  /** How `hash` is made; undefined where it cannot be checked. */
  readonly algorithm: 'sha256' | 'git' | undefined;
}

/**
 * Where an unfinished blob lies. Not `.incomplete`, to which Python's huggingface_hub appends under a lock that Node
 * cannot take: two writers of one file would poison it for both.
 */
export function partialOf(blob: string): string {
  return `${blob}.kvant-partial`;
}

/** A stream of the file's bytes from `offset` on. */
export type OpenStream = (file: HubFile, offset: number) => Promise<ReadableStream<Uint8Array>>;

export interface DownloadOptions {
  readonly config: HubConfig;
  readonly signal?: AbortSignal | undefined;
  readonly retryDelayMs?: number | undefined;
  /** Longest silence in the middle of a file. Default 30 s. */
  readonly timeoutMs?: number | undefined;
  /** Called with the bytes of this file on the disk so far. */
  readonly onBytes?: (bytes: number) => void;
}

/**
 * Makes sure that a file's blob is in the cache.
 *
 * @throws KvantError `hub-network`, `hub-corrupt` where the bytes do not have the hash the hub names, `disk-full`,
 * `hub-cache` for other failures of the disk, `cancelled`, and those of the stream
 */
export async function downloadBlob(
  cache: HubCache,
  file: HubFile,
  openStream: OpenStream,
  options: DownloadOptions,
): Promise<void> {
  const blob = cache.blob(file.hash);
  try {
    if (await exists(blob)) return;
    await makeFolder(dirname(blob));
    await withFileLock(`${blob}.lock`, options.signal, async () => {
      // Another process may have fetched it while this one waited.
      if (await exists(blob)) return;
      const partial = partialOf(blob);
      // One more try from the start: the partial file may have been the bad part.
      if (!(await fetchAndCheck(partial, file, openStream, options))) {
        await rm(partial, { force: true });
        if (!(await fetchAndCheck(partial, file, openStream, options))) {
          await rm(partial, { force: true });
          throw corrupt(file, options.config);
        }
      }
      await rename(partial, blob);
    });
  } catch (error) {
    throw cacheError(error, cache.folder, options.signal);
  }
}

/** @returns false where the whole file was read and its hash is wrong */
async function fetchAndCheck(
  partial: string,
  file: HubFile,
  openStream: OpenStream,
  options: DownloadOptions,
): Promise<boolean> {
  const handle = await open(partial, 'a+');
  try {
    const state = { hash: startHash(file), bytes: 0 };
    await rehash(handle, file, state);
    let tries = 0;
    while (state.bytes < file.size) {
      const before = state.bytes;
      try {
        await receive(handle, file, openStream, state, options);
        if (state.bytes < file.size) throw new Error('the connection ended early');
      } catch (error) {
        if (options.signal?.aborted) throw cancelled(options.signal);
        if (error instanceof RangeIgnored) {
          await restart(handle, file, state);
        } else if (error instanceof KvantError || isDiskError(error)) {
          throw error;
        } else {
          tries = state.bytes > before ? 1 : tries + 1;
          if (tries >= MAX_TRIES) throw networkError(options.config, error);
          await pause((options.retryDelayMs ?? 500) * 2 ** (tries - 1), options.signal);
        }
      }
    }
    await handle.datasync();
    if (file.algorithm === undefined) return state.bytes === file.size;
    return state.bytes === file.size && state.hash.digest('hex') === file.hash;
  } finally {
    await handle.close();
  }
}

interface State {
  hash: Hash;
  bytes: number;
}

/** Git hashes `blob <size>\0` and then the contents. */
function startHash(file: HubFile): Hash {
  return file.algorithm === 'git' ? createHash('sha1').update(`blob ${file.size}\0`) : createHash('sha256');
}

async function restart(handle: FileHandle, file: HubFile, state: State): Promise<void> {
  await handle.truncate(0);
  state.hash = startHash(file);
  state.bytes = 0;
}

/** Takes up what an earlier run left. */
async function rehash(handle: FileHandle, file: HubFile, state: State): Promise<void> {
  const { size } = await handle.stat();
  if (size > file.size) return await restart(handle, file, state);
  const piece = new Uint8Array(Math.min(1 << 20, size));
  while (state.bytes < size) {
    const { bytesRead } = await handle.read(piece, 0, piece.length, state.bytes);
    if (bytesRead === 0) break;
    state.hash.update(piece.subarray(0, bytesRead));
    state.bytes += bytesRead;
  }
}

async function receive(
  handle: FileHandle,
  file: HubFile,
  openStream: OpenStream,
  state: State,
  options: DownloadOptions,
) {
  const reader = (await openStream(file, state.bytes)).getReader();
  const timeout = options.timeoutMs ?? 30_000;
  let finished = false;
  try {
    for (;;) {
      options.onBytes?.(state.bytes);
      const { done, value } = await within(reader.read(), timeout, options.signal);
      if (done) break;
      if (state.bytes + value.byteLength > file.size) throw new Error('the server sent too many bytes');
      await writeAll(handle, value);
      state.hash.update(value);
      state.bytes += value.byteLength;
    }
    finished = true;
  } finally {
    if (!finished) await reader.cancel().catch(() => {});
  }
}

/** Appends: the handle was opened so. */
async function writeAll(handle: FileHandle, bytes: Uint8Array): Promise<void> {
  let done = 0;
  while (done < bytes.byteLength) done += (await handle.write(bytes, done)).bytesWritten;
}

async function within<T>(work: Promise<T>, ms: number, signal: AbortSignal | undefined): Promise<T> {
  let stop = () => {};
  const limit = new Promise<never>((_, reject) => {
    const timer = setTimeout(() => reject(new Error(`nothing came for ${ms / 1000} s`)), ms);
    const abort = () => reject(cancelled(signal));
    signal?.addEventListener('abort', abort);
    stop = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', abort);
    };
    if (signal?.aborted) abort();
  });
  try {
    return await Promise.race([work, limit]);
  } finally {
    stop();
  }
}

function isDiskError(error: unknown): boolean {
  return (
    (error as NodeJS.ErrnoException).syscall !== undefined &&
    /^(ENOSPC|EDQUOT|EIO|EROFS|EACCES|EPERM|EFBIG)$/.test((error as NodeJS.ErrnoException).code ?? '')
  );
}

function corrupt(file: HubFile, config: HubConfig): KvantError {
  return new KvantError('hub-corrupt', `${file.path} arrived damaged: its hash is not ${file.hash}`, {
    kind: 'model',
    where: file.path,
    fix: `Try again; if it stays so, the server at ${config.endpoint} or a proxy changes the file.`,
  });
}

/** Turns a failure of the cache's disk into an error that says so. */
export function cacheError(error: unknown, folder: string, signal?: AbortSignal): unknown {
  if (error instanceof KvantError) return error;
  if (signal?.aborted) return cancelled(signal);
  const code = (error as NodeJS.ErrnoException).code;
  if (code === 'ENOSPC' || code === 'EDQUOT') {
    return new KvantError('disk-full', `the disk of ${folder} is full`, {
      kind: 'invalid-request',
      where: folder,
      fix: 'Free some space, or set HF_HOME to a folder on another disk. The download is resumed where it stopped.',
      cause: error,
    });
  }
  if ((error as NodeJS.ErrnoException).syscall === undefined) return error;
  const reason = systemReason(error, 'the folder above takes none');
  return new KvantError('hub-cache', `the cache ${folder} cannot be written: ${reason}`, {
    kind: 'invalid-request',
    where: folder,
    fix: 'Check its permissions, or set HF_HOME to a folder of yours.',
    cause: error,
  });
}
