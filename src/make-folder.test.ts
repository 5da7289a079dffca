import { mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type FolderFs, makeFolder } from './make-folder.js';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'kvant-folder-'));
});
afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});

const modeOf = (path: string): string => (statSync(path).mode & 0o777).toString(8);

describe('makeFolder', () => {
  it('makes what is missing, with the permissions asked for, and leaves what is there', async () => {
    mkdirSync(join(folder, 'a'), { mode: 0o755 });
    await makeFolder(join(folder, 'a', 'b', 'c'), 0o700);
    await makeFolder(join(folder, 'a', 'b', 'c'), 0o755);
    if (process.platform !== 'win32')
      expect(['a', 'a/b', 'a/b/c'].map((name) => modeOf(join(folder, name)))).toEqual(['755', '700', '700']);
    await makeFolder('/');
    await makeFolder('.');
  });

  it('takes relative paths and links to folders', async () => {
    await makeFolder(relative(process.cwd(), join(folder, 'r', 's')));
    expect(statSync(join(folder, 'r', 's')).isDirectory()).toBe(true);
    symlinkSync(join(folder, 'r'), join(folder, 'link'));
    await makeFolder(join(folder, 'link', 't'));
    expect(statSync(join(folder, 'r', 't')).isDirectory()).toBe(true);
  });

  it('may be called by many at once', async () => {
    const path = join(folder, ...'abcdefgh');
    await Promise.all(Array.from({ length: 20 }, () => makeFolder(path)));
    expect(statSync(path).isDirectory()).toBe(true);
  });

  it('names the file that has the place of a folder', async () => {
    const file = join(folder, 'file');
    writeFileSync(file, '');
    for (const path of [file, join(file, 'x'), join(file, 'x', 'y')])
      await expect(makeFolder(path)).rejects.toMatchObject({ code: 'ENOTDIR', file });
  });

  it('ends at links that lead nowhere, in a circle, and at names that are too long', async () => {
    symlinkSync('nowhere', join(folder, 'dangling'));
    symlinkSync('circle', join(folder, 'circle'));
    for (const [name, code] of [
      ['dangling', 'ENOENT'],
      ['dangling/x', 'ENOENT'],
      ['circle', 'ELOOP'],
      ['circle/x/y', 'ELOOP'],
      ['n'.repeat(300), 'ENAMETOOLONG'],
    ] as const)
      await expect(makeFolder(join(folder, name)), name).rejects.toMatchObject({ code });
  });

  it('ends where the folder above is there and takes no other', async () => {
    let calls = 0;
    const fs: FolderFs = {
      mkdir: async (path) => {
        calls++;
        throw Object.assign(new Error(), { code: path === '/' || path === '/proc' ? 'EEXIST' : 'ENOENT' });
      },
      stat: async () => ({ isDirectory: () => true }),
    };
    for (const path of ['/proc/x', '/proc/x/y/z']) {
      await expect(makeFolder(path, 0o700, fs)).rejects.toMatchObject({ code: 'ENOENT', path: '/proc/x' });
      if (process.platform === 'linux')
        await expect(makeFolder(path)).rejects.toMatchObject({ code: 'ENOENT', path: '/proc/x' });
    }
    expect(calls).toBeLessThan(10);
  });

  it.each(['EROFS', 'EACCES', 'ENOSPC', 'EIO'])(
    'says %s, and not that something is missing',
    async (code) => {
      const fs: FolderFs = {
        mkdir: async (path) => {
          const known = path === '/' || path === '/there';
          throw Object.assign(new Error(), {
            code: known ? 'EEXIST' : path === '/there/x' ? code : 'ENOENT',
          });
        },
        stat: async (path) => {
          if (path === '/' || path === '/there') return { isDirectory: () => true };
          throw Object.assign(new Error(), { code: 'ENOENT' });
        },
      };
      await expect(makeFolder('/there/x/y', 0o700, fs)).rejects.toMatchObject({ code });
      await makeFolder('/there', 0o700, fs);
    },
  );
});
