import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { failure } from '../../test/fixtures/weights/build.js';
import {
  COMMIT,
  files,
  HubFixture,
  needed,
  shard1,
  shard2,
  text,
} from '../../test/fixtures/weights/hub-repo.js';
import { gitHash, sha256, TOKEN } from '../../test/fixtures/weights/hub-server.js';
import { Checkpoint } from './checkpoint.js';
import { type HubProgress, parseHubId } from './hub.js';
import { INDEX_NAME } from './shards.js';

const hub = HubFixture.use();
const { resolve, blob, fault } = hub;
const requestsOf = (name: string) => hub.server.requests.filter(({ path }) => path.endsWith(name));

function listed(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => !entry.isDirectory())
    .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1))
    .sort();
}

describe('a model argument', () => {
  it('is a folder where there is one', async () => {
    writeFileSync(join(hub.home.path, 'config.json'), '{}');
    expect(await resolve(hub.home.path)).toEqual({ folder: hub.home.path, from: 'folder' });
    expect(hub.server.requests).toEqual([]);
  });

  it.each([
    ['org/name', { id: 'org/name', revision: 'main' }],
    ['Qwen/Qwen3-0.6B', { id: 'Qwen/Qwen3-0.6B', revision: 'main' }],
    ['org/name@v1.0', { id: 'org/name', revision: 'v1.0' }],
    ['org/name@refs/pr/1', { id: 'org/name', revision: 'refs/pr/1' }],
    [`o/n@${COMMIT}`, { id: 'o/n', revision: COMMIT }],
    ['name', undefined],
    ['models/demo-text', undefined],
    ['datasets/x', undefined],
    ['./org', undefined],
    ['../model', undefined],
    ['org/..', undefined],
    ['/abs/path', undefined],
    ['a/b/c', undefined],
    ['org/name@', undefined],
    ['org/name@../../x', undefined],
    ['org/name@/etc', undefined],
    ['org/na me', undefined],
    ['C:\\models', undefined],
    ['', undefined],
  ])('%j', (argument, expected) => {
    expect(parseHubId(argument)).toEqual(expected);
  });

  it.each(['./gone', '../gone', '/gone/x', '~/kvant-gone', 'C:\\\\gone', 'a/b/c', 'gone/'])(
    '%s is a path that is not there: the hub is not asked',
    async (argument) => {
      const error = await failure(resolve(argument));
      expect(error).toMatchObject({ code: 'model-not-found', message: expect.stringMatching(/no folder/) });
      expect(error.message).not.toContain('hub');
      expect(hub.server.requests).toEqual([]);
    },
  );

  it('beside a folder that is there it is a path, unless it has a revision or is in the cache', async () => {
    const error = await failure(resolve('docs/some-model'));
    expect(error).toMatchObject({
      code: 'model-not-found',
      message: 'there is no folder "docs/some-model"',
      fix: 'For a model of that name on the hub write docs/some-model@main',
    });
    expect(hub.server.requests).toEqual([]);
    expect((await failure(resolve('docs/some-model@main'))).code).toBe('hub-model-not-found');
    expect(hub.server.requests.length).toBeGreaterThan(0);
    hub.server.repos.set('docs/cached', { commit: COMMIT, revisions: ['main'], files });
    await resolve('docs/cached@main');
    expect((await resolve('docs/cached')).commit).toBe(COMMIT);
  });

  it('spelled almost as a folder that is there: did you mean it', async () => {
    expect(await failure(resolve('models/demo-tex'))).toMatchObject({
      code: 'model-not-found',
      message: 'there is no folder "models/demo-tex"',
      fix: 'Did you mean models/demo-text?',
    });
    expect((await failure(resolve('demo-tex'))).fix).toContain('models/demo-text');
    expect(hub.server.requests).toEqual([]);
  });

  it('of a GGUF file that is not there: which are', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'kvant-paths-'));
    writeFileSync(join(folder, 'tiny-Q8_0.gguf'), 'GGUF');
    const gone = join(folder, 'tiny-Q8.gguf');
    expect(await failure(resolve(gone))).toMatchObject({
      code: 'model-not-found',
      message: `there is no file ${JSON.stringify(gone)}`,
      fix: `Did you mean ${join(folder, 'tiny-Q8_0.gguf')}?`,
    });
    rmSync(folder, { recursive: true });
    expect(hub.server.requests).toEqual([]);
  });

  it('an address on the hub, and a file of a model: what to give instead', async () => {
    const page = await failure(resolve('https://huggingface.co/Qwen/Qwen3-0.6B/tree/main'));
    expect(page.fix).toBe('Give the name alone: Qwen/Qwen3-0.6B');
    expect((await failure(resolve('models/demo-text/config.json'))).fix).toContain('models/demo-text');
    expect(hub.server.requests).toEqual([]);
  });

  it('that is neither is refused, a file too', async () => {
    writeFileSync(join(hub.home.path, 'x.gguf'), 'GGUF');
    writeFileSync(join(hub.home.path, 'x.safetensors'), '');
    expect((await failure(resolve('./nowhere'))).code).toBe('model-not-found');
    expect(await failure(resolve(''))).toMatchObject({
      code: 'model-not-found',
      fix: expect.stringMatching(/folder/),
    });
    expect(await resolve(join(hub.home.path, 'x.gguf'))).toMatchObject({
      folder: join(hub.home.path, 'x.gguf'),
    });
    expect((await failure(resolve(join(hub.home.path, 'x.safetensors')))).message).toMatch(/is a file/);
  });
});

describe('fetching', () => {
  it('fetches what is needed and nothing else, into the layout of the cache', async () => {
    const resolved = await resolve('org/model');
    const folder = join(hub.repo, 'snapshots', COMMIT);
    expect(resolved).toEqual({ folder, from: 'hub', id: 'org/model', commit: COMMIT });
    expect(listed(folder)).toEqual([...needed].sort());
    expect(readFileSync(join(hub.repo, 'refs', 'main'), 'utf8')).toBe(COMMIT);
    for (const name of needed) {
      const body = files[name as keyof typeof files];
      const hash = name.endsWith('.safetensors') ? sha256(body) : gitHash(body);
      expect(readFileSync(join(folder, name)).equals(body)).toBe(true);
      expect(lstatSync(join(folder, name)).isSymbolicLink()).toBe(true);
      const up = name.includes('/') ? '../../../blobs/' : '../../blobs/';
      expect(readlinkSync(join(folder, name))).toBe(up + hash);
    }
    expect(readdirSync(join(hub.repo, 'blobs')).filter((name) => !/^[0-9a-f]+$/.test(name))).toEqual([]);
    await using checkpoint = await Checkpoint.open(folder);
    expect(checkpoint.names()).toEqual(['a', 'b']);
  });

  it('reports every file and byte', async () => {
    const seen: HubProgress[] = [];
    await resolve('org/model', {}, { onProgress: (progress) => seen.push(progress) });
    const total = needed.reduce((sum, name) => sum + files[name as keyof typeof files].byteLength, 0);
    expect(seen.at(-1)).toEqual({
      file: 'model-00002-of-00002.safetensors',
      index: needed.length - 1,
      files: needed.length,
      bytes: total,
      totalBytes: total,
    });
    expect(new Set(seen.map(({ file }) => file))).toEqual(new Set(needed));
    expect(seen.map(({ bytes }) => bytes)).toEqual(seen.map(({ bytes }) => bytes).sort((a, b) => a - b));
    expect(seen.filter(({ file }) => file === 'model-00001-of-00002.safetensors').length).toBeGreaterThan(2);
  });

  it('asks again for a branch, not for a commit, and fetches nothing twice', async () => {
    await resolve('org/model');
    const before = hub.server.requests.length;
    expect((await resolve('org/model')).from).toBe('hub');
    expect(hub.server.requests.slice(before).filter(({ path }) => path.includes('/resolve/'))).toEqual([]);
    const middle = hub.server.requests.length;
    expect((await resolve(`org/model@${COMMIT}`)).from).toBe('cache');
    expect(hub.server.requests.length).toBe(middle);
  });

  it('shares blobs between revisions, and fetches what changed', async () => {
    await resolve('org/model');
    const next = COMMIT.replaceAll('0', 'f');
    hub.server.repos.set('org/model', {
      commit: next,
      revisions: ['main'],
      files: { ...files, 'config.json': text('{"new":1}') },
    });
    const before = hub.server.requests.length;
    const { folder } = await resolve('org/model');
    expect(folder).toContain(next);
    const fetched = hub.server.requests.slice(before).filter(({ path }) => path.includes('/resolve/'));
    expect(fetched.map(({ path }) => path.split('/').at(-1))).toEqual(['config.json']);
    expect(listed(folder)).toEqual([...needed].sort());
  });

  it('takes tags and pull requests as revisions', async () => {
    await resolve('org/model@refs/pr/3');
    expect(readFileSync(join(hub.repo, 'refs/refs/pr/3'), 'utf8')).toBe(COMMIT);
    expect((await resolve('org/model@v1')).commit).toBe(COMMIT);
    await resolve('org/model', {}, { revision: 'v1' });
    expect(readFileSync(join(hub.repo, 'refs/v1'), 'utf8')).toBe(COMMIT);
    expect((await failure(resolve('org/model', {}, { revision: 'v9' }))).code).toBe('hub-revision-not-found');
    expect((await failure(resolve('org/model@v1', {}, { revision: 'main' }))).code).toBe('model-not-found');
    writeFileSync(join(hub.home.path, 'config.json'), '{}');
    expect(await resolve(hub.home.path, {}, { revision: 'v1' })).toEqual({
      folder: hub.home.path,
      from: 'folder',
    });
  });

  it('prefers a single file where there is no index', async () => {
    const { [INDEX_NAME]: _, ...rest } = files;
    hub.server.repos.set('org/model', {
      commit: COMMIT,
      revisions: ['main'],
      files: { ...rest, 'model.safetensors': shard2 },
    });
    const { folder } = await resolve('org/model');
    expect(listed(folder).filter((name) => name.endsWith('.safetensors'))).toEqual(['model.safetensors']);
  });

  it('fetches shards that lie in a folder where the index at the root names them there, and finds them offline', async () => {
    const { [INDEX_NAME]: _, ...rest } = files;
    const names = Object.keys(rest).filter(
      (name) => !name.endsWith('.safetensors') && !name.endsWith('.gguf'),
    );
    const small = Object.fromEntries(names.map((name) => [name, rest[name as keyof typeof rest]]));
    const weight_map = {
      a: 'weights/model-00001-of-00002.safetensors',
      b: 'weights/model-00002-of-00002.safetensors',
    };
    hub.server.repos.set('org/model', {
      commit: COMMIT,
      revisions: ['main'],
      files: {
        ...small,
        [INDEX_NAME]: text(JSON.stringify({ weight_map })),
        [weight_map.a]: shard1,
        [weight_map.b]: shard2,
      },
    });
    const { folder } = await resolve('hf:org/model');
    await using checkpoint = await Checkpoint.open(folder);
    expect(checkpoint.names().sort()).toEqual(['a', 'b']);
    expect(checkpoint.info('b')?.file).toBe(weight_map.b);
    const offline = { HF_HUB_OFFLINE: '1' };
    expect(await resolve('hf.co/org/model', offline)).toMatchObject({ folder, from: 'cache' });
    rmSync(join(folder, weight_map.b));
    expect((await failure(resolve('hf:org/model', offline))).code).toBe('hub-offline');
  });

  it('honours HF_HUB_CACHE and XDG_CACHE_HOME', async () => {
    const elsewhere = join(hub.home.path, 'elsewhere');
    expect((await resolve('org/model', { HF_HUB_CACHE: elsewhere })).folder).toBe(
      join(elsewhere, 'models--org--model', 'snapshots', COMMIT),
    );
    const xdg = await resolve('org/model', { HF_HOME: '', XDG_CACHE_HOME: join(hub.home.path, 'xdg') });
    expect(xdg.folder.startsWith(join(hub.home.path, 'xdg/huggingface/hub/models--org--model'))).toBe(true);
  });

  it('never writes outside the snapshot, whatever a path says', async () => {
    const wild = {
      ...files,
      '../../evil.json': text('x'),
      'a/../../config.json': text('x'),
      '/etc/tokenizer.json': text('x'),
    };
    hub.server.repos.set('org/model', { commit: COMMIT, revisions: ['main'], files: wild });
    const { folder } = await resolve('org/model');
    expect(listed(folder)).toEqual([...needed].sort());
    expect(existsSync(join(hub.repo, 'evil.json'))).toBe(false);
  });

  it('fetches once when two ask at once', async () => {
    const [a, b] = await Promise.all([resolve('org/model'), resolve('org/model')]);
    expect(a.folder).toBe(b.folder);
    expect(readFileSync(join(a.folder, 'model-00001-of-00002.safetensors')).equals(shard1)).toBe(true);
    expect(
      requestsOf('/model-00001-of-00002.safetensors').filter(({ server }) => server === 'hub').length,
    ).toBe(1);
  });
});

describe('the token', () => {
  it('goes to the hub and not to where large files lie', async () => {
    hub.server.repos.set('org/model', { commit: COMMIT, revisions: ['main'], files, private: true });
    await resolve('org/model', { HF_TOKEN: TOKEN });
    const asked = hub.server.requests.filter((request) => request.server === 'hub');
    const cdn = hub.server.requests.filter((request) => request.server === 'cdn');
    expect(new Set(asked.map(({ authorization }) => authorization))).toEqual(new Set([`Bearer ${TOKEN}`]));
    expect(cdn.length).toBe(2);
    expect(new Set(cdn.map(({ authorization }) => authorization))).toEqual(new Set([undefined]));
    expect(hub.server.requests.every(({ accept }) => !accept?.includes('xet'))).toBe(true);
  });

  it('is found where logging in leaves it, unless told not to look', async () => {
    hub.server.repos.set('org/model', { commit: COMMIT, revisions: ['main'], files, private: true });
    writeFileSync(join(hub.home.path, 'token'), `${TOKEN}\n`);
    const refused = await failure(resolve('org/model', { HF_HUB_DISABLE_IMPLICIT_TOKEN: '1' }));
    expect(refused.code).toBe('hub-model-not-found');
    expect((await resolve('org/model')).from).toBe('hub');
  });

  it('that is wrong is said to be wrong', async () => {
    const error = await failure(resolve('org/model', { HF_TOKEN: 'hf_wrong' }));
    expect(error).toMatchObject({ code: 'hub-unauthorized', fix: expect.stringMatching(/HF_TOKEN/) });
    expect(error.message).toMatch(/Invalid credentials/);
    expect(JSON.stringify(error)).not.toContain('hf_wrong');
  });
});

describe('resuming', () => {
  const name = 'model-00001-of-00002.safetensors';

  it('goes on where the connection was cut, in the same run', async () => {
    fault({ match: /cdn .*00001/, cutAfter: 70_000 });
    fault({ match: /cdn .*00001/, cutAfter: 50_000 });
    const { folder } = await resolve('org/model');
    expect(readFileSync(join(folder, name)).equals(shard1)).toBe(true);
    const ranges = hub.server.requests
      .filter(({ server, path }) => server === 'cdn' && path.includes('00001'))
      .map(({ range }) => range);
    expect(ranges.length).toBe(3);
    expect(ranges[0]).toBeUndefined();
    expect(ranges.slice(1).map((range) => /^bytes=[1-9]\d+-/.test(range ?? ''))).toEqual([true, true]);
  });

  it('goes on in a later run, from the very byte', async () => {
    mkdirSync(join(hub.repo, 'blobs'), { recursive: true });
    writeFileSync(`${blob(sha256(shard1))}.kvant-partial`, shard1.subarray(0, 123_457));
    const seen: number[] = [];
    const onProgress = ({ file, bytes }: HubProgress) => {
      if (file === name) seen.push(bytes);
    };
    const { folder } = await resolve('org/model', {}, { onProgress });
    expect(readFileSync(join(folder, name)).equals(shard1)).toBe(true);
    const cdn = hub.server.requests.filter(({ server, path }) => server === 'cdn' && path.includes('00001'));
    expect(cdn.map(({ range }) => range)).toEqual([`bytes=123457-${shard1.length - 1}`]);
    expect(seen[0]).toBeGreaterThanOrEqual(123_457);
    expect(readdirSync(join(hub.repo, 'blobs')).filter((entry) => entry.includes('.'))).toEqual([]);
  });

  it.each([
    ['is damaged', () => Buffer.concat([Buffer.from('junk'), shard1.subarray(4, 100_000)])],
    ['is too long', () => Buffer.concat([shard1, Buffer.alloc(10)])],
    ['is whole but damaged', () => Buffer.concat([shard1.subarray(0, -1), Buffer.from([99])])],
    ['is whole', () => shard1],
  ])('recovers where what lies there %s', async (_, partial) => {
    mkdirSync(join(hub.repo, 'blobs'), { recursive: true });
    writeFileSync(`${blob(sha256(shard1))}.kvant-partial`, partial());
    const { folder } = await resolve('org/model');
    expect(readFileSync(join(folder, name)).equals(shard1)).toBe(true);
  });

  it('starts over where the server knows no ranges', async () => {
    fault({ match: /cdn .*00001/, cutAfter: 70_000 });
    fault({ match: /cdn .*00001/, ignoreRange: true });
    const { folder } = await resolve('org/model');
    expect(readFileSync(join(folder, name)).equals(shard1)).toBe(true);
  });

  it('gives up on a line that brings nothing, and says that it can be resumed', async () => {
    fault({ match: /cdn .*00001/, cutAfter: 70_000 });
    fault({ match: /cdn .*00001/, cutAfter: 0, times: 10 });
    const error = await failure(resolve('org/model'));
    expect(error).toMatchObject({ code: 'hub-network', fix: expect.stringMatching(/resumed/) });
    hub.server.faults.length = 0;
    expect(readFileSync(join((await resolve('org/model')).folder, name)).equals(shard1)).toBe(true);
    expect(
      hub.server.requests.at(-1)?.range ??
        hub.server.requests.find(({ range }) => range !== undefined)?.range,
    ).toMatch(/^bytes=[1-9]/);
  });

  it('does not wait for ever on a server gone silent', async () => {
    fault({ match: /cdn .*00001/, stallAfter: 70_000 });
    const { folder } = await resolve('org/model', {}, { timeoutMs: 300 });
    expect(readFileSync(join(folder, name)).equals(shard1)).toBe(true);
  });

  it('refuses bytes that do not have their hash', async () => {
    fault({ match: /cdn .*00001/, corrupt: true, times: 5 });
    const error = await failure(resolve('org/model'));
    expect(error).toMatchObject({ code: 'hub-corrupt', message: expect.stringContaining(name) });
    expect(existsSync(blob(sha256(shard1)))).toBe(false);
    fault({ match: /resolve.*config\.json/, corrupt: true, times: 5 });
    rmSync(hub.repo, { recursive: true });
    expect((await failure(resolve('org/model'))).code).toBe('hub-corrupt');
  });

  it('forgives one bad delivery', async () => {
    fault({ match: /cdn .*00001/, corrupt: true });
    expect(readFileSync(join((await resolve('org/model')).folder, name)).equals(shard1)).toBe(true);
  });

  it('stops when it is cancelled and keeps what it has', async () => {
    const controller = new AbortController();
    fault({ match: /cdn .*00001/, stallAfter: 70_000 });
    const onProgress = ({ file, bytes, totalBytes }: HubProgress) => {
      if (file === name && bytes > totalBytes * 0.2) controller.abort();
    };
    const error = await failure(resolve('org/model', {}, { signal: controller.signal, onProgress }));
    expect(error.code).toBe('cancelled');
    expect(readFileSync(`${blob(sha256(shard1))}.kvant-partial`).length).toBeGreaterThan(0);
    expect(existsSync(`${blob(sha256(shard1))}.lock`)).toBe(false);
  });
});
