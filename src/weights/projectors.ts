/**
 * Which mmproj file sees for a GGUF model: what lies beside it, in the hub's cache also above it, and with Ollama the layer of the model's
 * manifest.
 *
 * Source of the order between several: what llama.cpp fetches with a model of the hub (common/download.cpp): the nearest folder, then the
 * type whose bits are nearest to the model's, then the first name. A folder of one's own may hold several models: there names count first.
 */

import { readdir } from 'node:fs/promises';
import { basename, dirname, join, posix } from 'node:path';
import { KvantError } from '../errors.js';
import { isGgufName } from './foreign-formats.js';
import { GgufFile } from './gguf.js';
import { ggufTag } from './gguf-files.js';
import { isGgufFile } from './gguf-path.js';
import { holdsSight } from './ollama-sight.js';
import { ollamaProjector } from './ollama-store.js';

const PROJECTOR = /(^|[._-])mm[_-]?proj/i;
/** A hub cache's folder of one commit. */
const SNAPSHOT = /^(.*[\\/]snapshots[\\/][0-9a-f]{40})[\\/]/;

export interface ChosenProjector {
  readonly path: string;
  /** It was asked for. Else it lies beside the model. */
  readonly given: boolean;
  /** Names of others that were passed over for it. */
  readonly others: readonly string[];
}

/**
 * What sees for a GGUF model: the file that was given, else the best of those beside it.
 * @throws KvantError `weights-missing` where a given one is not there
 */
export async function chooseProjector(model: string, given?: string): Promise<ChosenProjector | undefined> {
  if (given !== undefined) {
    if (await isGgufFile(given)) return { path: given, given: true, others: [] };
    throw new KvantError('weights-missing', `${given} is no GGUF file`, {
      kind: 'not-found',
      where: given,
      fix: 'Give the path of an mmproj file, as it is published beside the GGUF model.',
    });
  }
  for (const folder of foldersOf(model)) {
    const [best, ...others] = byPreference(model, await readdir(folder).catch(() => []));
    if (best !== undefined) return { path: join(folder, best), given: false, others };
  }
  const layer = await ollamaProjector(model);
  if (layer !== undefined) return { path: layer, given: false, others: [] };
  return (await seesItself(model)) ? { path: model, given: false, others: [] } : undefined;
}

/** Whether a file holds a model and what sees for it; what cannot be read is told elsewhere. */
async function seesItself(model: string): Promise<boolean> {
  try {
    await using file = await GgufFile.open(model);
    return holdsSight(file.metadata, (name) => file.tensors.get(name)?.shape);
  } catch (error) {
    if (error instanceof KvantError) return false;
    throw error;
  }
}

/**
 * The mmproj file of a repository that goes with one of its models.
 * @param names all paths of the repository, with slashes
 * @example repositoryProjector('Q4_K_M/m.gguf', ['Q4_K_M/m.gguf', 'mmproj-F16.gguf']) // 'mmproj-F16.gguf'
 */
export function repositoryProjector(model: string, names: readonly string[]): string | undefined {
  for (let folder = posix.dirname(model); ; folder = posix.dirname(folder)) {
    const [best] = byPreference(
      model,
      names.filter((name) => posix.dirname(name) === folder),
    );
    if (best !== undefined || folder === '.') return best;
  }
}

/** The model's own folder; in the hub's cache those above it as well, up to the commit's. */
function foldersOf(model: string): string[] {
  const folders = [dirname(model)];
  const snapshot = SNAPSHOT.exec(model)?.[1];
  while (snapshot !== undefined && folders.at(-1)!.length > snapshot.length)
    folders.push(dirname(folders.at(-1)!));
  return folders;
}

function byPreference(model: string, names: readonly string[]): string[] {
  const bits = bitsOf(model);
  const rank = (name: string): number => (namedFor(name, model) ? 0 : stemOf(name) === '' ? 1 : 2);
  return names
    .filter((name) => isGgufName(name) && PROJECTOR.test(basename(name)))
    .sort()
    .map((name) => ({ name, rank: rank(name), far: Math.abs(bitsOf(name) - bits) }))
    .sort((a, b) => a.rank - b.rank || a.far - b.far)
    .map(({ name }) => name);
}

/** Of `Q4_K_M`, `BF16`, `UD-IQ3_XXS`: the first number. */
function bitsOf(name: string): number {
  return Number(/\d+/.exec(/(?:^|[-.])([^-.]*)$/.exec(ggufTag(name))![1]!)?.[0] ?? 0);
}

/** Which model it is for, by its name: nothing for `mmproj-F16.gguf` and `mmproj-model-f16.gguf`. */
function stemOf(name: string): string {
  const stem = basename(name).replace(/\.gguf$/i, '');
  const tag = ggufTag(name);
  const untyped = tag === stem ? stem : stem.slice(0, -tag.length);
  return letters(untyped.replace(PROJECTOR, '')).replace(/^model$/, '');
}

function namedFor(name: string, model: string): boolean {
  const stem = stemOf(name);
  return stem !== '' && letters(basename(model)).includes(stem);
}

const letters = (text: string): string => text.toLowerCase().replace(/[^\p{L}\p{N}]/gu, '');
