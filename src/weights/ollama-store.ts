/**
 * Ollama's models: `manifests/HOST/NAMESPACE/NAME/TAG`, JSON that lists layers, each a file of `blobs/` by its digest. The layer of the
 * weights is a GGUF file without a name.
 *
 * Source: what Ollama writes (server/manifest.go, types/model/name.go).
 */

import { readdir, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { KvantError } from '../errors.js';
import type { Environment } from './environment.js';
import { readJsonFile } from './folder-files.js';
import { isGgufFile } from './gguf-path.js';
import { expandHome, isFolder } from './model-paths.js';
import { namesIn, notStored, pathWithin } from './store-folders.js';

const HOST = 'registry.ollama.ai';
const NAMESPACE = 'library';
const TAG = 'latest';
const LAYER = 'application/vnd.ollama.image.';
const DIGEST = /^sha256[:-]([0-9a-f]{64})$/;
/** Between `sha256` and the digest in the name of a blob: older versions wrote a colon. */
const MARKS = ['-', ':'];
/** A part of a name; a host may have a port. */
const PART = /^[\w-][\w.-]{0,127}(:\d{1,5})?$/;
const MOST_LISTED = 200;

/**
 * The GGUF file of a model.
 *
 * @param name `llama3.2`, `llama3.2:1b`, `someone/model:tag`, `hf.co/org/repo:Q4_K_M`
 * @throws KvantError `model-not-found`, `model-file-broken`, `weights-missing`, `model-config-unsupported`
 */
export async function ollamaModel(name: string, env: Environment, home: string): Promise<string> {
  const folders = ollamaFolders(env, home);
  const parts = nameParts(name);
  for (const folder of parts === undefined ? [] : folders) {
    const manifest = await pathWithin(join(folder, 'manifests'), parts!);
    if (manifest !== undefined && (await stat(manifest)).isFile()) return await weightsOf(manifest, folder);
  }
  const known = (await Promise.all(folders.map(ollamaModels))).flat();
  throw notStored({
    store: 'Ollama',
    prefix: 'ollama',
    name,
    folders,
    known,
    advice: `\`ollama pull ${name === '' ? 'llama3.2' : name}\` fetches one; OLLAMA_MODELS names another folder.`,
  });
}

/** The models of a folder as one would type them, sorted. */
export async function ollamaModels(folder: string): Promise<string[]> {
  const found: string[] = [];
  const root = join(folder, 'manifests');
  for (const host of await namesIn(root))
    for (const space of await namesIn(join(root, host)))
      for (const model of await namesIn(join(root, host, space)))
        for (const tag of await namesIn(join(root, host, space, model))) {
          const place = host !== HOST ? `${host}/${space}/` : space === NAMESPACE ? '' : `${space}/`;
          if (found.length < MOST_LISTED) found.push(`${place}${model}${tag === TAG ? '' : `:${tag}`}`);
        }
  return found.sort();
}

/** Where Ollama keeps models: as it was told, else at home, and as a service of Linux. */
export function ollamaFolders(env: Environment, home: string): string[] {
  const told = env.OLLAMA_MODELS?.trim().replace(/^(["'])(.*)\1$/, '$2');
  if (told !== undefined && told !== '') return [expandHome(told)];
  const own = join(home, '.ollama', 'models');
  return process.platform === 'linux' ? [own, '/usr/share/ollama/.ollama/models'] : [own];
}

/** Host, namespace, name and tag; undefined for what is no name. */
function nameParts(text: string): string[] | undefined {
  const [, path = '', tag = TAG] = /^(.*?)(?::([^:/]*))?$/.exec(text) ?? [];
  const given = path.split('/');
  const parts = [...[HOST, NAMESPACE].slice(0, Math.max(0, 3 - given.length)), ...given, tag];
  return parts.length === 4 && parts.every((part) => PART.test(part)) ? parts : undefined;
}

/**
 * What sees for a model whose file is one of Ollama's blobs: a layer of the manifest that names it.
 * @returns undefined for a file elsewhere, and for a model that does not see
 */
export async function ollamaProjector(blob: string): Promise<string | undefined> {
  const hex = DIGEST.exec(basename(blob))?.[1];
  const blobs = dirname(blob);
  if (hex === undefined || basename(blobs) !== 'blobs') return undefined;
  const root = join(dirname(blobs), 'manifests');
  for (const name of (await readdir(root, { recursive: true }).catch(() => [])).sort()) {
    // Folders and broken files name nothing.
    const digests = await layersOf(join(root, name)).catch(() => undefined);
    if (DIGEST.exec(digests?.('model')[0] ?? '')?.[1] !== hex) continue;
    const projector = DIGEST.exec(digests!('projector')[0] ?? '')?.[1];
    for (const mark of projector === undefined ? [] : MARKS) {
      const path = join(blobs, `sha256${mark}${projector}`);
      if (await isGgufFile(path)) return path;
    }
  }
  return undefined;
}

/** The digests of a manifest's layers by their kind. */
async function layersOf(manifest: string): Promise<(kind: string) => string[]> {
  const { layers } = await readJsonFile(dirname(manifest), basename(manifest));
  const found = Array.isArray(layers) ? layers : [];
  return (kind) =>
    found.flatMap((layer: { mediaType?: unknown; digest?: unknown } | null) =>
      layer?.mediaType === LAYER + kind && typeof layer.digest === 'string' ? [layer.digest] : [],
    );
}

async function weightsOf(manifest: string, folder: string): Promise<string> {
  const digests = await layersOf(manifest);
  if (digests('adapter').length > 0) throw unsupported(manifest, 'an adapter over a model');
  if (digests('tensor').length > 0) throw unsupported(manifest, 'tensors in files of their own');
  const [digest, ...others] = digests('model');
  if (others.length > 0) throw unsupported(manifest, 'weights in several files');
  const hex = DIGEST.exec(digest ?? '')?.[1];
  if (hex === undefined) throw unsupported(manifest, 'no weights on this machine');
  for (const mark of MARKS) {
    const blob = join(folder, 'blobs', `sha256${mark}${hex}`);
    if (await isGgufFile(blob)) return blob;
    if (await isFolder(blob)) break;
    if ((await stat(blob).catch(() => undefined)) !== undefined)
      throw unsupported(manifest, 'weights that are no GGUF file');
  }
  throw new KvantError('weights-missing', `${manifest} names sha256-${hex}, which ${folder}/blobs lacks`, {
    kind: 'not-found',
    where: manifest,
    fix: 'The download was not finished: run `ollama pull` again.',
  });
}

function unsupported(manifest: string, what: string): KvantError {
  return new KvantError('model-config-unsupported', `the model of ${manifest} has ${what}`, {
    kind: 'unsupported',
    where: manifest,
    fix: 'Take a model that is one GGUF file, or its safetensors version.',
  });
}
