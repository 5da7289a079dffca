/**
 * Makes a folder and those above it.
 *
 * Not by `mkdir(…, { recursive: true })`: where a folder cannot be made although the one above it is there (`/proc/x`),
 * Node 20 tries for ever, and of a read-only place it says that it does not exist.
 */

import * as nodeFs from 'node:fs/promises';
import { dirname, resolve } from 'node:path';

/** What is asked of the file system: a part of node:fs/promises. */
export interface FolderFs {
  mkdir(path: string, options: { readonly mode: number }): Promise<unknown>;
  stat(path: string): Promise<{ isDirectory(): boolean }>;
}

/**
 * Resolves when the folder is there, whether made now or before. `mode`: permissions of the folders that are made now; those
 * that were there keep theirs.
 *
 * Errors: the file system's own; where a file has the place of a folder `ENOTDIR`, with that file's path as `file`.
 *
 * @example
 * await makeFolder('/var/cache/kvant/prefixes', 0o700);
 */
export async function makeFolder(path: string, mode = 0o777, fs: FolderFs = nodeFs): Promise<void> {
  const missing: string[] = [];
  let at = resolve(path);
  for (; !(await make(at, mode, fs)); at = dirname(at)) missing.push(at);
  // Each is tried once more: below a folder that is there, what cannot be made is an error.
  for (const folder of missing.reverse())
    if (!(await make(folder, mode, fs))) {
      const error = new Error(`ENOENT: no such file or directory, mkdir '${folder}'`);
      throw Object.assign(error, { code: 'ENOENT', syscall: 'mkdir', path: folder });
    }
}

/** With these a system may answer of what is there already. */
const THERE = ['EEXIST', 'EISDIR', 'EACCES', 'EPERM', 'EROFS'];

/** True where the folder is there; false where what is above it may be missing. */
async function make(path: string, mode: number, fs: FolderFs): Promise<boolean> {
  try {
    await fs.mkdir(path, { mode });
    return true;
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'ENOENT' && dirname(path) !== path) return false;
    if (code === 'ENOTDIR') throw notFolder(path, await fileAbove(path, fs), error);
    if (code === undefined || !THERE.includes(code)) throw error;
    const found = await fs.stat(path).catch((why: unknown) => why as NodeJS.ErrnoException);
    if ('isDirectory' in found) {
      if (found.isDirectory()) return true;
      throw notFolder(path, path, error);
    }
    // A name that is there and leads nowhere: a link to nothing, links in a circle.
    throw code === 'EEXIST' ? found : error;
  }
}

/** The file on the way to a path. */
async function fileAbove(path: string, fs: FolderFs): Promise<string> {
  let at = dirname(path);
  while (dirname(at) !== at && !(await fs.stat(at).catch(() => null))) at = dirname(at);
  return at;
}

function notFolder(path: string, file: string, cause: unknown): Error {
  const error = new Error(`ENOTDIR: not a directory, mkdir '${path}'`, { cause });
  return Object.assign(error, { code: 'ENOTDIR', syscall: 'mkdir', path, file });
}
