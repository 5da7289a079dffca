import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { f32, failure, folderWith, safetensors } from '../../test/fixtures/weights/build.js';
import { type Fault, gitHash, HubServer, sha256, TOKEN } from '../../test/fixtures/weights/hub-server.js';
import { Checkpoint, INDEX_NAME } from './checkpoint.js';
import { type HubProgress, parseHubId, type ResolveOptions, resolveModel } from './hub.js';

const COMMIT = '0123456789abcdef0123456789abcdef01234567';
const text = (content: string) => Buffer.from(content);
const shard = (name: string, count: number) =>
  safetensors({
    [name]: f32(
      [count],
      Array.from({ length: count }, (_, i) => i),
    ),
  });
const shard1 = shard('a', 50_000);
const shard2 = shard('b', 300);
const files = {
  'config.json': text('{"model_type":"llama"}'),
  'tokenizer.json': text('{"tok":1}'),
  'tokenizer_config.json': text('{}'),
  'generation_config.json': text('{}'),
  'chat_template.jinja': text('{{ messages }}'),
  'additional_chat_templates/tool.jinja': text('tool'),
  [INDEX_NAME]: text(
    JSON.stringify({
      weight_map: { a: 'model-00001-of-00002.safetensors', b: 'model-00002-of-00002.safetensors' },
    }),
  ),
  'model-00001-of-00002.safetensors': shard1,
  'model-00002-of-00002.safetensors': shard2,
  'consolidated.safetensors': shard1,
  'pytorch_model.bin': text('pickle'),
  'model.gguf': text('GGUF'),
  'onnx/model.onnx': text('onnx'),
  'original/params.json': text('{}'),
  'README.md': text('# card'),
  '.gitattributes': text(''),
};
const needed = [
  'additional_chat_templates/tool.jinja',
  'chat_template.jinja',
  'config.json',
  'generation_config.json',
  'model-00001-of-00002.safetensors',
  'model-00002-of-00002.safetensors',
  INDEX_NAME,
  'tokenizer.json',
  'tokenizer_config.json',
];

let server: HubServer;
let home: { path: string } & Disposable;
beforeEach(async () => {
  server = await HubServer.start();
  server.repos.set('org/model', { commit: COMMIT, revisions: ['main', 'v1', 'refs/pr/3'], files });
  home = folderWith({});
});
afterEach(async () => {
  home[Symbol.dispose]();
  await server[Symbol.asyncDispose]();
});

function resolve(argument: string, env: Record<string, string> = {}, more: Omit<ResolveOptions, 'env'> = {}) {
  return resolveModel(argument, {
    env: { HF_HOME: home.path, HF_ENDPOINT: server.endpoint, ...env },
    retryDelayMs: 1,
    ...more,
  });
}

const repoFolder = () => join(home.path, 'hub', 'models--org--model');
const blob = (hash: string) => join(repoFolder(), 'blobs', hash);
const requestsOf = (name: string) => server.requests.filter(({ path }) => path.endsWith(name));
const fault = (f: Fault) => server.faults.push(f);

function listed(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => !entry.isDirectory())
    .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1))
    .sort();
}

describe('a model argument', () => {
  it('is a folder where there is one', async () => {
    expect(await resolve(home.path)).toEqual({ folder: home.path, from: 'folder' });
    expect(server.requests).toEqual([]);
  });

  it.each([
    ['org/name', { id: 'org/name', revision: 'main' }],
    ['Qwen/Qwen3-0.6B', { id: 'Qwen/Qwen3-0.6B', revision: 'main' }],
    ['org/name@v1.0', { id: 'org/name', revision: 'v1.0' }],
    ['org/name@refs/pr/1', { id: 'org/name', revision: 'refs/pr/1' }],
    [`o/n@${COMMIT}`, { id: 'o/n', revision: COMMIT }],
    ['name', undefined],
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

  it('that is neither is refused, a file too', async () => {
    writeFileSync(join(home.path, 'x.gguf'), 'GGUF');
    writeFileSync(join(home.path, 'x.safetensors'), '');
    expect((await failure(resolve('./nowhere'))).code).toBe('model-not-found');
    expect(await failure(resolve(''))).toMatchObject({
      code: 'model-not-found',
      fix: expect.stringMatching(/folder/),
    });
    expect((await failure(resolve(join(home.path, 'x.gguf')))).code).toBe('weights-gguf');
    expect((await failure(resolve(join(home.path, 'x.safetensors')))).message).toMatch(/is a file/);
  });
});

describe('fetching', () => {
  it('fetches what is needed and nothing else, into the layout of the cache', async () => {
    const resolved = await resolve('org/model');
    const folder = join(repoFolder(), 'snapshots', COMMIT);
    expect(resolved).toEqual({ folder, from: 'hub', id: 'org/model', commit: COMMIT });
    expect(listed(folder)).toEqual([...needed].sort());
    expect(readFileSync(join(repoFolder(), 'refs', 'main'), 'utf8')).toBe(COMMIT);
    for (const name of needed) {
      const body = files[name as keyof typeof files];
      const hash = name.endsWith('.safetensors') ? sha256(body) : gitHash(body);
      expect(readFileSync(join(folder, name)).equals(body)).toBe(true);
      expect(lstatSync(join(folder, name)).isSymbolicLink()).toBe(true);
      const up = name.includes('/') ? '../../../blobs/' : '../../blobs/';
      expect(readlinkSync(join(folder, name))).toBe(up + hash);
    }
    expect(readdirSync(join(repoFolder(), 'blobs')).filter((name) => !/^[0-9a-f]+$/.test(name))).toEqual([]);
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
    const before = server.requests.length;
    expect((await resolve('org/model')).from).toBe('hub');
    expect(server.requests.slice(before).filter(({ path }) => path.includes('/resolve/'))).toEqual([]);
    const middle = server.requests.length;
    expect((await resolve(`org/model@${COMMIT}`)).from).toBe('cache');
    expect(server.requests.length).toBe(middle);
  });

  it('shares blobs between revisions, and fetches what changed', async () => {
    await resolve('org/model');
    const next = COMMIT.replaceAll('0', 'f');
    server.repos.set('org/model', {
      commit: next,
      revisions: ['main'],
      files: { ...files, 'config.json': text('{"new":1}') },
    });
    const before = server.requests.length;
    const { folder } = await resolve('org/model');
    expect(folder).toContain(next);
    const fetched = server.requests.slice(before).filter(({ path }) => path.includes('/resolve/'));
    expect(fetched.map(({ path }) => path.split('/').at(-1))).toEqual(['config.json']);
    expect(listed(folder)).toEqual([...needed].sort());
  });

  it('takes tags and pull requests as revisions', async () => {
    await resolve('org/model@refs/pr/3');
    expect(readFileSync(join(repoFolder(), 'refs/refs/pr/3'), 'utf8')).toBe(COMMIT);
    expect((await resolve('org/model@v1')).commit).toBe(COMMIT);
    await resolve('org/model', {}, { revision: 'v1' });
    expect(readFileSync(join(repoFolder(), 'refs/v1'), 'utf8')).toBe(COMMIT);
    expect((await failure(resolve('org/model', {}, { revision: 'v9' }))).code).toBe('hub-revision-not-found');
    expect((await failure(resolve('org/model@v1', {}, { revision: 'main' }))).code).toBe('model-not-found');
    expect(await resolve(home.path, {}, { revision: 'v1' })).toEqual({ folder: home.path, from: 'folder' });
  });

  it('prefers a single file where there is no index', async () => {
    const { [INDEX_NAME]: _, ...rest } = files;
    server.repos.set('org/model', {
      commit: COMMIT,
      revisions: ['main'],
      files: { ...rest, 'model.safetensors': shard2 },
    });
    const { folder } = await resolve('org/model');
    expect(listed(folder).filter((name) => name.endsWith('.safetensors'))).toEqual(['model.safetensors']);
  });

  it('honours HF_HUB_CACHE and XDG_CACHE_HOME', async () => {
    const elsewhere = join(home.path, 'elsewhere');
    expect((await resolve('org/model', { HF_HUB_CACHE: elsewhere })).folder).toBe(
      join(elsewhere, 'models--org--model', 'snapshots', COMMIT),
    );
    const xdg = await resolve('org/model', { HF_HOME: '', XDG_CACHE_HOME: join(home.path, 'xdg') });
    expect(xdg.folder.startsWith(join(home.path, 'xdg/huggingface/hub/models--org--model'))).toBe(true);
  });

  it('never writes outside the snapshot, whatever a path says', async () => {
    const wild = {
      ...files,
      '../../evil.json': text('x'),
      'a/../../config.json': text('x'),
      '/etc/tokenizer.json': text('x'),
    };
    server.repos.set('org/model', { commit: COMMIT, revisions: ['main'], files: wild });
    const { folder } = await resolve('org/model');
    expect(listed(folder)).toEqual([...needed].sort());
    expect(existsSync(join(repoFolder(), 'evil.json'))).toBe(false);
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
    server.repos.set('org/model', { commit: COMMIT, revisions: ['main'], files, private: true });
    await resolve('org/model', { HF_TOKEN: TOKEN });
    const hub = server.requests.filter((request) => request.server === 'hub');
    const cdn = server.requests.filter((request) => request.server === 'cdn');
    expect(new Set(hub.map(({ authorization }) => authorization))).toEqual(new Set([`Bearer ${TOKEN}`]));
    expect(cdn.length).toBe(2);
    expect(new Set(cdn.map(({ authorization }) => authorization))).toEqual(new Set([undefined]));
    expect(server.requests.every(({ accept }) => !accept?.includes('xet'))).toBe(true);
  });

  it('is found where logging in leaves it, unless told not to look', async () => {
    server.repos.set('org/model', { commit: COMMIT, revisions: ['main'], files, private: true });
    writeFileSync(join(home.path, 'token'), `${TOKEN}\n`);
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
    const ranges = server.requests
      .filter(({ server, path }) => server === 'cdn' && path.includes('00001'))
      .map(({ range }) => range);
    expect(ranges.length).toBe(3);
    expect(ranges[0]).toBeUndefined();
    expect(ranges.slice(1).map((range) => /^bytes=[1-9]\d+-/.test(range ?? ''))).toEqual([true, true]);
  });

  it('goes on in a later run, from the very byte', async () => {
    mkdirSync(join(repoFolder(), 'blobs'), { recursive: true });
    writeFileSync(`${blob(sha256(shard1))}.incomplete`, shard1.subarray(0, 123_457));
    const seen: number[] = [];
    const onProgress = ({ file, bytes }: HubProgress) => {
      if (file === name) seen.push(bytes);
    };
    const { folder } = await resolve('org/model', {}, { onProgress });
    expect(readFileSync(join(folder, name)).equals(shard1)).toBe(true);
    const cdn = server.requests.filter(({ server, path }) => server === 'cdn' && path.includes('00001'));
    expect(cdn.map(({ range }) => range)).toEqual([`bytes=123457-${shard1.length - 1}`]);
    expect(seen[0]).toBeGreaterThanOrEqual(123_457);
    expect(readdirSync(join(repoFolder(), 'blobs')).filter((entry) => entry.includes('.'))).toEqual([]);
  });

  it.each([
    ['is damaged', () => Buffer.concat([Buffer.from('junk'), shard1.subarray(4, 100_000)])],
    ['is too long', () => Buffer.concat([shard1, Buffer.alloc(10)])],
    ['is whole but damaged', () => Buffer.concat([shard1.subarray(0, -1), Buffer.from([99])])],
    ['is whole', () => shard1],
  ])('recovers where what lies there %s', async (_, partial) => {
    mkdirSync(join(repoFolder(), 'blobs'), { recursive: true });
    writeFileSync(`${blob(sha256(shard1))}.incomplete`, partial());
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
    server.faults.length = 0;
    expect(readFileSync(join((await resolve('org/model')).folder, name)).equals(shard1)).toBe(true);
    expect(
      server.requests.at(-1)?.range ?? server.requests.find(({ range }) => range !== undefined)?.range,
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
    rmSync(repoFolder(), { recursive: true });
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
    expect(readFileSync(`${blob(sha256(shard1))}.incomplete`).length).toBeGreaterThan(0);
    expect(existsSync(`${blob(sha256(shard1))}.lock`)).toBe(false);
  });
});

describe('offline', () => {
  it('finds what was fetched, and never asks', async () => {
    await resolve('org/model');
    const before = server.requests.length;
    for (const env of [
      { HF_HUB_OFFLINE: '1' },
      { HF_HUB_OFFLINE: 'true' },
      { TRANSFORMERS_OFFLINE: 'YES' },
    ]) {
      expect(await resolve('org/model', env)).toMatchObject({
        from: 'cache',
        commit: COMMIT,
        id: 'org/model',
      });
    }
    expect(server.requests.length).toBe(before);
  });

  it('says what is missing', async () => {
    const offline = { HF_HUB_OFFLINE: '1' };
    const none = await failure(resolve('org/model', offline));
    expect(none).toMatchObject({ code: 'hub-offline', fix: expect.stringMatching(/HF_HUB_OFFLINE/) });
    expect(none.message).toMatch(/is not in/);
    await resolve('org/model');
    expect((await failure(resolve('org/model@v1', offline))).code).toBe('hub-offline');
    rmSync(join(repoFolder(), 'blobs', sha256(shard2)));
    expect((await failure(resolve('org/model', offline))).message).toMatch(/only partly/);
    expect(server.requests.filter(({ path }) => path.includes('v1'))).toEqual([]);
  });

  it('does not take half a download for a model', async () => {
    fault({ match: /cdn .*00002/, status: 403 });
    expect((await failure(resolve('org/model'))).code).toBe('hub-forbidden');
    expect((await failure(resolve('org/model', { HF_HUB_OFFLINE: '1' }))).code).toBe('hub-offline');
  });

  it('reads a cache that huggingface_hub left', async () => {
    const folder = join(repoFolder(), 'snapshots', COMMIT);
    mkdirSync(folder, { recursive: true });
    mkdirSync(join(repoFolder(), 'refs'));
    writeFileSync(join(repoFolder(), 'refs', 'main'), COMMIT);
    writeFileSync(join(folder, 'config.json'), '{}');
    writeFileSync(join(folder, 'model.safetensors'), shard2);
    expect(await resolve('org/model', { HF_HUB_OFFLINE: '1' })).toMatchObject({ folder, from: 'cache' });
  });

  it('falls back to the cache when the hub is down, and says so', async () => {
    const nowhere = { HF_ENDPOINT: 'http://127.0.0.1:9' };
    const error = await failure(resolve('org/model', nowhere));
    expect(error).toMatchObject({ code: 'hub-network', fix: expect.stringMatching(/HF_ENDPOINT/) });
    await resolve('org/model');
    const resolved = await resolve('org/model', nowhere);
    expect(resolved).toMatchObject({
      from: 'cache',
      commit: COMMIT,
      notice: expect.stringMatching(/cannot be reached/),
    });
  });
});

describe('errors', () => {
  it.each<[string, string, number, Record<string, string>, string, RegExp]>([
    ['a model that does not exist', 'org/gone', 0, {}, 'hub-model-not-found', /HF_TOKEN/],
    ['a revision that does not exist', 'org/model@v9', 0, {}, 'hub-revision-not-found', /branches and tags/],
    ['403', 'org/model', 403, {}, 'hub-forbidden', /permissions/],
    ['404 without a code', 'org/model', 404, {}, 'hub-model-not-found', /Check the name/],
    [
      'a gated model',
      'org/model',
      403,
      { 'X-Error-Code': 'GatedRepo' },
      'hub-gated',
      /Accept the conditions/,
    ],
    ['418', 'org/model', 418, {}, 'hub-answer', /Try again/],
  ])('%s', async (_, argument, status, headers, code, fix) => {
    if (status !== 0) fault({ match: /api/, status, headers });
    const error = await failure(resolve(argument));
    expect(error.code).toBe(code);
    expect(error.fix).toMatch(fix);
  });

  it('a gated model, with a token and without', async () => {
    server.repos.set('org/model', { commit: COMMIT, revisions: ['main'], files, gated: true });
    const without = await failure(resolve('org/model'));
    expect(without).toMatchObject({ code: 'hub-gated', fix: expect.stringMatching(/set HF_TOKEN/) });
    expect(without.message).toMatch(/is restricted/);
    const having = await failure(resolve('org/model', { HF_TOKEN: TOKEN }));
    expect(having).toMatchObject({ code: 'hub-gated', fix: expect.stringMatching(/approval/) });
  });

  it('waits out a busy server, but not for ever', async () => {
    fault({ match: /api.*revision/, status: 503 });
    fault({ match: /api.*tree/, status: 429, headers: { 'retry-after': '0' } });
    fault({ match: /resolve.*tokenizer\.json/, status: 500 });
    fault({ match: /cdn .*00001/, status: 502 });
    expect((await resolve('org/model')).from).toBe('hub');
    fault({ match: /api.*revision/, status: 503, times: 20 });
    const error = await failure(resolve('org/model'));
    expect(error).toMatchObject({ code: 'hub-answer', message: expect.stringMatching(/503/) });
  });

  it.each<[string, string, Record<string, Uint8Array>]>([
    ['only a pickle', 'weights-pickle', { 'config.json': text('{}'), 'pytorch_model.bin': text('x') }],
    ['only GGUF', 'weights-gguf', { 'model-q4.gguf': text('x') }],
    ['no weights', 'weights-none', { 'config.json': text('{}') }],
    ['no config', 'model-file-missing', { 'model.safetensors': shard2 }],
    [
      'an index with an absent shard',
      'weights-shard-missing',
      {
        'config.json': text('{}'),
        'model.safetensors': shard2,
        [INDEX_NAME]: text('{"weight_map":{"b":"x.safetensors"}}'),
      },
    ],
  ])('a repository with %s is refused before its weights are fetched', async (_, code, some) => {
    server.repos.set('org/model', { commit: COMMIT, revisions: ['main'], files: some });
    expect((await failure(resolve('org/model'))).code).toBe(code);
    expect(server.requests.filter(({ path }) => /resolve.*(safetensors|bin|gguf)$/.test(path))).toEqual([]);
  });

  it('without the package: an error, or the cache', async () => {
    const importHub = async () => {
      throw Object.assign(new Error("Cannot find package '@huggingface/hub'"), {
        code: 'ERR_MODULE_NOT_FOUND',
      });
    };
    const error = await failure(resolve('org/model', {}, { importHub }));
    expect(error).toMatchObject({
      code: 'hub-package-missing',
      fix: expect.stringMatching(/npm install @huggingface\/hub/),
    });
    await resolve('org/model');
    expect(await resolve('org/model', {}, { importHub })).toMatchObject({ from: 'cache' });
  });

  it('a cache that cannot be made, and an endpoint that is none', async () => {
    writeFileSync(join(home.path, 'file'), '');
    const error = await failure(resolve('org/model', { HF_HUB_CACHE: join(home.path, 'file') }));
    expect(error).toMatchObject({ code: 'hub-cache', fix: expect.stringMatching(/HF_HOME/) });
    expect((await failure(resolve('org/model', { HF_ENDPOINT: 'huggingface' }))).code).toBe('hub-endpoint');
  });
});
