/**
 * A lock between processes: a file that names its holder, touched now and then, and stale when its holder is gone.
 */

import { randomUUID } from 'node:crypto';
import { readFile, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';

const TOUCH_MS = 2_000;
/** For holders on other machines that share the disk; on this one the process itself is looked for. */
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
  const holder = `${process.pid} ${hostname()} ${randomUUID()}`;
  for (;;) {
    signal?.throwIfAborted();
    try {
      await writeFile(path, holder, { flag: 'wx' });
      break;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    if (await isStale(path)) {
      // Others may have seen the same: whoever looks again after a moment finds a new holder's lock, not the old.
      await sleep(Math.random() * POLL_MS);
      if (await isStale(path)) await rm(path, { force: true });
    } else {
      await sleep(POLL_MS);
    }
  }
  const timer = setInterval(() => {
    const now = new Date();
    utimes(path, now, now).catch(() => {});
  }, TOUCH_MS);
  try {
    return await work();
  } finally {
    clearInterval(timer);
    // A process that was stopped for long finds the lock taken over: it is not its own to remove.
    if ((await readFile(path, 'utf8').catch(() => '')) === holder) await rm(path, { force: true });
  }
}

async function isStale(path: string): Promise<boolean> {
  const held = await stat(path).catch(() => undefined);
  if (held === undefined) return false;
  if (Date.now() - held.mtimeMs > STALE_MS) return true;
  const [, pid, host] = /^(\d+) (\S+)/.exec(await readFile(path, 'utf8').catch(() => '')) ?? [];
  return pid !== undefined && host === hostname() && !isAlive(Number(pid));
}

function isAlive(pid: number): boolean {
  try {
    // Signal 0 is not sent; it only asks.
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
