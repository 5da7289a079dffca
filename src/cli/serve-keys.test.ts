import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command } from 'commander';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { LoadLog } from './log.js';
import { addKeyFlags, type KeyFlags, openKeys, type ServeKeys } from './serve-keys.js';

let folder: string;
let file: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'kvant-serve-keys-'));
  file = join(folder, 'keys.jsonl');
});
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

const lines: string[] = [];
const write = (...entry: unknown[]): void => {
  lines.push(JSON.stringify(entry));
};
const log = {
  isLevelEnabled: () => true,
  trace: write,
  debug: write,
  info: write,
  warn: write,
  error: write,
} as unknown as LoadLog;

/** Flags as they would be typed. */
function typed(...words: string[]): KeyFlags {
  const command = new Command().exitOverride();
  addKeyFlags(command);
  return command.parse(words, { from: 'user' }).opts<KeyFlags>();
}

const open = (words: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<ServeKeys> =>
  openKeys(typed(...words), log, env);

/** Of the keys `a` to `f`: their names, with `!` for an admin and the highest priority. */
const holders = ({ keys }: ServeKeys): Record<string, string> =>
  Object.fromEntries(
    [...'abcdef'].flatMap((key) => {
      const holder = keys?.holderOf(`Bearer ${key}`);
      return holder === undefined
        ? []
        : [[key, `${holder.name}${holder.admin ? '!' : ''} ${holder.maxPriority}`]];
    }),
  );

describe('keys of kvant serve', () => {
  it('none: everybody may do everything', async () => {
    const access = await open([]);
    expect([access.keys, access.anonymous]).toEqual([undefined, true]);
    await access.reload();
  });

  it('come from flags, else from the environment; from a file beside them', async () => {
    writeFileSync(
      file,
      '{"name": "web", "key": "c", "priority": 4}\n{"name": "ops", "key": "d", "admin": true}\n',
    );
    const env = { KVANT_API_KEY: 'a,b', KVANT_ADMIN_KEY: 'e', KVANT_API_KEY_FILE: file };
    expect(holders(await open([], env))).toEqual({
      a: 'key 3 0',
      b: 'key 4 0',
      c: 'web 4',
      d: 'ops! 10',
      e: 'admin! 10',
    });
    const flags = ['--api-key', 'f', '--api-key', 'a', '--admin-key', 'b', '--max-priority', '-2'];
    expect(holders(await open(flags, env))).toEqual({
      a: 'key 4 -2',
      b: 'admin! 10',
      c: 'web 4',
      d: 'ops! 10',
      f: 'key 3 -2',
    });
    // What the file says of a key counts before what the command line says.
    expect(holders(await open(['--api-key', 'c', '--admin-key', 'c', '--api-key-file', file]))).toEqual({
      c: 'web! 4',
      d: 'ops! 10',
    });
  });

  it.each([
    ['a,b', ['a', 'b']],
    [' a , b,', ['a', 'b']],
    ['a\nb\r\n', ['a', 'b']],
    ['a b', ['a', 'b']],
    ['a', ['a']],
  ])('a list in the environment: %j', async (text, expected) => {
    expect(Object.keys(holders(await open([], { KVANT_API_KEY: text })))).toEqual(expected);
  });

  it('an admin’s key alone leaves the rest open; a file never does', async () => {
    expect((await open(['--admin-key', 'a'])).anonymous).toBe(true);
    expect((await open(['--admin-key', 'a'])).keys!.anonymous).toBe(true);
    writeFileSync(file, '{"key": "a", "admin": true}');
    const access = await open(['--api-key-file', file]);
    expect([access.anonymous, access.keys!.anonymous]).toEqual([false, false]);
  });

  it.each<[string[], NodeJS.ProcessEnv, object]>([
    [[], { KVANT_API_KEY: '' }, { code: 'api-key-empty', where: 'KVANT_API_KEY' }],
    [[], { KVANT_API_KEY: ' ,\n' }, { code: 'api-key-empty', where: 'KVANT_API_KEY' }],
    [[], { KVANT_ADMIN_KEY: '' }, { code: 'api-key-empty', where: 'KVANT_ADMIN_KEY' }],
    [[], { KVANT_API_KEY_FILE: '' }, { code: 'api-key-empty', where: 'KVANT_API_KEY_FILE' }],
    [['--api-key', ''], {}, { code: 'api-key-empty', where: '--api-key' }],
    [['--api-key', 'a', '--api-key', ' '], {}, { code: 'api-key-empty', where: '--api-key' }],
    [['--admin-key', ''], {}, { code: 'api-key-empty', where: '--admin-key' }],
    [['--api-key-file', ''], {}, { code: 'api-key-empty', where: '--api-key-file' }],
    [['--api-key-file', '/nowhere/keys'], {}, { code: 'api-key-file-unreadable' }],
    [['--api-key', 'sk-é'], {}, { code: 'invalid-api-keys' }],
    [[], { KVANT_API_KEY: 'sk-é' }, { code: 'invalid-api-keys' }],
  ])('refuses %j with %j, quoting no key', async (words, env, expected) => {
    const error = await open(words, env).catch((thrown: unknown) => thrown as Error);
    expect(error).toMatchObject({ status: 400, fix: expect.any(String), ...expected });
    expect(String(error)).not.toContain('sk-');
  });

  it('the file is read again, and what is wrong with it changes nothing', async () => {
    writeFileSync(file, '{"key": "a"}');
    const access = await open(['--api-key', 'f', '--api-key-file', file]);
    expect(Object.keys(holders(access))).toEqual(['a', 'f']);
    writeFileSync(file, '{"key": "b"}\n{"key": "c"}');
    await access.reload();
    expect(Object.keys(holders(access))).toEqual(['b', 'c', 'f']);
    for (const bad of ['', '{"key": "d"}\nsk-half', '{"key": "d", "limit": 3}']) {
      writeFileSync(file, bad);
      await access.reload();
      expect(Object.keys(holders(access))).toEqual(['b', 'c', 'f']);
      expect(lines.at(-1)).toMatch(/stay as they were/);
    }
    rmSync(file);
    await access.reload();
    expect(lines.at(-1)).toMatch(/no such file/);
    // Two at once, and after a failure.
    writeFileSync(file, '{"key": "e"}');
    await Promise.all([access.reload(), access.reload()]);
    expect(Object.keys(holders(access))).toEqual(['e', 'f']);
    expect(lines.join()).not.toContain('sk-');
  });
});
