/**
 * Fetches a model of the hub into its cache: small files first and weights last, the revision's name at the end.
 *
 * `@huggingface/hub` finds the commit, lists the files and opens their streams. It overwrites a partial file, and
 * reports no progress and no hash, so the rest is done here: resuming, checking, the cache's layout.
 */

import { stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { KvantError } from '../errors.js';
import { makeFolder } from '../make-folder.js';
import { isSmallModelFile, TOKENIZER_FILES } from './folder-files.js';
import { isGgufName, isPickleName } from './foreign-formats.js';
import { chooseGguf } from './gguf-files.js';
import type { HubCache } from './hub-cache.js';
import type { HubConfig } from './hub-config.js';
import { cacheError, downloadBlob, type HubFile, partialOf } from './hub-download.js';
import { createHubFetch } from './hub-fetch.js';
import type { HubId } from './hub-id.js';
import type { HubLibrary, ResolvedModel, ResolveOptions } from './hub-options.js';
import { repositoryProjector } from './projectors.js';
import { chooseShards, INDEX_NAME, indexedFiles, noWeights, SINGLE_NAME } from './shards.js';

/** Errors: as `resolveModel`. */
export async function fetchModel(
  { id, revision, tag }: HubId,
  config: HubConfig,
  cache: HubCache,
  options: ResolveOptions,
): Promise<ResolvedModel> {
  const hub = await loadHubLibrary(options);
  await using connection = await createHubFetch(config, { id, revision, ...options });
  const hubFetch = connection.fetch;
  const common = { hubUrl: config.endpoint, fetch: hubFetch };
  const { sha: commit } = await hub.modelInfo({ ...common, name: id, revision, additionalFields: ['sha'] });
  const listed = new Map<string, HubFile>();
  for await (const entry of hub.listFiles({ ...common, repo: id, revision: commit, recursive: true })) {
    if (entry.type === 'file' && isSafePath(entry.path)) listed.set(entry.path, hubFile(entry));
  }

  const { small, weights, gguf, indexed } = selectFiles(id, tag, listed, options);
  // The library's blob reports a failed request as text only; the error itself is kept here.
  const openStream = async (file: HubFile, offset: number) => {
    let failure: unknown;
    const remember: typeof fetch = async (...args) => {
      try {
        return await hubFetch(...args);
      } catch (error) {
        failure = error;
        throw error;
      }
    };
    const path = file.path.split('/').map(encodeURIComponent).join('/');
    const url = `${config.endpoint}/${id}/resolve/${commit}/${path}`;
    const blob = await hub.downloadFile({
      ...common,
      fetch: remember,
      repo: id,
      path: file.path,
      revision: commit,
      xet: false,
      downloadInfo: { size: file.size, etag: file.hash, url },
    });
    if (blob === null) throw new Error(`no stream for ${file.path}`);
    const stream = blob.slice(offset, file.size).stream() as ReadableStream<Uint8Array>;
    return withFailure(stream, () => failure);
  };

  let files = [...small, ...weights];
  let done = 0;
  const fetchFile = async (file: HubFile, index: number) => {
    const report = (bytes: number) =>
      options.onProgress?.({
        file: file.path,
        index,
        files: files.length,
        bytes: done + bytes,
        totalBytes: sum(files),
      });
    if (!(await cache.hasFile(commit, file.path))) {
      await downloadBlob(cache, file, openStream, { config, onBytes: report, ...options });
      await cache.link(commit, file.path, file.hash).catch((error) => {
        throw cacheError(error, cache.folder);
      });
    }
    report(file.size);
    done += file.size;
  };
  for (const [i, file] of small.entries()) await fetchFile(file, i);
  const shards = indexed ? await indexedShards(id, cache.snapshot(commit), listed) : undefined;
  if (shards !== undefined) files = [...small, ...shards];
  await checkSpace(cache, commit, files.slice(small.length));
  for (const [i, file] of files.slice(small.length).entries()) await fetchFile(file, small.length + i);
  // Last, so that offline the revision never leads to half a model.
  await cache.setRef(revision, commit).catch((error) => {
    throw cacheError(error, cache.folder);
  });
  const folder = cache.snapshot(commit);
  return { folder: gguf ? join(folder, weights[0]!.path) : folder, from: 'hub', id, commit };
}

/** Optional: a bundler leaves it to be looked for when it is wanted, and may not find it (esbuild: for the `try`). */
async function loadHubLibrary({ importHub }: ResolveOptions): Promise<HubLibrary> {
  try {
    if (importHub !== undefined) return await importHub();
    return await import(
      /* webpackIgnore: true */ /* turbopackIgnore: true */ /* @vite-ignore */ '@huggingface/hub'
    );
  } catch (cause) {
    throw packageMissing(cause);
  }
}

interface ListedEntry {
  readonly path: string;
  readonly size: number;
  readonly oid?: string;
  readonly lfs?: { readonly oid: string; readonly size: number };
  readonly xetHash?: string;
}

function hubFile({ path, size, oid, lfs, xetHash }: ListedEntry): HubFile {
  if (lfs !== undefined)
    return { path, size: lfs.size ?? size, hash: lfs.oid.replace(/^sha256:/, ''), algorithm: 'sha256' };
  if (xetHash !== undefined) return { path, size, hash: xetHash, algorithm: undefined };
  return { path, size, hash: oid ?? '', algorithm: 'git' };
}

/** A repository's paths are joined to the cache's: none may lead out of it. */
function isSafePath(path: string): boolean {
  if (path.length === 0 || /[\\:\0]/.test(path)) return false;
  return path.split('/').every((part) => part !== '' && part !== '.' && part !== '..');
}

function selectFiles(
  id: string,
  tag: string | undefined,
  listed: ReadonlyMap<string, HubFile>,
  { textOnly = false, projector = !textOnly }: ResolveOptions,
): { small: HubFile[]; weights: HubFile[]; gguf: boolean; indexed: boolean } {
  const names = [...listed.keys()];
  const pick = (some: string[]) => some.map((name) => listed.get(name)!);
  const plain = names.some((name) => name === INDEX_NAME || name.endsWith('.safetensors'));
  if (textOnly && tag === undefined && TOKENIZER_FILES.some((name) => listed.has(name)))
    return { small: pick(names.filter(isSmallModelFile)), weights: [], gguf: false, indexed: false };
  // All that such a model needs is in its file.
  if (tag !== undefined || (!plain && names.some(isGgufName))) {
    const model = chooseGguf(id, names, tag);
    const sees = projector ? repositoryProjector(model[0]!, names) : undefined;
    const weights = pick(sees === undefined ? model : [...model, sees]);
    return { small: [], weights, gguf: true, indexed: false };
  }
  const shards = chooseShards(names.filter((name) => !name.includes('/')));
  // An index may name files in folders of their own.
  if (shards.length === 0 && !listed.has(INDEX_NAME))
    throw noWeights(id, [...names.filter(isPickleName), ...names.filter(isGgufName), ...names]);
  if (!listed.has('config.json')) {
    throw new KvantError('model-file-missing', `${id} has no config.json`, {
      kind: 'not-found',
      where: id,
      fix: 'Give a model in the transformers or MLX layout.',
    });
  }
  const small = names.filter((name) => isSmallModelFile(name) || name === INDEX_NAME);
  return { small: pick(small), weights: pick(shards), gguf: false, indexed: true };
}

/** A whole file, or the shards that the index names; a repository may hold other copies of the weights beside them. */
async function indexedShards(
  id: string,
  folder: string,
  listed: ReadonlyMap<string, HubFile>,
): Promise<HubFile[] | undefined> {
  const found = await indexedFiles(folder, listed.has(SINGLE_NAME));
  return found?.files.map((name) => {
    const file = listed.get(name);
    if (file !== undefined) return file;
    throw new KvantError(
      'weights-shard-missing',
      `the index of ${id} names ${name}, which it does not have`,
      {
        kind: 'model',
        where: id,
        fix: 'Choose another revision: this upload is not complete.',
      },
    );
  });
}

async function checkSpace(cache: HubCache, commit: string, files: readonly HubFile[]): Promise<void> {
  let needed = 0;
  for (const file of files) {
    if (await cache.hasFile(commit, file.path)) continue;
    const partial = await stat(partialOf(cache.blob(file.hash))).catch(() => undefined);
    const whole = await stat(cache.blob(file.hash)).catch(() => undefined);
    needed += file.size - (whole?.size ?? partial?.size ?? 0);
  }
  await makeFolder(cache.folder).catch((error) => {
    throw cacheError(error, cache.folder);
  });
  const { bavail, bsize } = await statfs(cache.folder);
  if (needed <= bavail * bsize) return;
  throw new KvantError(
    'disk-full',
    `the model needs ${needed} more bytes in ${cache.folder}; ${bavail * bsize} are free`,
    {
      kind: 'invalid-request',
      where: cache.folder,
      fix: 'Free some space, or set HF_HOME to a folder on another disk.',
    },
  );
}

function withFailure(stream: ReadableStream<Uint8Array>, failure: () => unknown): ReadableStream<Uint8Array> {
  const reader = stream.getReader();
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (done) controller.close();
        else controller.enqueue(value);
      } catch (error) {
        controller.error(failure() ?? error);
      }
    },
    async cancel(reason) {
      await reader.cancel(reason);
    },
  });
}

function sum(files: readonly HubFile[]): number {
  return files.reduce((total, file) => total + file.size, 0);
}

function packageMissing(cause: unknown): KvantError {
  return new KvantError('hub-package-missing', 'fetching from the hub needs the package @huggingface/hub', {
    kind: 'unsupported',
    fix: 'Run `npm install @huggingface/hub`, or give a folder with the model.',
    cause,
  });
}
