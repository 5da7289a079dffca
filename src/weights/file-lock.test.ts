import { spawnSync } from 'node:child_process';
import { existsSync, utimesSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { folderWith } from '../../test/fixtures/weights/build.js';
import { withFileLock } from './file-lock.js';

it('lets one in at a time, and leaves nothing', async () => {
  using folder = folderWith({});
  const path = join(folder.path, 'lock');
  let inside = 0;
  let most = 0;
  const results = await Promise.all(
    [1, 2, 3].map((n) =>
      withFileLock(path, undefined, async () => {
        inside++;
        most = Math.max(most, inside);
        await sleep(5);
        inside--;
        return n;
      }),
    ),
  );
  expect(results).toEqual([1, 2, 3]);
  expect(most).toBe(1);
  expect(existsSync(path)).toBe(false);
});

it('is free again when the work fails', async () => {
  using folder = folderWith({});
  const path = join(folder.path, 'lock');
  await expect(
    withFileLock(path, undefined, async () => {
      throw new Error('no');
    }),
  ).rejects.toThrow('no');
  expect(await withFileLock(path, undefined, async () => 1)).toBe(1);
});

it('does not wait for a process that is gone, nor for a lock nobody touches', async () => {
  using folder = folderWith({});
  const path = join(folder.path, 'lock');
  const gone = spawnSync(process.execPath, ['-e', '']).pid;
  writeFileSync(path, `${gone} ${hostname()}`);
  expect(await withFileLock(path, undefined, async () => 1)).toBe(1);
  writeFileSync(path, '1 another-machine');
  const old = new Date(Date.now() - 60_000);
  utimesSync(path, old, old);
  expect(await withFileLock(path, undefined, async () => 2)).toBe(2);
});

it('leaves the lock of another that took it over', async () => {
  using folder = folderWith({});
  const path = join(folder.path, 'lock');
  await withFileLock(path, undefined, async () => writeFileSync(path, `${process.pid} ${hostname()} other`));
  expect(existsSync(path)).toBe(true);
});

it('waits for one that lives, until it is told to stop', async () => {
  using folder = folderWith({});
  const path = join(folder.path, 'lock');
  const controller = new AbortController();
  writeFileSync(path, `${process.pid} ${hostname()}`);
  const waiting = withFileLock(path, controller.signal, async () => 1);
  setTimeout(() => controller.abort(new Error('enough')), 150);
  await expect(waiting).rejects.toThrow('enough');
  expect(existsSync(path)).toBe(true);
});
