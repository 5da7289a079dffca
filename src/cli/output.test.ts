import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { checkOutputs, writeOutput } from './output.js';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'kvant-output-'));
});
afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});

describe('outputs', () => {
  it('are tried without a trace', async () => {
    const [fresh, old, link] = ['new.json', 'old.json', 'link.json'].map((name) => join(folder, name)) as [
      string,
      string,
      string,
    ];
    writeFileSync(old, 'precious');
    symlinkSync('target.json', link);
    await checkOutputs({ out: fresh, plot: old, plots: join(folder, 'a', 'b') });
    await checkOutputs({ out: link });
    await checkOutputs({});
    expect(existsSync(fresh)).toBe(false);
    expect(readFileSync(old, 'utf8')).toBe('precious');
    expect(existsSync(join(folder, 'a', 'b'))).toBe(true);
    await writeOutput('--out', link, 'x');
    expect(readFileSync(join(folder, 'target.json'), 'utf8')).toBe('x');
  });

  it('are refused before the work, naming flag and reason', async () => {
    writeFileSync(join(folder, 'file'), '');
    mkdirSync(join(folder, 'folder'));
    symlinkSync('circle', join(folder, 'circle'));
    for (const [name, reason] of [
      ['nowhere/x.json', /no such folder/],
      ['file/x.json', /place of a folder/],
      ['folder', /is a folder/],
      ['circle', /circle/],
      ['n'.repeat(300), /too long/],
    ] as const) {
      const path = join(folder, name);
      const refused = { code: 'file-not-writable', message: expect.stringMatching(reason) };
      await expect(checkOutputs({ out: path }), name).rejects.toMatchObject({ ...refused, where: '--out' });
      await expect(checkOutputs({ plot: path }), name).rejects.toMatchObject({ ...refused, where: '--plot' });
      await expect(writeOutput('--out', path, ''), name).rejects.toMatchObject(refused);
    }
    await expect(checkOutputs({ plots: join(folder, 'file') })).rejects.toMatchObject({
      code: 'file-not-writable',
      where: '--plots',
    });
    if (process.platform === 'linux')
      for (const flags of [{ out: '/proc/x' }, { plots: '/proc/x' }])
        await expect(checkOutputs(flags)).rejects.toMatchObject({ code: 'file-not-writable' });
  });
});
