import { lstatSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { folderWith } from '../../test/fixtures/weights/build.js';
import { HubCache } from './hub-cache.js';

const COMMIT = 'c'.repeat(40);
const noLinks = async () => {
  throw Object.assign(new Error('no links here'), { code: 'EPERM', syscall: 'symlink' });
};

it('puts the file itself into the snapshot where links cannot be made, once', async () => {
  using folder = folderWith({});
  const cache = new HubCache(folder.path, 'org/model', noLinks);
  mkdirSync(join(cache.folder, 'blobs'), { recursive: true });
  writeFileSync(cache.blob('abc'), 'contents');
  await cache.link(COMMIT, 'additional_chat_templates/x.jinja', 'abc');
  const pointer = join(cache.snapshot(COMMIT), 'additional_chat_templates/x.jinja');
  expect(lstatSync(pointer).isFile()).toBe(true);
  expect(readFileSync(pointer, 'utf8')).toBe('contents');
  // Not twice on the disk.
  expect(() => statSync(cache.blob('abc'))).toThrow('ENOENT');
  // A second process that waited for the same blob finds it done.
  await cache.link(COMMIT, 'additional_chat_templates/x.jinja', 'abc');
  expect(readFileSync(pointer, 'utf8')).toBe('contents');
  await expect(cache.link(COMMIT, 'other.json', 'abc')).rejects.toThrow('ENOENT');
});

it('writes a revision only where it changed: a cache may be read-only', async () => {
  using folder = folderWith({});
  const cache = new HubCache(folder.path, 'org/model');
  await cache.setRef('main', COMMIT);
  const ref = join(cache.folder, 'refs/main');
  const before = statSync(ref).ino;
  await cache.setRef('main', COMMIT);
  expect(statSync(ref).ino).toBe(before);
  await cache.setRef('main', 'd'.repeat(40));
  expect(await cache.commitOf('main')).toBe('d'.repeat(40));
});
