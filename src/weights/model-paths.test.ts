import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { notAModel } from './hub-errors.js';
import {
  expandHome,
  hasParent,
  isPath,
  modelOfFile,
  modelsWithin,
  nearbyFiles,
  nearbyModels,
} from './model-paths.js';

let root: string;
beforeAll(() => {
  root = mkdtempSync(join(tmpdir(), 'kvant-paths-'));
  for (const name of ['models/demo-text', 'models/llama-1b', 'other/snapshots/0123', 'models/.hidden']) {
    mkdirSync(join(root, name), { recursive: true });
    writeFileSync(join(root, name, 'config.json'), '{}');
  }
  mkdirSync(join(root, 'models/no-model'));
  symlinkSync(join(root, 'models/demo-text'), join(root, 'models/linked'));
});
afterAll(() => rmSync(root, { recursive: true }));
const at = (path: string): string => join(root, path);

it('says of a link that it leads nowhere, rather than that itself may have been meant', async () => {
  for (const name of ['other/dead.gguf', 'other/dead']) {
    symlinkSync(at('none'), at(name));
    const { message, fix } = await notAModel(at(name), at(name));
    expect(message).toContain('is a link that leads nowhere');
    expect(fix).not.toContain('Did you mean');
  }
  writeFileSync(at('other/deed.gguf'), '');
  expect(await nearbyFiles(at('other/dead.gguf'))).toEqual([at('other/deed.gguf')]);
});

describe('isPath', () => {
  it.each([
    ...[
      './x',
      './x/y',
      '../x',
      '/x',
      '/x/y',
      '~/x',
      '~',
      '.',
      '..',
      'C:\\x',
      'c:/x/y',
      'models\\demo',
      '.\\x',
    ],
    ...['models/demo/', 'a/b/c', '\\\\server\\share'],
  ])('%s is one', (argument) => {
    expect(isPath(argument)).toBe(true);
  });

  it.each(['org/name', 'org/name@main', 'org/name@refs/pr/3', 'name', 'org/.name', 'a.b/c.d', ''])(
    '%s need not be',
    (argument) => {
      expect(isPath(argument)).toBe(false);
    },
  );
});

describe('nearbyModels', () => {
  it.each([
    ['models/demo-tex', 'models/demo-text'],
    ['models/Demo_Text', 'models/demo-text'],
    ['modles/demo-tex', 'models/demo-text'],
    ['models/lama-1b', 'models/llama-1b'],
  ])('%s: %s', async (path, meant) => {
    expect(await nearbyModels(at(path))).toEqual([at(meant)]);
  });

  it('names the models beside it where none is spelled alike', async () => {
    const all = ['demo-text', 'linked', 'llama-1b'].map((name) => at(`models/${name}`));
    expect(await nearbyModels(at('models/something-else'))).toEqual(all);
    expect(await nearbyModels(at('nowhere/at/all'))).toEqual([]);
    expect(await nearbyModels('')).toEqual([]);
  });

  it('looks for a bare name where models are kept', async () => {
    expect(await nearbyModels('demo-tex')).toEqual(['models/demo-text']);
    expect(await nearbyModels('models/demo-tex')).toEqual(['models/demo-text']);
    expect(await nearbyModels('./models/demo-tex')).toEqual(['./models/demo-text']);
  });
});

it('finds the models in a folder, and in the cache of a hub model', async () => {
  expect(await modelsWithin(at('other'))).toEqual([at('other/snapshots/0123')]);
  expect(await modelsWithin(at('models/demo-text'))).toEqual([]);
});

it('knows the model of a file, the folder of a path, and the home folder', async () => {
  expect(await modelOfFile(at('models/demo-text/model.safetensors'))).toBe(at('models/demo-text'));
  expect(await modelOfFile(at('models/x.gguf'))).toBeUndefined();
  expect(await hasParent(at('models/x'))).toBe(true);
  expect(await hasParent(at('gone/x'))).toBe(false);
  expect(await hasParent('x')).toBe(false);
  expect(expandHome('~/a')).toBe(join(homedir(), 'a'));
  expect(expandHome('~')).toBe(homedir());
  for (const path of ['~user/a', 'a/~/b', '/~']) expect(expandHome(path)).toBe(path);
});
