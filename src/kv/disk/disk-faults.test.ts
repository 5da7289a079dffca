import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import * as nodeFs from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { blockFileBytes } from './disk-format.js';
import type { DiskFile, DiskFs } from './disk-fs.js';
import { type DiskFault, DiskTier, type DiskTierOptions } from './disk-tier.js';

const TOKENS = 16;
const BYTES = 3000;
const FILE = blockFileBytes(TOKENS, BYTES);

/** What a fault does to one call: throw, wait, or answer in its place. */
type Hook<A extends unknown[], R> = (call: (...args: A) => Promise<R>, ...args: A) => Promise<R>;

interface Hooks {
  open?: Hook<[path: string, flags: 'r' | 'wx', mode?: number], DiskFile>;
  read?: Hook<[Uint8Array, number, number, number], { bytesRead: number }>;
  write?: Hook<[Uint8Array, number, number, number], { bytesWritten: number }>;
  sync?: Hook<[], void>;
  rename?: Hook<[string, string], void>;
  unlink?: Hook<[string], void>;
  mkdir?: Hook<[string, { readonly mode: number }], unknown>;
  readdir?: Hook<[string], string[]>;
}

/** The real file system but for what `hooks` does now. */
function faultyFs(hooks: Hooks): DiskFs {
  const real: DiskFs = nodeFs;
  /** A call that goes through its hook, if it has one by then. */
  const through =
    <A extends unknown[], R>(hook: () => Hook<A, R> | undefined, call: (...args: A) => Promise<R>) =>
    (...args: A): Promise<R> =>
      (hook() ?? pass)(call, ...args);
  const fileOf = (file: DiskFile): DiskFile => ({
    read: through(
      () => hooks.read,
      (to, offset, length, position) => file.read(to, offset, length, position),
    ),
    write: through(
      () => hooks.write,
      (from, offset, length, position) => file.write(from, offset, length, position),
    ),
    sync: through(
      () => hooks.sync,
      () => file.sync(),
    ),
    stat: () => file.stat(),
    utimes: (a, m) => file.utimes(a, m),
    close: () => file.close(),
  });
  const open = through(
    () => hooks.open,
    (path, flags, mode) => real.open(path, flags, mode),
  );
  return {
    open: async (path, flags, mode) => fileOf(await open(path, flags, mode)),
    mkdir: through(
      () => hooks.mkdir,
      (path, options) => real.mkdir(path, options),
    ),
    readdir: through(
      () => hooks.readdir,
      (path) => real.readdir(path),
    ),
    stat: (path) => real.stat(path),
    rename: through(
      () => hooks.rename,
      (from, to) => real.rename(from, to),
    ),
    unlink: through(
      () => hooks.unlink,
      (path) => real.unlink(path),
    ),
  };
}

function pass<A extends unknown[], R>(call: (...args: A) => Promise<R>, ...args: A): Promise<R> {
  return call(...args);
}

function failure(code: string): Error {
  return Object.assign(new Error(code), { code });
}

let folder: string;
let hooks: Hooks;
let now: number;
let faults: DiskFault[];
let tier: DiskTier;

async function open(options: Partial<DiskTierOptions> = {}): Promise<DiskTier> {
  return DiskTier.open({
    folder,
    maxBytes: 2 ** 30,
    signature: 'a model',
    fs: faultyFs(hooks),
    now: () => now,
    onFault: (fault) => faults.push(fault),
    ...options,
  });
}

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'kvant-disk-'));
  hooks = {};
  faults = [];
  now = 1_700_000_000_000;
  tier = await open();
});
afterEach(async () => {
  hooks.read = hooks.write = pass;
  await tier.close();
  rmSync(folder, { recursive: true, force: true });
});

function block(i: number) {
  return {
    key: (i * 0x1234567).toString(16).padStart(32, '0'),
    tokens: Uint32Array.from({ length: TOKENS }, (_, t) => i * TOKENS + t),
    depth: i,
    data: new Uint8Array(BYTES).map((_, d) => (d * 7 + i * 13) & 0xff),
  };
}

async function written(...ids: number[]): Promise<void> {
  for (const i of ids) tier.offer(block(i));
  await tier.flush();
}

function files(end: string): number {
  return readdirSync(folder, { recursive: true }).filter((name) => String(name).endsWith(end)).length;
}

const readOne = (i: number, timeoutMs = 2000): Promise<Uint8Array[]> =>
  tier.read([block(i)], BYTES, i, timeoutMs);

describe('disk tier, when the disk fails', () => {
  it.each(['ENOSPC', 'EDQUOT', 'EROFS', 'EIO'])(
    '%s: nothing is written for a while, then it is',
    async (code) => {
      await written(1);
      hooks.write = async () => {
        throw failure(code);
      };
      await written(2, 3, 4);
      expect(tier.stats()).toMatchObject({ writing: false, writeErrors: 1, dropped: 3, queued: 0, files: 1 });
      expect(files('.tmp')).toBe(0);
      // Reading goes on, and nothing is tried.
      expect(await readOne(1)).toEqual([block(1).data]);
      expect(tier.wants(block(5).key, BYTES)).toBe(false);
      now += 31_000;
      await written(5);
      expect(tier.stats()).toMatchObject({ writing: false, writeErrors: 2 });
      now += 31_000;
      delete hooks.write;
      await written(6, 7);
      expect(tier.stats()).toMatchObject({ writing: true, files: 3, writtenBlocks: 3 });
      expect(await readOne(7)).toEqual([block(7).data]);
      expect(faults).toEqual([
        { what: 'write', code },
        { what: 'write', code: null },
      ]);
    },
  );

  it.each(['sync', 'rename', 'open', 'mkdir'] as const)(
    '%s fails: no file comes into being',
    async (call) => {
      const fail = async (): Promise<never> => {
        throw failure('EIO');
      };
      if (call === 'open') hooks.open = (real, path, flags) => (flags === 'wx' ? fail() : real(path, flags));
      else hooks[call] = fail;
      await written(1);
      expect(files('.kvb') + files('.tmp')).toBe(0);
      expect(tier.stats()).toMatchObject({ files: 0, bytes: 0, writeErrors: 1, writing: false });
      expect(await readOne(1)).toEqual([]);
    },
  );

  it('a disk that is full half way through leaves nothing behind', async () => {
    let room = FILE + 2000;
    hooks.write = async (real, from, offset, length, position) => {
      if (room === 0) throw failure('ENOSPC');
      const some = Math.min(length, room, 700);
      room -= some;
      return real(from, offset, some, position);
    };
    await written(1, 2);
    expect(files('.kvb')).toBe(1);
    expect(files('.tmp')).toBe(0);
    // In pieces, and whole all the same.
    expect(await readOne(1)).toEqual([block(1).data]);
  });

  it('a full disk from the start on: what is there is read', async () => {
    await written(1, 2);
    hooks.mkdir = async () => {
      throw failure('ENOSPC');
    };
    const other = await open();
    expect(other.stats()).toMatchObject({ writing: false, files: 2 });
    expect(await other.read([block(1)], BYTES, 1, 1000)).toEqual([block(1).data]);
    await other.close();
  });

  it('a file that cannot be read is as none, and three in a row end reading for a while', async () => {
    await written(1, 2, 3, 4, 5);
    hooks.read = async () => {
      throw failure('EIO');
    };
    for (const i of [1, 2]) expect(await readOne(i)).toEqual([]);
    expect(tier.stats()).toMatchObject({ reading: true, readErrors: 2 });
    expect(await readOne(3)).toEqual([]);
    expect(tier.stats()).toMatchObject({ reading: false, readErrors: 3 });
    expect(tier.find([block(4).key])).toBe(0);
    expect(await readOne(4)).toEqual([]);
    expect(tier.stats().readErrors).toBe(3);
    now += 31_000;
    delete hooks.read;
    expect(await readOne(4)).toEqual([block(4).data]);
    expect(tier.stats()).toMatchObject({ reading: true, readBlocks: 1 });
    expect(faults).toEqual([
      { what: 'read', code: 'EIO' },
      { what: 'read', code: null },
    ]);
  });

  it('short reads: taken up where there is more, corrupt where there is not', async () => {
    await written(1, 2);
    hooks.read = (real, to, offset, length, position) => real(to, offset, Math.min(length, 100), position);
    expect(await readOne(1)).toEqual([block(1).data]);
    hooks.read = async (real, to, offset, length, position) =>
      position > 1000 ? { bytesRead: 0 } : real(to, offset, Math.min(length, 900), position);
    expect(await readOne(2)).toEqual([]);
    expect(tier.stats()).toMatchObject({ corrupt: 1, readErrors: 0 });
  });

  it('bits that flip on the way, anywhere, are never used', async () => {
    for (let at = 0; at < FILE; at += 61) {
      await written(at);
      hooks.read = async (real, to, offset, length, position) => {
        const answer = await real(to, offset, length, position);
        // Not of the few bytes by which a file is known before it is removed.
        if (length > 8) to[at]! ^= 1 << (at & 7);
        return answer;
      };
      expect(await readOne(at), `byte ${at}`).toEqual([]);
      delete hooks.read;
    }
    const { corrupt, foreign, readBlocks } = tier.stats();
    expect(corrupt + foreign).toBe(Math.ceil(FILE / 61));
    expect(readBlocks).toBe(0);
  });

  it('a slow disk: reads are given up, and not asked for again for a while', async () => {
    await written(1, 2, 3);
    const held: (() => void)[] = [];
    hooks.read = async (real, ...args) => {
      await new Promise<void>((resolve) => held.push(resolve));
      return real(...args);
    };
    expect(await tier.read([block(1), block(2), block(3)], BYTES, 1, 30)).toEqual([]);
    expect(tier.stats()).toMatchObject({ slowReads: 1, reading: false });
    expect(tier.find([block(1).key])).toBe(0);
    expect(await readOne(1)).toEqual([]);
    // Two at once, whatever was asked for.
    expect(held).toHaveLength(2);
    now += 31_000;
    delete hooks.read;
    for (const go of held) go();
    expect(await readOne(2)).toEqual([block(2).data]);
    expect(faults).toEqual([
      { what: 'read', code: 'slow' },
      { what: 'read', code: null },
    ]);
  });

  it('a slow disk: what the queue cannot hold is dropped, and closing does not wait for ever', async () => {
    const slow = await open({ queueBytes: 3 * FILE });
    let go = (): void => {};
    const held = new Promise<void>((resolve) => {
      go = resolve;
    });
    hooks.write = (real, ...args) => held.then(() => real(...args));
    for (let i = 0; i < 50; i++) {
      slow.offer(block(i));
      await new Promise(setImmediate);
    }
    expect(slow.stats()).toMatchObject({ queued: 3, dropped: 47, writtenBlocks: 0 });
    await slow.close(20);
    expect(slow.stats()).toMatchObject({ queued: 1, dropped: 49 });
    go();
    await slow.flush();
    expect(slow.stats()).toMatchObject({ queued: 0, writtenBlocks: 1 });
  });

  it('what cannot be removed keeps the cap: nothing is written', async () => {
    const capped = await open({ maxBytes: 2 * FILE });
    for (const i of [1, 2]) capped.offer(block(i));
    await capped.flush();
    hooks.unlink = async () => {
      throw failure('EACCES');
    };
    capped.offer(block(3));
    await capped.flush();
    expect(capped.stats()).toMatchObject({ files: 2, writing: false, evicted: 0 });
    expect(files('.kvb')).toBe(2);
    await capped.close();
  });

  it('a folder that cannot be listed for once is not taken to be empty', async () => {
    await written(1);
    hooks.readdir = async () => {
      throw failure('EIO');
    };
    now += 31_000;
    tier.find([block(2).key]);
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(await readOne(1)).toEqual([block(1).data]);
  });
});
