/** The folder that files of the cache lie in: made, found fit for it, or refused with the reason. */

import { constants } from 'node:fs';
import * as nodeFs from 'node:fs/promises';
import { KvantError } from '../../errors.js';
import { makeFolder } from '../../make-folder.js';
import { systemCode, systemReason } from '../../system-errors.js';
import { type DiskFs, FOLDER_MODE } from './disk-fs.js';

/** Nothing can be written for now; what is there can be read, and room may come. */
const PASSING = ['ENOSPC', 'EDQUOT', 'EIO'];
const OTHERS_WRITE = 0o022;
/** Who may write to such a folder removes and renames nobody else's files. */
const STICKY = 0o1000;

/**
 * Makes the folder and in it `own`, for one signature, where they are not there. Gives the system error code of what is in the
 * way of writing, while what the folder holds can be read: a full disk, a read-only file system. Errors:
 * `prefix-cache-dir-unusable`.
 */
export async function makeDiskFolder(folder: string, own: string, fs: DiskFs): Promise<string | null> {
  try {
    await makeFolder(folder, FOLDER_MODE, fs);
  } catch (error) {
    if (!PASSING.includes(systemCode(error))) throw unusable(folder, 'made', error);
    return systemCode(error);
  }
  try {
    await makeFolder(own, FOLDER_MODE, fs);
  } catch (error) {
    if (systemCode(error) !== 'EROFS' && !PASSING.includes(systemCode(error)))
      throw unusable(folder, 'written to', error);
    return systemCode(error);
  }
  return null;
}

/** The same, as far as it is known before a model is loaded. */
export async function checkDiskFolder(folder: string): Promise<void> {
  await makeFolder(folder, FOLDER_MODE).catch((error: unknown) => {
    if (!PASSING.includes(systemCode(error))) throw unusable(folder, 'made', error);
  });
  await access(folder, constants.R_OK | constants.X_OK, 'read');
  await access(folder, constants.W_OK, 'written to');
}

async function access(folder: string, mode: number, what: string): Promise<void> {
  await nodeFs.access(folder, mode).catch((error: unknown) => {
    if (['EACCES', 'EPERM'].includes(systemCode(error))) throw unusable(folder, what, error);
  });
}

/** Other users of the machine may put files into it. */
export async function othersWrite(folder: string): Promise<boolean> {
  if (process.platform === 'win32') return false;
  const mode = await nodeFs.stat(folder).then(
    (found) => found.mode,
    () => 0,
  );
  return (mode & OTHERS_WRITE) !== 0 && (mode & STICKY) === 0;
}

function unusable(folder: string, what: string, error: unknown): KvantError {
  const reason = systemReason(error, 'the folder above takes none');
  return new KvantError('prefix-cache-dir-unusable', `The folder ${folder} cannot be ${what}: ${reason}.`, {
    kind: 'invalid-request',
    where: 'prefixCacheDir',
    fix: 'Name a folder for the prefix cache that this user may write to, or leave the option out.',
    cause: error,
  });
}
