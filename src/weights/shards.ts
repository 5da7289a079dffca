/**
 * Which files of a folder or repository hold a model's weights: a whole one, else by the index, else by their names.
 */

import { readdir, stat } from 'node:fs/promises';
import { basename, isAbsolute, join, posix, relative, resolve } from 'node:path';
import { KvantError } from '../errors.js';
import { readOptionalJsonFile } from './folder-files.js';
import { ggufError, isGgufName, isPickleName, otherFormat, pickleError } from './foreign-formats.js';
import { ggufModels, notAlone } from './gguf-files.js';
import { modelsWithin } from './model-paths.js';

export const INDEX_NAME = 'model.safetensors.index.json';
export const SINGLE_NAME = 'model.safetensors';

/**
 * The shard of each tensor by `model.safetensors.index.json`, undefined where there is none.
 * @throws KvantError `weights-index`, `weights-pickle`, `model-file-broken`
 */
export async function readIndex(folder: string): Promise<Map<string, string> | undefined> {
  const json = await readOptionalJsonFile(folder, INDEX_NAME);
  if (json === undefined) return undefined;
  const path = join(folder, INDEX_NAME);
  const weightMap = json.weight_map;
  if (typeof weightMap !== 'object' || weightMap === null || Array.isArray(weightMap)) {
    throw indexError(path, 'it has no weight_map');
  }
  const index = new Map<string, string>();
  for (const [name, given] of Object.entries(weightMap)) {
    const shard = typeof given === 'string' ? shardPath(folder, given) : undefined;
    if (shard === undefined) {
      throw indexError(
        path,
        `${JSON.stringify(name)} is mapped to ${JSON.stringify(given)}, which is no file of the folder`,
      );
    }
    if (isPickleName(shard)) throw pickleError(join(folder, shard));
    index.set(name, shard);
  }
  if (index.size === 0) throw indexError(path, 'its weight_map is empty');
  return index;
}

/**
 * A shard's path within the folder, with `/`. Never a way out of it: a path of the machine that wrote the index is taken for
 * the file of that name beside it.
 */
function shardPath(folder: string, given: string): string | undefined {
  const slashed = given.replaceAll('\\', '/');
  if (slashed.includes('\0') || slashed.endsWith('/')) return undefined;
  if (isAbsolute(given) || /^([A-Za-z]:)?\//.test(slashed)) {
    const within = relative(resolve(folder), resolve(given)).replaceAll('\\', '/');
    return isWithin(within) ? within : basename(slashed) || undefined;
  }
  const plain = posix.normalize(slashed);
  return isWithin(plain) ? plain : undefined;
}

function isWithin(path: string): boolean {
  return path !== '' && path !== '.' && !/^\.\.(\/|$)/.test(path) && !/^([A-Za-z]:)?\//.test(path);
}

/** Files that hold a model's weights, and which of them each tensor is said to be in. */
export interface WeightFiles {
  readonly files: readonly string[];
  readonly index: ReadonlyMap<string, string> | undefined;
}

/**
 * The files by a whole `model.safetensors`, which goes before an index that does not name it: that is left over from other
 * files, whatever it says. Else by the index.
 *
 * @param whole whether `model.safetensors` is there
 * @returns undefined where there is neither
 * @throws KvantError as {@link readIndex}
 */
export async function indexedFiles(folder: string, whole: boolean): Promise<WeightFiles | undefined> {
  const index = await readIndex(folder).catch((error: unknown) => {
    if (whole) return undefined;
    throw error;
  });
  const files = index === undefined ? [] : [...new Set(index.values())].sort();
  if (whole && !files.includes(SINGLE_NAME)) return { files: [SINGLE_NAME], index: undefined };
  return index === undefined ? undefined : { files, index };
}

/**
 * The weight files of a folder. What the index names may be missing.
 * @throws KvantError `weights-none`, `weights-pickle`, `weights-gguf`, `weights-shard-missing`, and those of {@link readIndex}
 */
export async function findWeights(folder: string): Promise<WeightFiles> {
  const whole = (await stat(join(folder, SINGLE_NAME)).catch(() => undefined))?.isFile() === true;
  return (await indexedFiles(folder, whole)) ?? { files: await findShards(folder), index: undefined };
}

/**
 * The weight files among the names of a folder without an index: `model.safetensors`, or every
 * `model*.safetensors`, or every `*.safetensors` that is no adapter.
 */
export function chooseShards(names: readonly string[]): string[] {
  if (names.includes(SINGLE_NAME)) return [SINGLE_NAME];
  const shards = names.filter((name) => name.endsWith('.safetensors') && !name.startsWith('adapter')).sort();
  const models = shards.filter((name) => name.startsWith('model'));
  return models.length > 0 ? models : shards;
}

/**
 * The first file that is absent from a numbered set, such as `model-00002-of-00003.safetensors`; undefined where the
 * names are not numbered or all are there.
 */
export function absentShard(shards: readonly string[]): string | undefined {
  for (const shard of shards) {
    const [, stem, digits, count] = /^(.*-)(\d+)-of-(\d+)\.safetensors$/.exec(shard) ?? [];
    if (stem === undefined || digits === undefined || count === undefined) continue;
    for (let i = 1; i <= Math.min(Number(count), 100_000); i++) {
      const name = `${stem}${String(i).padStart(digits.length, '0')}-of-${count}.safetensors`;
      if (!shards.includes(name)) return name;
    }
    return undefined;
  }
  return undefined;
}

/**
 * The weight files of a folder without an index.
 * @throws KvantError `weights-none`, `weights-pickle`, `weights-gguf`, `weights-shard-missing`
 */
async function findShards(folder: string): Promise<string[]> {
  const names = await readdir(folder);
  const shards = chooseShards(names);
  if (shards.length === 0) throw noWeights(folder, names.sort(), await modelsWithin(folder));
  const absent = absentShard(shards);
  if (absent !== undefined)
    throw shardMissing(folder, absent, `the other files of ${folder} belong to a set`);
  return shards;
}

/**
 * Says why a folder or repository without safetensors files has nothing to load.
 * @param where the folder or the hub id
 * @param models folders of models that lie in it
 */
export function noWeights(
  where: string,
  names: readonly string[],
  models: readonly string[] = [],
): KvantError {
  const pickle = names.find(isPickleName);
  if (pickle !== undefined) return pickleError(join(where, pickle));
  const gguf = ggufModels(names)[0];
  if (gguf !== undefined) return ggufError(join(where, gguf));
  const part = names.find(isGgufName);
  if (part !== undefined) return notAlone(join(where, part));
  const adapter = names.some((name) => name.startsWith('adapter') && name.endsWith('.safetensors'));
  const other = otherFormat(names);
  const none = `${where} holds no *.safetensors or *.gguf file`;
  return new KvantError(
    'weights-none',
    adapter
      ? `${where} holds an adapter, not a model`
      : other === undefined
        ? none
        : `${none}: ${other.name} is ${other.format}, which is not read`,
    {
      kind: 'not-found',
      where,
      fix: adapter
        ? 'Give the base model, or merge the adapter into it first.'
        : models.length > 0
          ? `Give a model that lies in it: ${models.join(', ')}.`
          : 'Give the folder that holds config.json and the *.safetensors files of a model, or a *.gguf file.',
    },
  );
}

/** @param reason says who expects the shard */
export function shardMissing(folder: string, name: string, reason: string, cause?: unknown): KvantError {
  return new KvantError('weights-shard-missing', `${folder} does not have ${name}: ${reason}`, {
    kind: 'not-found',
    where: join(folder, name),
    fix: `Fetch ${name}: the download of the model was not finished.`,
    ...(cause === undefined ? {} : { cause }),
  });
}

export function indexError(path: string, what: string): KvantError {
  return new KvantError('weights-index', `${path} does not fit the shards: ${what}`, {
    kind: 'model',
    where: path,
    fix: 'Fetch the index and the shards again, from one revision of the model.',
  });
}
