/** A lock between processes: a file that its holder touches now and then, and that goes stale when it stops. */

import { open, rm, stat, utimes } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';

const TOUCH_MS = 2_000;
const STALE_MS = 15_000;
const POLL_MS = 100;

/**
 * Runs `work` while holding the lock, waiting for another holder as long as it lives.
 * @throws what `work` throws; the signal's reason where it fires while waiting
 */
export async function withFileLock<T>(
  path: string,
  signal: AbortSignal | undefined,
  work: () => Promise<T>,
): Promise<T> {
  for (;;) {
    signal?.throwIfAborted();
    try {
      const handle = await open(path, 'wx');
      await handle.close();
      break;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    const held = await stat(path).catch(() => undefined);
    if (held !== undefined && Date.now() - held.mtimeMs > STALE_MS) await rm(path, { force: true });
    else await sleep(POLL_MS);
  }
  const timer = setInterval(() => {
    const now = new Date();
    utimes(path, now, now).catch(() => {});
  }, TOUCH_MS);
  try {
    return await work();
  } finally {
    clearInterval(timer);
    await rm(path, { force: true });
  }
}
