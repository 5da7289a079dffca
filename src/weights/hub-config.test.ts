import { homedir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { failure, folderWith } from '../../test/fixtures/weights/build.js';
import { hubConfig } from './hub-config.js';

it.each<[string, Record<string, string>, string]>([
  ['HF_HUB_CACHE', { HF_HUB_CACHE: '/c', HF_HOME: '/h', HUGGINGFACE_HUB_CACHE: '/o' }, '/c'],
  ['HUGGINGFACE_HUB_CACHE', { HUGGINGFACE_HUB_CACHE: '/o', HF_HOME: '/h' }, '/o'],
  ['HF_HOME', { HF_HOME: '/h', XDG_CACHE_HOME: '/x' }, '/h/hub'],
  ['XDG_CACHE_HOME', { XDG_CACHE_HOME: '/x' }, '/x/huggingface/hub'],
  ['a tilde', { HF_HOME: '~/models' }, join(homedir(), 'models/hub')],
  ['an empty variable', { HF_HOME: ' ', XDG_CACHE_HOME: '/x' }, '/x/huggingface/hub'],
])('the cache folder by %s', async (_, env, expected) => {
  const { cacheFolder } = await hubConfig({ HF_HUB_DISABLE_IMPLICIT_TOKEN: '1', ...env });
  expect(cacheFolder).toBe(expected);
});

it('has the defaults of the Hugging Face tools', async () => {
  expect(await hubConfig({ HF_HUB_DISABLE_IMPLICIT_TOKEN: '1' })).toEqual({
    endpoint: 'https://huggingface.co',
    cacheFolder: join(homedir(), '.cache/huggingface/hub'),
    token: undefined,
    offline: false,
  });
});

it('finds the token: the variables first, then the file', async () => {
  using folder = folderWith({ token: 'hf_file\n', other: 'hf_other' });
  const HF_HOME = folder.path;
  const token = async (env: Record<string, string>) => (await hubConfig({ HF_HOME, ...env })).token;
  expect(await token({ HF_TOKEN: ' hf_env ' })).toBe('hf_env');
  expect(await token({ HUGGING_FACE_HUB_TOKEN: 'hf_old' })).toBe('hf_old');
  expect(await token({})).toBe('hf_file');
  expect(await token({ HF_TOKEN_PATH: join(folder.path, 'other') })).toBe('hf_other');
  expect(await token({ HF_HUB_DISABLE_IMPLICIT_TOKEN: '1' })).toBeUndefined();
  expect(await token({ HF_HUB_DISABLE_IMPLICIT_TOKEN: '1', HF_TOKEN: 'hf_env' })).toBe('hf_env');
});

it('puts a token together that was broken into lines, and never shows one that is none', async () => {
  const of = (HF_TOKEN: string) => hubConfig({ HF_TOKEN });
  expect((await of('hf_one\r\n')).token).toBe('hf_one');
  expect((await of('hf_\nbroken')).token).toBe('hf_broken');
  for (const bad of ['hf_s\u00e9cret', 'hf_a secret', 'hf_secret\u0000']) {
    const error = await failure(of(bad));
    expect(error).toMatchObject({
      code: 'hub-token',
      fix: expect.stringMatching(/log in/),
    });
    expect(`${error.message}${error.fix}`).not.toContain('cret');
  }
});

it('reads an endpoint with or without a slash, and refuses what is none', async () => {
  const of = (HF_ENDPOINT: string) => hubConfig({ HF_ENDPOINT, HF_HUB_DISABLE_IMPLICIT_TOKEN: '1' });
  expect((await of('http://127.0.0.1:80//')).endpoint).toBe('http://127.0.0.1:80');
  for (const bad of ['localhost', 'file:///x', 'http://', 'ftp://x']) {
    expect((await failure(of(bad))).code, bad).toBe('hub-endpoint');
  }
});
