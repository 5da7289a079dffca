/** Files that a command writes its result to: tried before the work begins, so that hours of it are not lost in the end. */
import { constants } from 'node:fs';
import { access, open, realpath, stat, unlink, writeFile } from 'node:fs/promises';
import { KvantError } from '../errors.js';
import { makeFolder } from '../make-folder.js';
import { systemCode, systemReason } from '../system-errors.js';

/** The flags that name what is written. */
export interface OutputFlags {
  readonly out?: string;
  readonly plot?: string;
  /** A folder: it is made. */
  readonly plots?: string;
}

/** Sees that what the flags name can be written to; a file that is there stays as it is. Errors: `file-not-writable`. */
export async function checkOutputs({ out, plot, plots }: OutputFlags): Promise<void> {
  if (out !== undefined) await tryFile('--out', out);
  if (plot !== undefined) await tryFile('--plot', plot);
  if (plots !== undefined) await reporting('--plots', plots, () => makeFolder(plots));
}

/** Errors: `file-not-writable`, naming the flag. */
export async function writeOutput(flag: string, path: string, text: string): Promise<void> {
  await reporting(flag, path, () => writeFile(path, text));
}

async function tryFile(flag: string, path: string): Promise<void> {
  await reporting(flag, path, async () => {
    const found = await stat(path).catch((error: unknown) => {
      if (systemCode(error) === 'ENOENT') return null;
      throw error;
    });
    if (found?.isDirectory()) throw Object.assign(new Error('EISDIR'), { code: 'EISDIR' });
    if (found !== null) return access(path, constants.W_OK);
    // Only making it tells. The name may be a link, which stays.
    await (await open(path, 'a')).close();
    await unlink(await realpath(path));
  });
}

async function reporting(flag: string, path: string, work: () => Promise<unknown>): Promise<void> {
  try {
    await work();
  } catch (cause) {
    const reason = systemReason(cause, 'there is no such folder');
    throw new KvantError('file-not-writable', `${flag}: ${path} cannot be written: ${reason}.`, {
      kind: 'invalid-request',
      where: flag,
      fix: 'Name a place in a folder that is there and that this user may write to.',
      cause,
    });
  }
}
