/** Whether a path leads to a GGUF file: by its name, or by its first bytes, for some stores give files no names. */

import { open, stat } from 'node:fs/promises';
import { isGgufName } from './foreign-formats.js';

/**
 * True for a file named `*.gguf`, there or not, for what is wrong with it is for its reader to say; and for one of any name that begins
 * as such files do.
 */
export async function isGgufFile(path: string): Promise<boolean> {
  const found = await stat(path).catch(() => undefined);
  if (isGgufName(path)) return found?.isDirectory() !== true;
  // Nothing else is opened: a pipe would wait for its writer.
  if (found?.isFile() !== true) return false;
  const file = await open(path, 'r').catch(() => undefined);
  if (file === undefined) return false;
  try {
    const head = Buffer.alloc(4);
    const { bytesRead } = await file.read(head, 0, 4, 0);
    return bytesRead === 4 && head.toString('latin1') === 'GGUF';
  } catch {
    return false;
  } finally {
    await file.close();
  }
}
