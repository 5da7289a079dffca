import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import * as nodeFs from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { checkDiskFolder, makeDiskFolder, othersWrite } from './disk-folder.js';
import type { DiskFs } from './disk-fs.js';
import { DiskTier } from './disk-tier.js';

let base: string;
beforeEach(() => {
  base = mkdtempSync(join(tmpdir(), 'kvant-disk-folder-'));
});
afterEach(() => {
  rmSync(base, { recursive: true, force: true });
});

/** The real file system, where `folder` lies on one that refuses what is new. */
function refusing(code: string, folder: string): DiskFs {
  return {
    ...(nodeFs as DiskFs),
    mkdir: async (path, options) => {
      try {
        if (statSync(path).isDirectory()) return await nodeFs.mkdir(path, options);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'EEXIST') throw error;
      }
      if (path.startsWith(folder)) throw Object.assign(new Error(code), { code });
      return nodeFs.mkdir(path, options);
    },
  };
}

describe('the folder of the disk cache', () => {
  it('is refused with the reason, whatever it is', async () => {
    writeFileSync(join(base, 'file'), '');
    symlinkSync('circle', join(base, 'circle'));
    symlinkSync('nowhere', join(base, 'dangling'));
    const cases: [string, RegExp][] = [
      ['file', /file is a file, not a folder \(ENOTDIR\)/],
      ['file/x/y', /file is a file, not a folder \(ENOTDIR\)/],
      ['circle/x', /links lead in a circle \(ELOOP\)/],
      ['dangling', /\(ENOENT\)/],
      ['n'.repeat(300), /name is too long/],
      ['nul\0', /name is not valid/],
    ];
    const all = cases.map(([name, reason]) => [join(base, name), reason] as const);
    if (process.platform === 'linux') all.push(['/proc/x', /the folder above takes none \(ENOENT\)/]);
    for (const [folder, message] of all) {
      const refused = { code: 'prefix-cache-dir-unusable', message: expect.stringMatching(message) };
      await expect(checkDiskFolder(folder), folder).rejects.toMatchObject(refused);
      await expect(DiskTier.open({ folder, maxBytes: 1e6, signature: 's' }), folder).rejects.toMatchObject(
        refused,
      );
    }
  });

  it.each([
    ['EROFS', /the file system is read-only \(EROFS\)/],
    ['EACCES', /no permission \(EACCES\)/],
    ['EPERM', /no permission \(EPERM\)/],
  ])('%s: one that is not there is refused, and not as missing', async (code, message) => {
    const folder = join(base, 'new');
    const made = makeDiskFolder(folder, join(folder, 'own'), refusing(code, folder));
    await expect(made).rejects.toMatchObject({ message: expect.stringMatching(message) });
  });

  it('one that is there is read where the file system is read-only, refused where this user may not write', async () => {
    const own = join(base, 'own');
    expect(await makeDiskFolder(base, own, refusing('EROFS', base))).toBe('EROFS');
    await expect(makeDiskFolder(base, own, refusing('EACCES', base))).rejects.toMatchObject({
      code: 'prefix-cache-dir-unusable',
      message: expect.stringMatching(/cannot be written to: .*EACCES/),
    });
  });

  it.each(['ENOSPC', 'EDQUOT', 'EIO'])('%s: it may be made later', async (code) => {
    const folder = join(base, 'new');
    expect(await makeDiskFolder(folder, join(folder, 'own'), refusing(code, folder))).toBe(code);
  });

  it('its files are for its user alone, whatever the umask', async () => {
    const before = process.platform === 'win32' ? 0 : process.umask(0);
    const folder = join(base, 'a', 'b');
    try {
      const tier = await DiskTier.open({ folder, maxBytes: 1e6, signature: 's' });
      tier.offer({ key: '0'.repeat(32), tokens: new Uint32Array(16), depth: 0, data: new Uint8Array(100) });
      await tier.flush();
      expect(tier.stats().files).toBe(1);
      await tier.close();
    } finally {
      if (process.platform !== 'win32') process.umask(before);
    }
    const found = readdirSync(join(base, 'a'), { recursive: true }).map((name) =>
      join(base, 'a', String(name)),
    );
    // The folder, the signature's, its about.json, two digits, a block.
    expect(found).toHaveLength(5);
    if (process.platform === 'win32') return;
    for (const path of [join(base, 'a'), ...found]) {
      const { mode } = statSync(path);
      expect((mode & 0o777).toString(8), path).toBe(statSync(path).isDirectory() ? '700' : '600');
    }
  });

  it('says when others may put files into it', async () => {
    if (process.platform === 'win32') return;
    const folder = join(base, 'shared');
    mkdirSync(folder);
    for (const [mode, expected] of [
      [0o700, false],
      [0o755, false],
      [0o770, true],
      [0o777, true],
      [0o1777, false],
    ] as const) {
      chmodSync(folder, mode);
      expect(await othersWrite(folder), mode.toString(8)).toBe(expected);
    }
    expect(await othersWrite(join(base, 'nowhere'))).toBe(false);
  });
});
