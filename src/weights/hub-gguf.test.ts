import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { failure } from '../../test/fixtures/weights/build.js';
import { COMMIT, HubFixture, text } from '../../test/fixtures/weights/hub-repo.js';
import { chooseGguf, ggufModels, ggufTag } from './gguf-files.js';
import { parseHubId } from './hub.js';
import { chooseProjector } from './projectors.js';

const hub = HubFixture.use();
const { resolve } = hub;

const FILES = {
  'README.md': text('of several'),
  'm-Q4_K_M.gguf': text('four'),
  'm-Q8_0.gguf': text('eight'),
  'mmproj-m-F16.gguf': text('eyes'),
  'mmproj-m-BF16.gguf': text('other eyes'),
  'BF16/m-BF16-00001-of-00002.gguf': text('first'),
  'BF16/m-BF16-00002-of-00002.gguf': text('second'),
};

const holds = (files: Record<string, Uint8Array>): void => {
  hub.server.repos.set('org/gguf', { commit: COMMIT, revisions: ['main', 'v1'], files });
};
const fetched = (): string[] =>
  hub.server.requests.flatMap(({ path }) => /\/resolve\/[^/]+\/(.*)/.exec(path)?.[1] ?? []);

describe('a hub id with a tag', () => {
  it('is read with its revision', () => {
    expect(parseHubId('o/n:Q4_K_M')).toEqual({ id: 'o/n', revision: 'main', tag: 'Q4_K_M' });
    expect(parseHubId('o/n:Q8_0@v1')).toEqual({ id: 'o/n', revision: 'v1', tag: 'Q8_0' });
    expect(parseHubId('o/n:')).toBeUndefined();
    expect(parseHubId('o/n:a/b')).toBeUndefined();
  });

  it.each([
    ['SmolLM2-135M-Instruct.Q4_1.gguf', 'Q4_1'],
    ['Qwen3-0.6B-UD-Q4_K_XL.gguf', 'UD-Q4_K_XL'],
    ['gpt-oss-20b-mxfp4.gguf', 'mxfp4'],
    ['Q6_K/m-Q6_K-00001-of-00003.gguf', 'Q6_K'],
    ['model-iq4_xs.gguf', 'iq4_xs'],
    ['plain.gguf', 'plain'],
  ])('%s has the tag %s', (name, tag) => {
    expect(ggufTag(name)).toBe(tag);
  });

  it('is the end of a name, where no file has it as a whole', () => {
    const names = [
      'm-UD-Q4_K_XL.gguf',
      'UD-Q2_K_XL/m-UD-Q2_K_XL-00001-of-00002.gguf',
      'UD-Q2_K_XL/m-UD-Q2_K_XL-00002-of-00002.gguf',
      'm.i1-Q4_K_M.gguf',
      'm-IQ4_NL.gguf',
      'm-UD-IQ4_NL.gguf',
    ];
    const chosen = (tag: string): string[] => chooseGguf('o/n', names, tag);
    expect(chosen('q4_k_xl')).toEqual(['m-UD-Q4_K_XL.gguf']);
    expect(chosen('Q2_K_XL')).toEqual(names.slice(1, 3));
    expect(chosen('i1-Q4_K_M')).toEqual(['m.i1-Q4_K_M.gguf']);
    expect(chosen('IQ4_NL')).toEqual(['m-IQ4_NL.gguf']);
    for (const tag of ['K_XL_', '4_K_M', 'XL']) expect(() => chosen(tag)).toThrow(/no|2 GGUF models/);
  });

  it('asks the hub for a file with the whole tag where the cache has one that ends in it', async () => {
    holds({ 'm-UD-Q4_K_M.gguf': text('mixed'), 'm-Q4_K_M.gguf': text('four') });
    const mixed = await resolve(`org/gguf:UD-Q4_K_M@${COMMIT}`);
    expect(await resolve(`org/gguf:Q4_K_M@${COMMIT}`, { HF_HUB_OFFLINE: '1' })).toMatchObject({
      folder: mixed.folder,
      notice: 'm-UD-Q4_K_M.gguf is in the cache, and taken for Q4_K_M',
    });
    const { folder } = await resolve(`org/gguf:Q4_K_M@${COMMIT}`);
    expect(readFileSync(folder, 'utf8')).toBe('four');
  });

  it('leaves out what is no model: towers, matrices of importance, drafts, adapters, vocabularies', () => {
    const others = [
      'mmproj-BF16.gguf',
      'm-imatrix.gguf',
      'imatrix_unsloth.gguf',
      'mtp-m-Q8_0.gguf',
      'MTP/mtp-m-Q8_0.gguf',
      'eagle3-m-Q8_0.gguf',
      'dflash-m-Q8_0.gguf',
      'dspark-m-Q8_0.gguf',
      'm-135M-F16-LoRA.gguf',
      'ggml-vocab-qwen2.gguf',
      'm-vocab.gguf',
    ];
    expect(ggufModels([...others, 'm-MTP-Q8_0.gguf', 'Lora-8B-Q8_0.gguf'])).toEqual([
      'Lora-8B-Q8_0.gguf',
      'm-MTP-Q8_0.gguf',
    ]);
  });

  it('fetches that file and the mmproj file that llama.cpp would take, and finds it again offline', async () => {
    holds(FILES);
    const { folder, from, commit } = await resolve('org/gguf:q4_k_m');
    expect({ from, commit }).toEqual({ from: 'hub', commit: COMMIT });
    expect(folder.endsWith('m-Q4_K_M.gguf')).toBe(true);
    expect(readFileSync(folder, 'utf8')).toBe('four');
    expect(new Set(fetched())).toEqual(new Set(['m-Q4_K_M.gguf', 'mmproj-m-BF16.gguf']));
    expect((await chooseProjector(folder))!.path).toBe(folder.replace('m-Q4_K_M', 'mmproj-m-BF16'));
    const again = await resolve('org/gguf:Q4_K_M', { HF_HUB_OFFLINE: '1' });
    expect(again).toMatchObject({ folder, from: 'cache' });
    const other = await failure(resolve('org/gguf:Q8_0', { HF_HUB_OFFLINE: '1' }));
    expect(other.code).toBe('hub-offline');
  });

  it('leaves what sees where it is when it is not wanted', async () => {
    holds(FILES);
    await resolve('org/gguf:q4_k_m', {}, { projector: false });
    expect(new Set(fetched())).toEqual(new Set(['m-Q4_K_M.gguf']));
  });

  it('fetches all of a set, from a folder of its own', async () => {
    holds(FILES);
    const { folder } = await resolve('org/gguf:BF16@v1');
    expect(folder.endsWith(join('BF16', 'm-BF16-00001-of-00002.gguf'))).toBe(true);
    expect(readFileSync(folder.replace('00001-of', '00002-of'), 'utf8')).toBe('second');
    expect(await chooseProjector(folder)).toEqual({
      path: join(dirname(dirname(folder)), 'mmproj-m-BF16.gguf'),
      given: false,
      others: [],
    });
  });

  it('asks the hub for the others where one alone is in the cache, and says so where it cannot be asked', async () => {
    holds({ ...FILES, 'tokenizer.json': text('{}') });
    await resolve('org/gguf:q4_k_m');
    await resolve('org/gguf', {}, { textOnly: true });
    for (const name of ['org/gguf', `org/gguf@${COMMIT}`])
      expect((await failure(resolve(name))).message).toMatch(/3 GGUF models: BF16, Q4_K_M, Q8_0/);
    expect(await resolve('org/gguf', { HF_HUB_OFFLINE: '1' })).toMatchObject({
      from: 'cache',
      folder: expect.stringMatching(/m-Q4_K_M\.gguf$/) as string,
      notice: 'm-Q4_K_M.gguf is the only GGUF file of org/gguf in the cache, and taken',
    });
  });

  it('says which there are, and takes the only one without being asked', async () => {
    holds(FILES);
    expect(await failure(resolve('org/gguf'))).toMatchObject({
      code: 'weights-gguf',
      message: expect.stringMatching(/3 GGUF models: BF16, Q4_K_M, Q8_0/) as string,
      fix: 'Say which, such as org/gguf:Q4_K_M.',
    });
    expect(await failure(resolve('org/gguf:Q2_K'))).toMatchObject({
      code: 'weights-gguf',
      message: expect.stringMatching(/no GGUF models Q2_K: BF16, Q4_K_M, Q8_0/) as string,
    });
    expect(fetched()).toEqual([]);
    holds({ 'only-Q4_0.gguf': text('one') });
    expect(readFileSync((await resolve('org/gguf')).folder, 'utf8')).toBe('one');
    const offline = await resolve('hf:org/gguf', { HF_HUB_OFFLINE: '1' });
    expect(offline).toMatchObject({ from: 'cache', id: 'org/gguf' });
    expect(readFileSync(offline.folder, 'utf8')).toBe('one');
    expect(() => chooseGguf('a/b', [], 'Q4_0')).toThrow(/no GGUF models Q4_0/);
  });
});

it('fetches the small files alone where the text side is enough, and finds them again offline', async () => {
  const { folder, from } = await resolve('org/model', {}, { textOnly: true });
  expect(from).toBe('hub');
  expect(fetched()).toContain('tokenizer.json');
  expect(fetched().filter((name) => name.endsWith('.safetensors'))).toEqual([]);
  const offline = { HF_HUB_OFFLINE: '1' };
  expect(await resolve('org/model', offline, { textOnly: true })).toMatchObject({ folder, from: 'cache' });
  expect((await failure(resolve('org/model', offline))).message).toMatch(/only partly/);
});
