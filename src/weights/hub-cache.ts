/**
 * The Hugging Face cache on disk: `models--org--name/` with `blobs/` (contents by hash), `snapshots/<commit>/`
 * (symbolic links into the blobs) and `refs/<revision>` (the commit a branch or tag stood at).
 */

import { readdir, readFile, rename, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { makeFolder } from '../make-folder.js';
import { TOKENIZER_FILES } from './folder-files.js';
import { chooseGguf, ggufModels, taggedModels } from './gguf-files.js';
import { absentShard, chooseShards, findWeights } from './shards.js';

export const COMMIT = /^[0-9a-f]{40}$/;

/** The cache of one model. */
export class HubCache {
  readonly folder: string;
  readonly #symlink: typeof symlink;

  /**
   * @param id `org/name`
   * @param makeLink for tests: makes symbolic links
   */
  constructor(cacheFolder: string, id: string, makeLink: typeof symlink = symlink) {
    this.folder = join(cacheFolder, `models--${id.replaceAll('/', '--')}`);
    this.#symlink = makeLink;
  }

  snapshot(commit: string): string {
    return join(this.folder, 'snapshots', commit);
  }

  blob(hash: string): string {
    return join(this.folder, 'blobs', hash);
  }

  /** The commit last seen for a revision, undefined where none was. */
  async commitOf(revision: string): Promise<string | undefined> {
    if (COMMIT.test(revision)) return revision;
    const text = await readFile(join(this.folder, 'refs', revision), 'utf8').catch(() => undefined);
    const commit = text?.trim();
    return commit !== undefined && COMMIT.test(commit) ? commit : undefined;
  }

  /**
   * Notes what a revision stands at; by rename, as another process may read it. Where it is noted already nothing is
   * written: a cache may be shared and read-only.
   */
  async setRef(revision: string, commit: string): Promise<void> {
    if ((await this.commitOf(revision)) === commit) return;
    const path = join(this.folder, 'refs', revision);
    await makeFolder(dirname(path));
    const temp = `${path}.${process.pid}.tmp`;
    await writeFile(temp, commit);
    await rename(temp, path);
  }

  /**
   * The folder of a snapshot with its config and all of its weights, undefined where something is missing.
   *
   * Other tools fetch files in any order, or only some: a snapshot may lack its index or its tokenizer.
   */
  async complete(commit: string): Promise<string | undefined> {
    const folder = this.snapshot(commit);
    if (!(await exists(join(folder, 'config.json')))) return undefined;
    // A broken index is for the loader to report, not a reason to fetch or not to fetch.
    const found = await findWeights(folder).catch(() => undefined);
    const shards = found?.files ?? chooseShards(await readdir(folder));
    if (shards.length === 0 || absentShard(shards) !== undefined) return undefined;
    for (const shard of shards) if (!(await exists(join(folder, shard)))) return undefined;
    return folder;
  }

  /** The folder of a snapshot with a tokenizer, whether or not its weights are there. */
  async withText(commit: string): Promise<string | undefined> {
    return (await this.hasTokenizer(commit)) ? this.snapshot(commit) : undefined;
  }

  /** True where the snapshot has files that a tokenizer is read from. */
  async hasTokenizer(commit: string): Promise<boolean> {
    for (const name of TOKENIZER_FILES) if (await this.hasFile(commit, name)) return true;
    return false;
  }

  /**
   * The file of a snapshot that a tag asks for (gguf-files.ts), with all of its set; undefined where something is missing. Without a tag the
   * only one there, of a snapshot that has no other weights.
   */
  async completeGguf(commit: string, tag?: string): Promise<string | undefined> {
    const folder = this.snapshot(commit);
    const names = await readdir(folder, { recursive: true }).catch(() => []);
    const paths = names.map((name) => name.replaceAll('\\', '/'));
    const found = taggedModels(ggufModels(paths), tag);
    const others = tag === undefined && paths.some((name) => /\.safetensors(\.index\.json)?$/.test(name));
    if (found.length !== 1 || others) return undefined;
    const files = chooseGguf(this.folder, paths, tag);
    const count = Number(/-of-(\d{5})\.gguf$/i.exec(files[0]!)?.[1] ?? 1);
    if (files.length !== count) return undefined;
    for (const file of files) if (!(await exists(join(folder, file)))) return undefined;
    return join(folder, files[0]!);
  }

  /** True where the snapshot has a file, contents and all. */
  async hasFile(commit: string, path: string): Promise<boolean> {
    return await exists(join(this.snapshot(commit), path));
  }

  /**
   * Puts a blob into a snapshot under its path: a relative link, so that the cache can be moved. Where links cannot be
   * made (Windows without the privilege, some file systems) the file itself goes there, as Python's huggingface_hub
   * does it: a copy would take twice the room.
   */
  async link(commit: string, path: string, hash: string): Promise<void> {
    const pointer = join(this.snapshot(commit), path);
    await makeFolder(dirname(pointer));
    const target = this.blob(hash);
    const temp = `${pointer}.${process.pid}.tmp`;
    await rm(temp, { force: true });
    try {
      await this.#symlink(relative(dirname(pointer), target), temp);
    } catch {
      // Another process that waited for the same blob may have been quicker.
      return await rename(target, pointer).catch(async (error) => {
        if (!(await exists(pointer))) throw error;
      });
    }
    await rename(temp, pointer);
  }
}

/** True where a path leads to something, links followed. */
export async function exists(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined)) !== undefined;
}
