/** Resolving a model where the hub is not asked, cannot be reached, or refuses. */
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { failure } from '../../test/fixtures/weights/build.js';
import { COMMIT, files, HubFixture, shard2, text } from '../../test/fixtures/weights/hub-repo.js';
import { sha256, TOKEN } from '../../test/fixtures/weights/hub-server.js';
import { INDEX_NAME } from './shards.js';

const hub = HubFixture.use();
const { resolve, fault } = hub;

describe('offline', () => {
  it('finds what was fetched, and never asks', async () => {
    await resolve('org/model');
    const before = hub.server.requests.length;
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
    expect(hub.server.requests.length).toBe(before);
  });

  it('says what is missing', async () => {
    const offline = { HF_HUB_OFFLINE: '1' };
    const none = await failure(resolve('org/model', offline));
    expect(none).toMatchObject({ code: 'hub-offline', fix: expect.stringMatching(/HF_HUB_OFFLINE/) });
    expect(none.message).toMatch(/is not in/);
    await resolve('org/model');
    expect((await failure(resolve('org/model@v1', offline))).code).toBe('hub-offline');
    rmSync(join(hub.repo, 'blobs', sha256(shard2)));
    expect((await failure(resolve('org/model', offline))).message).toMatch(/only partly/);
    expect(hub.server.requests.filter(({ path }) => path.includes('v1'))).toEqual([]);
  });

  it('does not take half a download for a model', async () => {
    fault({ match: /cdn .*00002/, status: 403 });
    expect((await failure(resolve('org/model'))).code).toBe('hub-forbidden');
    expect((await failure(resolve('org/model', { HF_HUB_OFFLINE: '1' }))).code).toBe('hub-offline');
  });

  it('reads a cache that huggingface_hub left', async () => {
    const folder = join(hub.repo, 'snapshots', COMMIT);
    mkdirSync(folder, { recursive: true });
    mkdirSync(join(hub.repo, 'refs'));
    writeFileSync(join(hub.repo, 'refs', 'main'), COMMIT);
    writeFileSync(join(folder, 'config.json'), '{}');
    writeFileSync(join(folder, 'model.safetensors'), shard2);
    expect(await resolve('org/model', { HF_HUB_OFFLINE: '1' })).toMatchObject({ folder, from: 'cache' });
  });

  it.each<[string, string[]]>([
    ['its index', ['config.json', 'tokenizer.json', 'model-00001-of-00002.safetensors']],
    ['a shard', ['config.json', 'tokenizer.json', INDEX_NAME, 'model-00001-of-00002.safetensors']],
  ])('does not take for whole what another tool left without %s', async (_, names) => {
    const folder = join(hub.repo, 'snapshots', COMMIT);
    mkdirSync(folder, { recursive: true });
    for (const name of names) writeFileSync(join(folder, name), files[name as keyof typeof files]);
    const pinned = `org/model@${COMMIT}`;
    expect((await failure(resolve(pinned, { HF_HUB_OFFLINE: '1' }))).code).toBe('hub-offline');
    expect(await resolve(pinned)).toMatchObject({ folder, from: 'hub' });
    expect(await resolve(pinned, { HF_HUB_OFFLINE: '1' })).toMatchObject({ folder, from: 'cache' });
  });

  it('fetches the tokenizer of a pinned model whose weights another tool left', async () => {
    const folder = join(hub.repo, 'snapshots', COMMIT);
    mkdirSync(folder, { recursive: true });
    for (const name of Object.keys(files)) {
      if (/^(config|model.*)\.(json|safetensors)|index/.test(name)) {
        writeFileSync(join(folder, name), files[name as keyof typeof files]);
      }
    }
    expect((await resolve(`org/model@${COMMIT}`)).from).toBe('hub');
    expect(existsSync(join(folder, 'tokenizer.json'))).toBe(true);
    expect((await resolve(`org/model@${COMMIT}`)).from).toBe('cache');
  });

  it('falls back to the cache when the hub answers with errors only', async () => {
    await resolve('org/model');
    fault({ match: /api/, status: 503, times: 20 });
    expect(await resolve('org/model')).toMatchObject({
      from: 'cache',
      notice: expect.stringMatching(/503.*using the copy/),
    });
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
    hub.server.repos.set('org/model', { commit: COMMIT, revisions: ['main'], files, gated: true });
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
    rmSync(hub.repo, { recursive: true });
    fault({ match: /api.*revision/, status: 503, times: 20 });
    const error = await failure(resolve('org/model'));
    expect(error).toMatchObject({ code: 'hub-answer', message: expect.stringMatching(/503/) });
  });

  it.each<[string, string, Record<string, Uint8Array>]>([
    ['only a pickle', 'weights-pickle', { 'config.json': text('{}'), 'pytorch_model.bin': text('x') }],
    ['several GGUF', 'weights-gguf', { 'm-Q4_0.gguf': text('x'), 'm-Q8_0.gguf': text('x') }],
    ['no weights', 'weights-none', { 'config.json': text('{}') }],
    ['no config', 'model-file-missing', { 'model.safetensors': shard2 }],
    [
      'an index with an absent shard',
      'weights-shard-missing',
      {
        'config.json': text('{}'),
        'model-00001-of-00001.safetensors': shard2,
        [INDEX_NAME]: text('{"weight_map":{"b":"x.safetensors"}}'),
      },
    ],
  ])('a repository with %s is refused before its weights are fetched', async (_, code, some) => {
    hub.server.repos.set('org/model', { commit: COMMIT, revisions: ['main'], files: some });
    expect((await failure(resolve('org/model'))).code).toBe(code);
    expect(hub.server.requests.filter(({ path }) => /resolve.*(safetensors|bin|gguf)$/.test(path))).toEqual(
      [],
    );
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
    writeFileSync(join(hub.home.path, 'file'), '');
    const error = await failure(resolve('org/model', { HF_HUB_CACHE: join(hub.home.path, 'file') }));
    expect(error).toMatchObject({ code: 'hub-cache', fix: expect.stringMatching(/HF_HOME/) });
    expect((await failure(resolve('org/model', { HF_ENDPOINT: 'huggingface' }))).code).toBe('hub-endpoint');
  });
});
