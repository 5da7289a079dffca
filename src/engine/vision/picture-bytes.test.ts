/** Files of requests: those in the folder that is allowed, wherever links lead. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pictureAccess } from './picture-access.js';
import { dataUrlBytes, pictureBytes } from './picture-bytes.js';

describe('a file: URL', () => {
  let root: string;
  const at = (...names: string[]): string => join(root, ...names);
  const { signal } = new AbortController();
  const read = (url: string, localPath?: string): Promise<Uint8Array> =>
    pictureBytes({ source: { kind: 'url', url }, where: 'w' }, { localPath }, signal);
  const url = (...names: string[]): string => pathToFileURL(at(...names)).href;

  beforeAll(() => {
    root = mkdtempSync(join(tmpdir(), 'kvant-media-'));
    for (const folder of ['allowed', 'allowed/below', 'allowed/..more', 'allowed-not', 'real'])
      mkdirSync(at(folder), { recursive: true });
    const inside = ['a b.png', 'below/b.png', '..photo.png', '...png', '..more/f.png'];
    for (const file of [
      ...inside.map((name) => `allowed/${name}`),
      'allowed-not/c.png',
      'real/d.png',
      'e.png',
    ])
      writeFileSync(at(file), file);
    symlinkSync(at('e.png'), at('allowed/out.png'));
    symlinkSync(at('allowed/below/b.png'), at('allowed/in.png'));
    symlinkSync(at('real'), at('link'));
    symlinkSync(at('real'), at('allowed/linked'));
  });
  afterAll(() => rmSync(root, { recursive: true }));

  it.each([
    [['allowed', 'a b.png'], 'allowed/a b.png'],
    [['allowed', 'below', 'b.png'], 'allowed/below/b.png'],
    [['allowed', 'in.png'], 'allowed/below/b.png'],
    [['allowed', '..photo.png'], 'allowed/..photo.png'],
    [['allowed', '...png'], 'allowed/...png'],
    [['allowed', '..more', 'f.png'], 'allowed/..more/f.png'],
  ])('%j in the folder is read', async (names, text) => {
    expect(Buffer.from(await read(url(...names), at('allowed'))).toString()).toBe(text);
  });

  it('is read where the folder itself is a link', async () => {
    expect(Buffer.from(await read(url('link', 'd.png'), at('link'))).toString()).toBe('real/d.png');
  });

  it.each([
    ['allowed-not/c.png'],
    ['e.png'],
    ['allowed/../e.png'],
    ['allowed/%2e%2e/e.png'],
    ['allowed/..%2fe.png'],
    ['allowed/out.png'],
    ['allowed/linked/d.png'],
    ['allowed/missing.png'],
    ['missing/f.png'],
    ['allowed'],
    ['.'],
    ['..'],
  ])('%s is refused as any other outside', async (name) => {
    const error = { code: 'image-url-not-allowed', where: 'w', status: 400 };
    await expect(read(`${pathToFileURL(root).href}/${name}`, at('allowed'))).rejects.toMatchObject(error);
  });

  it('is refused with a host, and where no folder is allowed', async () => {
    const error = { code: 'image-url-not-allowed' };
    await expect(read('file://host/allowed/in.png', at('allowed'))).rejects.toMatchObject(error);
    await expect(read(url('allowed', 'in.png'))).rejects.toMatchObject(error);
  });

  it('of what is no plain file is refused, and is not waited for', async () => {
    if (process.platform !== 'win32') execFileSync('mkfifo', [at('allowed/pipe')]);
    for (const name of process.platform === 'win32' ? ['below'] : ['pipe', 'below']) {
      const error = { code: 'image-unreadable', where: 'w', status: 400 };
      await expect(read(url('allowed', name), at('allowed'))).rejects.toMatchObject(error);
    }
  });
});

describe('a data: URL', () => {
  it.each([
    ['AAAA\nAAAA', /spaces or line ends/, /base64 -w0/],
    [' AAAA', /spaces or line ends/, /base64 -w0/],
    ['AA-_', /base64url/, /\+ in place of -/],
    ['AA%2BA', /percent-encoded/, /as they are/],
    ['AA+-', /not base64/, /bytes in base64/],
    ['AAAAA', /not base64/, /bytes in base64/],
    ['A=AA', /not base64/, /bytes in base64/],
  ])('of %j is refused as what it is', (text, message, fix) => {
    const read = (): unknown => dataUrlBytes(`data:image/png;base64,${text}`, 'w');
    expect(read).toThrow(
      expect.objectContaining({
        code: 'invalid-image-url',
        where: 'w',
        message: expect.stringMatching(message),
        fix: expect.stringMatching(fix),
      }),
    );
  });
});

describe('access by options', () => {
  it('fetches nothing unasked', async () => {
    expect((await pictureAccess({})).fetch).toBeUndefined();
    expect((await pictureAccess({ allowMediaUrls: false })).fetch).toBeUndefined();
    expect((await pictureAccess({ allowMediaUrls: true })).fetch).toBeTypeOf('function');
    expect((await pictureAccess({ allowedMediaDomains: ['a.example'] })).fetch).toBeTypeOf('function');
  });

  it('with a list keeps to the list, whether or not all are allowed', async () => {
    for (const allowMediaUrls of [false, true]) {
      const { fetch } = await pictureAccess({ allowMediaUrls, allowedMediaDomains: ['a.example'] });
      const fetched = fetch!('https://b.example/', 'w', new AbortController().signal);
      await expect(fetched).rejects.toMatchObject({ code: 'image-url-not-allowed' });
    }
  });
});
