import { createHash } from 'node:crypto';
import { chmodSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseKeys, readKeyFile } from './key-file.js';

const SECRET = 'sk-0123456789';
const digest = createHash('sha256').update(SECRET).digest('hex');
const parse = (text: string) => parseKeys(new TextEncoder().encode(text), 'keys.jsonl');

describe('a file of keys', () => {
  it('has one key a line', () => {
    expect(
      parse(`{"name": "web", "key": "a"}\n{"sha256": "${digest}", "priority": -3, "admin": true}\n`),
    ).toEqual([
      { name: 'web', key: 'a' },
      { sha256: digest, priority: -3, admin: true },
    ]);
  });

  it.each([
    ['a byte order mark', '\ufeff{"key": "a"}\n{"key": "b"}'],
    ['carriage returns', '{"key": "a"}\r\n{"key": "b"}\r\n'],
    ['old line ends', '{"key": "a"}\r{"key": "b"}\r'],
    [
      'empty lines, comments, spaces',
      '\n# of 2025\n  {"key": "a"}  \n\n\t\n  # old: {"key": "c"}\n{"key": "b"}\n\n',
    ],
  ])('takes %s', (_, text) => {
    expect(parse(text)).toEqual([{ key: 'a' }, { key: 'b' }]);
  });

  it.each([
    ['not JSON', `{"key": "a"}\n${SECRET}`, 2, /JSON/],
    ['a line that is cut', `{"key": "${SECRET}"`, 1, /JSON/],
    ['a list', `[{"key": "${SECRET}"}]`, 1, /object/],
    ['a text', `"${SECRET}"`, 1, /object/],
    ['null', 'null', 1, /object/],
    ['a key over two lines', `{"key":\n"${SECRET}"}`, 1, /JSON/],
    ['an unknown field', `\n\n{"key": "${SECRET}", "prioritiy": 3}`, 3, /prioritiy/],
    ['a key in the place of a field', `{"${SECRET}": "name"}`, 1, /field/],
    ['a prototype', `{"key": "${SECRET}", "__proto__": {"admin": true}}`, 1, /field/],
    ['neither key nor digest', '{"name": "web"}', 1, /neither/],
    ['both', `{"key": "${SECRET}", "sha256": "${digest}"}`, 1, /both/],
    ['an empty key', '{"key": ""}', 1, /empty/],
    ['a key that is no text', '{"key": 5}', 1, /cannot be sent/],
    ['a key nobody can send', `{"key": "${SECRET}\\u00e9"}`, 1, /cannot be sent/],
    ['a short digest', `{"sha256": "${digest.slice(1)}"}`, 1, /64/],
    ['a digest that is none', `{"sha256": "${digest.slice(1)}g"}`, 1, /64/],
    ['a priority that is no number', `{"key": "${SECRET}", "priority": "high"}`, 1, /priority/],
    ['a priority out of range', `{"key": "${SECRET}", "priority": 11}`, 1, /priority/],
    ['an admin that is no boolean', `{"key": "${SECRET}", "admin": 1}`, 1, /admin/],
    ['a name that is none', `{"key": "${SECRET}", "name": 7}`, 1, /name/],
    ['a key twice', `{"key": "${SECRET}"}\n#\n{"sha256": "${digest}"}`, 3, /key of line 1/],
    ['a name twice', `{"name": "a", "key": "x"}\n{"name": "a", "key": "${SECRET}"}`, 2, /name of line 1/],
  ])('refuses %s, naming the line and quoting none', (_, text, line, message) => {
    let error: Error | undefined;
    try {
      parse(text);
    } catch (thrown) {
      error = thrown as Error;
    }
    expect(error).toMatchObject({
      code: 'api-key-file-invalid',
      status: 400,
      where: `keys.jsonl:${line}`,
      message: expect.stringMatching(message),
      fix: expect.any(String),
    });
    expect(error!.message).toContain(`Line ${line} of keys.jsonl`);
    expect(`${error!.stack}${JSON.stringify(error)}${String(error!.cause)}`).not.toContain(SECRET);
  });

  it.each([
    ['nothing', ''],
    ['only a byte order mark', '\ufeff'],
    ['only comments', '# none\n\n'],
  ])('refuses %s: an open server must be asked for', (_, text) => {
    expect(() => parse(text)).toThrow(/holds no keys/);
  });

  it('refuses what is not UTF-8', () => {
    expect(() => parseKeys(Buffer.from('\ufeff{"key": "a"}', 'utf16le'), 'k')).toThrow(/UTF-8/);
  });

  it('takes many keys', () => {
    const text = Array.from({ length: 20_000 }, (_, i) => `{"name": "n${i}", "key": "k${i}"}`).join('\n');
    expect(parse(text)).toHaveLength(20_000);
  });
});

describe('reading it', () => {
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'kvant-keys-'));
  });
  afterAll(() => {
    rmSync(folder, { recursive: true, force: true });
  });

  it('says what is in the way', async () => {
    symlinkSync('circle', join(folder, 'circle'));
    writeFileSync(join(folder, 'large'), Buffer.alloc(17 * 2 ** 20, '#'));
    for (const [name, reason] of [
      ['nowhere', /no such file/],
      ['', /is a folder/],
      ['circle', /circle/],
      ['large', /more than/],
    ] as const)
      await expect(readKeyFile(join(folder, name)), name).rejects.toMatchObject({
        code: 'api-key-file-unreadable',
        message: expect.stringMatching(reason),
      });
  });

  it('warns where others can read keys, or write them', async () => {
    if (process.platform === 'win32') return;
    const file = join(folder, 'keys.jsonl');
    const warned = async (text: string, mode: number): Promise<string[]> => {
      writeFileSync(file, text);
      chmodSync(file, mode);
      return (await readKeyFile(file)).warnings.map((warning) => /can (\w+)/.exec(warning)![1]!);
    };
    expect(await warned(`{"key": "${SECRET}"}`, 0o600)).toEqual([]);
    expect(await warned(`{"key": "${SECRET}"}`, 0o640)).toEqual([]);
    expect(await warned(`{"key": "${SECRET}"}`, 0o644)).toEqual(['read']);
    expect(await warned(`{"sha256": "${digest}"}`, 0o644)).toEqual([]);
    expect(await warned(`{"sha256": "${digest}"}`, 0o660)).toEqual(['write']);
    expect(await warned(`{"key": "${SECRET}"}`, 0o666)).toEqual(['read', 'write']);
  });
});
