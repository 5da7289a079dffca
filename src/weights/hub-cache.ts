/**
 * The Hugging Face cache on disk: `models--org--name/` with `blobs/` (contents by hash), `snapshots/<commit>/`
 * (symbolic links into the blobs) and `refs/<revision>` (the commit a branch or tag stood at).
 */

import { copyFile, mkdir, readdir, readFile, rename, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { chooseShards, readIndex } from './checkpoint.js';

export const COMMIT = /^[0-9a-f]{40}$/;

/** The cache of one model. */
export class HubCache {
  readonly folder: string;

  /** @param id `org/name` */
  constructor(cacheFolder: string, id: string) {
    this.folder = join(cacheFolder, `models--${id.replaceAll('/', '--')}`);
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

  /** Notes what a revision stands at; by rename, as another process may read it. */
  async setRef(revision: string, commit: string): Promise<void> {
    if (COMMIT.test(revision)) return;
    const path = join(this.folder, 'refs', revision);
    await mkdir(dirname(path), { recursive: true });
    const temp = `${path}.${process.pid}.tmp`;
    await writeFile(temp, commit);
    await rename(temp, path);
  }

  /** The folder of a snapshot with its config and all of its weights, undefined where something is missing. */
  async complete(commit: string): Promise<string | undefined> {
    const folder = this.snapshot(commit);
    if (!(await exists(join(folder, 'config.json')))) return undefined;
    // A broken index is for the loader to report, not a reason to fetch or not to fetch.
    const index = await readIndex(folder).catch(() => undefined);
    const shards = index === undefined ? chooseShards(await readdir(folder)) : [...new Set(index.values())];
    if (shards.length === 0) return undefined;
    for (const shard of shards) if (!(await exists(join(folder, shard)))) return undefined;
    return folder;
  }

  /** True where the snapshot has a file, contents and all. */
  async hasFile(commit: string, path: string): Promise<boolean> {
    return await exists(join(this.snapshot(commit), path));
  }

  /** Puts a blob into a snapshot under its path: a relative link, so that the cache can be moved, or a copy. */
  async link(commit: string, path: string, hash: string): Promise<void> {
    const pointer = join(this.snapshot(commit), path);
    await mkdir(dirname(pointer), { recursive: true });
    const target = this.blob(hash);
    const temp = `${pointer}.${process.pid}.tmp`;
    await rm(temp, { force: true });
    try {
      await symlink(relative(dirname(pointer), target), temp);
    } catch {
      // Windows without the privilege, or a file system without links.
      await copyFile(target, temp);
    }
    await rename(temp, pointer);
  }
}

/** True where a path leads to something, links followed. */
export async function exists(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined)) !== undefined;
}
