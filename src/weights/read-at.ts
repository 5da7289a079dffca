/** Reading of weight files by position: what is asked for, in full, and nothing else. */

import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { KvantError } from '../errors.js';

/** One `read` takes at most this much: the system call is limited to 2 GiB. */
const MAX_READ_BYTES = 1 << 30;

/** A tensor's place in a file, in bytes. */
interface Place {
  readonly name: string;
  /** From the start of the file. May be far over 4 GiB. */
  readonly start: number;
  readonly byteLength: number;
}

/** Opens a file for reading, and never waits: a pipe would, for its writer. Windows has no such flag, and no such pipes in folders. */
export function openToRead(path: string): Promise<FileHandle> {
  return open(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
}

/**
 * Fills `target` with the bytes of the file from `position` on. `path` names the file in errors.
 * @throws KvantError `weights-truncated` where the file ends before
 */
export async function readFully(
  handle: FileHandle,
  target: Uint8Array,
  position: number,
  path: string,
): Promise<void> {
  let done = 0;
  while (done < target.byteLength) {
    const length = Math.min(target.byteLength - done, MAX_READ_BYTES);
    const { bytesRead } = await handle.read(target, done, length, position + done);
    if (bytesRead === 0) throw truncated(path, `it ends at byte ${position + done}`);
    done += bytesRead;
  }
}

/**
 * Fills `target` with a tensor's bytes from `offset` on (bytes from the tensor's start).
 * @throws RangeError for bytes that are not the tensor's; KvantError as {@link readFully}
 */
export async function readTensor(
  handle: FileHandle,
  { name, start, byteLength }: Place,
  offset: number,
  target: Uint8Array,
  path: string,
): Promise<void> {
  if (offset < 0 || offset + target.byteLength > byteLength)
    throw new RangeError(
      `bytes ${offset}..${offset + target.byteLength} of ${name}, which has ${byteLength}`,
    );
  await readFully(handle, target, start + offset, path);
}

/** The error for a file that lacks bytes. */
export function truncated(path: string, what: string): KvantError {
  return new KvantError('weights-truncated', `${path} is cut short: ${what}`, {
    kind: 'model',
    where: path,
    fix: 'The download or copy was not finished: fetch the file again.',
  });
}
