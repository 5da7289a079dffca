import { chmod, mkdir, mkdtemp, readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ChoiceFile, cacheFolder } from './choice-file.js';

const isNumber = (value: unknown): value is number => typeof value === 'number';

describe('ChoiceFile', () => {
  let folder: string;
  const warnings: string[] = [];
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'kvant-choices-'));
    warnings.length = 0;
  });
  afterEach(async () => {
    await rm(folder, { recursive: true, force: true });
  });
  const open = (identity: Record<string, unknown> = { device: 'a', driver: 1 }, where = folder) =>
    new ChoiceFile<number>({
      kind: 'webgpu',
      identity,
      isEntry: isNumber,
      folder: where,
      onWarning: (message) => warnings.push(message),
    });

  it('keeps what was added for the device, and for no other', async () => {
    const file = open();
    expect({ ...(await file.read()) }).toEqual({});
    await file.add({ one: 1, two: 2 });
    await file.add({ two: 3 });
    expect({ ...(await open({ driver: 1, device: 'a' }).read()) }).toEqual({ one: 1, two: 3 });
    expect({ ...(await open({ device: 'a', driver: 2 }).read()) }).toEqual({});
    expect(await readdir(folder)).toHaveLength(1);
    expect(warnings).toEqual([]);
  });

  it.each([
    ['cut off', (text: string) => text.slice(0, -9)],
    ['empty', () => ''],
    ['not JSON', () => 'hello'],
    ['an array', () => '[1]'],
    ['null', () => 'null'],
    ['of another layout', (text: string) => text.replace('"format": 1', '"format": 99')],
    ['of another device', (text: string) => text.replace('"a"', '"b"')],
    ['without entries', () => '{"format": 1, "identity": {"device": "a", "driver": 1}}'],
  ])('does without a file that is %s, says so once, and replaces it', async (_, damage) => {
    const file = open();
    await file.add({ one: 1 });
    await writeFile(file.path, damage(await readFile(file.path, 'utf8')));
    const again = open();
    expect({ ...(await again.read()) }).toEqual({});
    expect({ ...(await again.read()) }).toEqual({});
    expect(warnings).toHaveLength(1);
    await again.add({ two: 2 });
    expect({ ...(await open().read()) }).toEqual({ two: 2 });
  });

  it('leaves out entries of the wrong type, and takes names as names', async () => {
    const file = open();
    await file.add({ one: 1, ['__proto__']: 2 });
    const text = await readFile(file.path, 'utf8');
    await writeFile(file.path, text.replace('"one": 1', '"one": 1, "word": "x", "nothing": null'));
    const entries = await open().read();
    expect(Object.keys(entries).sort()).toEqual(['__proto__', 'one']);
    expect(warnings).toEqual([]);
  });

  it('does without a folder that cannot be made or written, and says so once', async () => {
    const taken = join(folder, 'file');
    await writeFile(taken, '');
    const file = open(undefined, join(taken, 'below'));
    await file.add({ one: 1 });
    await file.add({ one: 1 });
    expect({ ...(await file.read()) }).toEqual({});
    expect(warnings.filter((w) => w.includes('kept'))).toHaveLength(1);
    if (process.getuid?.() !== 0) {
      const locked = join(folder, 'locked');
      await mkdir(locked);
      await chmod(locked, 0o500);
      await open(undefined, locked).add({ one: 1 });
      expect(await readdir(locked)).toEqual([]);
    }
    // A folder in the file's place.
    const other = open();
    await mkdir(other.path, { recursive: true });
    expect({ ...(await other.read()) }).toEqual({});
    await other.add({ one: 1 });
    expect((await readdir(folder)).filter((name) => name.endsWith('.tmp'))).toEqual([]);
  });

  it('loses nothing of what many add at once', async () => {
    const names = Array.from({ length: 12 }, (_, i) => `entry ${i}`);
    await open().add({ first: 0 });
    // Each its own reader and writer, as in processes of their own; a reader meanwhile never sees half a file.
    let reading = true;
    const reader = (async () => {
      while (reading) {
        expect((await open().read()).first).toBe(0);
        await new Promise((resolve) => setImmediate(resolve));
      }
    })();
    for (let i = 0; i < names.length; i += 3)
      await Promise.all(names.slice(i, i + 3).map((name, n) => open().add({ [name]: i + n })));
    reading = false;
    await reader;
    expect(warnings).toEqual([]);
    expect(Object.keys(await open().read()).sort()).toEqual(['first', ...names].sort());
    expect(await readdir(folder)).toHaveLength(1);
  });
});

describe('a lock that was left behind', () => {
  it('holds nobody up', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'kvant-choices-'));
    const file = new ChoiceFile<number>({ kind: 'cpu', identity: {}, isEntry: isNumber, folder });
    await writeFile(`${file.path}.lock`, '1');
    const long = new Date(Date.now() - 3600_000);
    await utimes(`${file.path}.lock`, long, long);
    await file.add({ one: 1 });
    expect((await file.read()).one).toBe(1);
    expect(await readdir(folder)).toHaveLength(1);
    await rm(folder, { recursive: true });
  });
});

describe('cacheFolder', () => {
  it.each([
    [{ KVANT_CACHE: '/own', XDG_CACHE_HOME: '/x' }, '/own'],
    [{ XDG_CACHE_HOME: '/x' }, '/x/kvant'],
    [{ KVANT_CACHE: ' ', XDG_CACHE_HOME: '' }, join(homedir(), '.cache/kvant')],
  ])('%o', (env, folder) => {
    expect(cacheFolder(env)).toBe(folder);
  });
});
