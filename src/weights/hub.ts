/**
 * Turns a model argument into a folder or a GGUF file: what lies on this machine (local-model.ts) as it is, or a hub id
 * (`org/name[:tag][@revision]`, also behind `hf:`) fetched into the standard Hugging Face cache. A tag asks for a GGUF file
 * (gguf-files.ts).
 *
 * `@huggingface/hub` finds the commit, lists the files and opens their streams. It overwrites a partial file, and
 * reports no progress and no hash, so the rest is done here: resuming, checking, the cache's layout.
 */

import { stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { KvantError } from '../errors.js';
import { makeFolder } from '../make-folder.js';
import type { Environment } from './environment.js';
import { isSmallModelFile } from './folder-files.js';
import { isGgufName, isPickleName } from './foreign-formats.js';
import { chooseGguf } from './gguf-files.js';
import { HubCache } from './hub-cache.js';
import { type HubConfig, hubConfig } from './hub-config.js';
import { cacheError, downloadBlob, type HubFile, partialOf } from './hub-download.js';
import { createHubFetch } from './hub-fetch.js';
import { localModel } from './local-model.js';
import { expandHome, hasParent, isPath, modelOfFile, nearbyModels } from './model-paths.js';
import { storedAs } from './model-stores.js';
import { chooseShards, INDEX_NAME, indexedFiles, noWeights, SINGLE_NAME } from './shards.js';

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

/** A hub id taken apart. */
export interface HubId {
  readonly id: string;
  readonly revision: string;
  /** Which GGUF file. */
  readonly tag?: string;
}

type HubLibrary = Pick<typeof import('@huggingface/hub'), 'modelInfo' | 'listFiles' | 'downloadFile'>;

/** What says that a name is one on the hub: `hf:org/name`. */
const HUB_PREFIX = /^(?:hf:(?:\/\/)?|(?:hf\.co|huggingface\.co)\/(?=[^/]+\/))/i;

/** @returns undefined where the text is no hub id */
export function parseHubId(text: string): HubId | undefined {
  const match = /^([\w.-]{1,96}\/[\w.-]{1,96})(?::([\w.-]{1,64}))?(?:@([\w./-]{1,255}))?$/.exec(text);
  const [, id, tag, revision = 'main'] = match ?? [];
  // The hub keeps these names for itself.
  if (id !== undefined && /^(models|datasets|spaces|api)\//.test(id)) return undefined;
  if (id === undefined || /(^|\/)\.|\.\.|--/.test(id) || /(^|\/)\.\.?(\/|$)|^\/|\/$/.test(revision))
    return undefined;
  return { id, revision, ...(tag !== undefined && { tag }) };
}

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
  const cached =
    known === undefined
      ? undefined
      : hubId.tag === undefined
        ? options.textOnly
          ? await cache.withText(known)
          : ((await cache.complete(known)) ?? (await cache.completeGguf(known)))
        : await cache.completeGguf(known, hubId.tag);
  // `mine/demo-tex` beside a folder `mine` is a path that leads nowhere, though it may be a name on the hub as well.
  if (cached === undefined && argument === hubId.id && text === argument && (await hasParent(path)))
    throw await notAModel(text, path, options.env);
  const fromCache = (notice?: string): ResolvedModel => ({
    folder: cached!,
    from: 'cache',
    id: hubId.id,
    commit: known!,
    ...(notice === undefined ? {} : { notice }),
  });
  // A commit never changes; anything else is looked up, unless told not to.
  const pinned =
    known === hubId.revision && (hubId.tag !== undefined || (await cache.hasFile(known, 'tokenizer.json')));
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

async function fetchModel(
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

  const { small, weights, gguf, indexed } = selectFiles(id, tag, listed, options.textOnly);
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
  textOnly = false,
): { small: HubFile[]; weights: HubFile[]; gguf: boolean; indexed: boolean } {
  const names = [...listed.keys()];
  const pick = (some: string[]) => some.map((name) => listed.get(name)!);
  const plain = names.some((name) => name === INDEX_NAME || name.endsWith('.safetensors'));
  if (textOnly && tag === undefined && listed.has('tokenizer.json'))
    return { small: pick(names.filter(isSmallModelFile)), weights: [], gguf: false, indexed: false };
  // All that such a model needs is in its file.
  if (tag !== undefined || (!plain && names.some(isGgufName)))
    return { small: [], weights: pick(chooseGguf(id, names, tag)), gguf: true, indexed: false };
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

const GIVE_A_MODEL =
  'Give a folder with config.json and *.safetensors files, a *.gguf file, a hub id such as Qwen/Qwen3-0.6B, Qwen/Qwen3-0.6B@main or, for a GGUF file, org/name:Q4_K_M; or a name such as ollama:llama3.2:1b or lmstudio:publisher/repo.';

async function isAFile(argument: string, path: string): Promise<KvantError> {
  const folder = await modelOfFile(path);
  return new KvantError('model-not-found', `${argument} is a file, and no GGUF file`, {
    kind: 'not-found',
    where: argument,
    fix: folder !== undefined ? `Give the folder of the model: ${folder}` : GIVE_A_MODEL,
  });
}

/** @param path the argument as a path */
async function notAModel(argument: string, path: string, env?: Environment): Promise<KvantError> {
  const onHub = /^https?:\/\/(?:www\.)?(?:huggingface\.co|hf\.co)\/([\w.-]+\/[\w.-]+)/.exec(argument)?.[1];
  const hubId = isPath(argument) ? undefined : parseHubId(argument);
  const stored = isPath(argument) ? undefined : await storedAs(argument, env);
  const near = onHub === undefined && stored === undefined ? await nearbyModels(path) : [];
  const fixes = [
    ...(onHub === undefined ? [] : [`Give the name alone: ${onHub}`]),
    ...(stored === undefined ? [] : [`Did you mean ${stored}?`]),
    ...(near.length === 1 ? [`Did you mean ${near[0]}?`] : []),
    ...(near.length > 1 ? [`These are there: ${near.join(', ')}.`] : []),
    ...(hubId === undefined
      ? []
      : [
          `For a model of that name on the hub write ${hubId.id}${hubId.tag === undefined ? '' : `:${hubId.tag}`}@${hubId.revision}`,
        ]),
  ];
  const what = `there is no folder ${JSON.stringify(argument)}`;
  // Of what is written as a path, or nearly so, nobody asks whether it is a name on the hub.
  const plain = isPath(argument) || hubId !== undefined || near.length === 1;
  const neither = plain ? what : `${what}, and it is not a hub id`;
  return new KvantError('model-not-found', neither, {
    kind: 'not-found',
    where: argument,
    fix: fixes.length === 0 ? GIVE_A_MODEL : fixes.join(' '),
  });
}

function offlineError({ id, revision }: HubId, config: HubConfig, partly: boolean): KvantError {
  const what = partly ? 'is only partly' : 'is not';
  return new KvantError(
    'hub-offline',
    `${id}@${revision} ${what} in ${config.cacheFolder}, and offline mode is on`,
    {
      kind: 'not-found',
      where: id,
      fix: 'Unset HF_HUB_OFFLINE once to fetch it (`kvant pull`), or give a folder with the model.',
    },
  );
}

function packageMissing(cause: unknown): KvantError {
  return new KvantError('hub-package-missing', 'fetching from the hub needs the package @huggingface/hub', {
    kind: 'unsupported',
    fix: 'Run `npm install @huggingface/hub`, or give a folder with the model.',
    cause,
  });
}
