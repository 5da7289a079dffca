import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { failure } from '../../test/fixtures/weights/build.js';
import { modelName } from '../engine/model-name.js';
import { resolveModel } from './hub.js';
import { localModel } from './local-model.js';
import { storedAs, storedModel } from './model-stores.js';
import { chooseProjector } from './projectors.js';

let home: string;
const put = (path: string, text: string | Buffer): string => {
  const full = join(home, path);
  mkdirSync(dirname(full), { recursive: true });
  writeFileSync(full, text);
  return full;
};
const hex = (digit: string): string => digit.repeat(64);
const blob = (digit: string, text = 'GGUF\x03', mark = '-'): string =>
  put(`.ollama/models/blobs/sha256${mark}${hex(digit)}`, text);
const manifest = (name: string, ...layers: readonly [kind: string, digit: string][]): string =>
  put(
    `.ollama/models/manifests/${name}`,
    JSON.stringify({
      schemaVersion: 2,
      config: { mediaType: 'application/vnd.docker.container.image.v1+json', digest: `sha256:${hex('0')}` },
      layers: layers.map(([kind, digit]) => ({
        mediaType: `application/vnd.ollama.image.${kind}`,
        digest: `sha256:${hex(digit)}`,
        size: 5,
      })),
    }),
  );

beforeAll(() => {
  home = mkdtempSync(join(tmpdir(), 'kvant-stores-'));
  const library = 'registry.ollama.ai/library';
  manifest(`${library}/llama3.2/latest`, ['template', '8'], ['model', 'a'], ['params', '9']);
  manifest(`${library}/llama3.2/1b`, ['projector', 'e'], ['model', 'b']);
  manifest(`${library}/old/latest`, ['model', 'c']);
  manifest('registry.ollama.ai/someone/Mine/v1', ['model', 'a']);
  manifest('hf.co/org/repo-GGUF/Q4_K_M', ['model', 'b']);
  manifest(`${library}/seeing/latest`, ['model', '1'], ['projector', '2']);
  manifest(`${library}/tuned/latest`, ['model', 'a'], ['adapter', 'd']);
  manifest(`${library}/half/latest`, ['model', 'f']);
  manifest(`${library}/cloud/latest`);
  manifest(`${library}/pieces/latest`, ['tensor', 'a'], ['tensor', 'b']);
  manifest(`${library}/odd/latest`, ['model', 'e']);
  manifest(`${library}/out/latest`, ['model', '../../../x']);
  put(`.ollama/models/manifests/${library}/broken/latest`, '{"layers": 3');
  blob('a');
  blob('b');
  blob('c', 'GGUF\x02', ':');
  blob('1');
  blob('2');
  blob('e', 'PK\x03\x04 no weights');
});
afterAll(() => rmSync(home, { recursive: true }));

describe("Ollama's models", () => {
  it.each([
    ['ollama:llama3.2', '-', 'a'],
    ['ollama:llama3.2:latest', '-', 'a'],
    ['ollama:llama3.2:1b', '-', 'b'],
    ['Ollama:LLaMA3.2:1B', '-', 'b'],
    ['ollama:library/llama3.2:1b', '-', 'b'],
    ['ollama:registry.ollama.ai/library/llama3.2:1b', '-', 'b'],
    ['ollama:someone/mine:v1', '-', 'a'],
    ['ollama:hf.co/org/repo-GGUF:Q4_K_M', '-', 'b'],
    ['ollama://llama3.2', '-', 'a'],
    ['ollama:old', ':', 'c'],
  ])('%s is a file without a name', async (argument, mark, digit) => {
    const path = join(home, `.ollama/models/blobs/sha256${mark}${hex(digit)}`);
    expect(await storedModel(argument, {}, home)).toBe(path);
    expect(await localModel(argument, { OLLAMA_MODELS: join(home, '.ollama/models') })).toBe(path);
  });

  it('see by the layer of their manifest', async () => {
    const of = async (name: string): Promise<string | undefined> =>
      (await chooseProjector(await storedModel(name, {}, home)))?.path;
    expect(await of('ollama:seeing')).toBe(join(home, `.ollama/models/blobs/sha256-${hex('2')}`));
    // That of llama3.2:1b is no GGUF file.
    for (const name of ['ollama:llama3.2', 'ollama:llama3.2:1b']) expect(await of(name)).toBeUndefined();
  });

  it('lie where OLLAMA_MODELS says', async () => {
    const env = { OLLAMA_MODELS: ` "${join(home, '.ollama', 'models')}" ` };
    expect(await storedModel('ollama:llama3.2', env, '/nowhere')).toMatch(/sha256-aaaa/);
    const { message } = await failure(storedModel('ollama:llama3.2', { OLLAMA_MODELS: '/no/such' }, home));
    expect(message).toBe('Ollama has no model "llama3.2" in /no/such');
  });

  it.each(['llama3.2:7b', 'lama3.2', '', '../../x', 'a/b/c/d', 'llama3.2:', 'x:y:z'])(
    '%j is not there: what is, is told',
    async (name) => {
      const error = await failure(storedModel(`ollama:${name}`, {}, home));
      expect(error).toMatchObject({ code: 'model-not-found' });
      expect(error.message).toContain(join(home, '.ollama', 'models'));
      expect(error.fix).toMatch(/ollama:llama3\.2, .*ollama:llama3\.2:1b.*`ollama pull .*OLLAMA_MODELS/);
    },
  );

  it.each([
    ['tuned', 'model-config-unsupported', /adapter/],
    ['pieces', 'model-config-unsupported', /files of their own/],
    ['cloud', 'model-config-unsupported', /no weights on this machine/],
    ['out', 'model-config-unsupported', /no weights on this machine/],
    ['odd', 'model-config-unsupported', /no GGUF file/],
    ['half', 'weights-missing', /sha256-ffff.* lacks/],
    ['broken', 'model-file-broken', /not JSON/],
  ])('%s is refused: %s', async (name, code, message) => {
    const error = await failure(storedModel(`ollama:${name}`, {}, home));
    expect(error).toMatchObject({ code, message: expect.stringMatching(message) as string });
    expect(error.fix).toBeTruthy();
  });

  it('are served under their names, and meant by names that lead nowhere', async () => {
    expect(modelName('ollama:llama3.2:1b', '/x/blobs/sha256-00')).toBe('llama3.2:1b');
    expect(await storedAs('llama3.2:1b', {}, home)).toBe('ollama:llama3.2:1b');
    expect(await storedAs('llama3.2:2b', {}, home)).toBeUndefined();
    const env = { OLLAMA_MODELS: join(home, '.ollama/models'), HF_HUB_OFFLINE: '1' };
    expect((await failure(resolveModel('llama3.2:1b', { env }))).fix).toBe(
      'Did you mean ollama:llama3.2:1b?',
    );
  });
});

describe("LM Studio's models", () => {
  const root = '.lmstudio/models';
  beforeAll(() => {
    put(`${root}/pub/One-GGUF/One-Q4_K_M.gguf`, 'GGUF');
    put(`${root}/pub/One-GGUF/mmproj-One-f16.gguf`, 'GGUF');
    put(`${root}/pub/Two-GGUF/Two-Q4_K_M.gguf`, 'GGUF');
    put(`${root}/pub/Two-GGUF/Two-Q8_0.gguf`, 'GGUF');
    put(`${root}/mlx/Three-4bit/config.json`, '{}');
    put(`${root}/mlx/Three-4bit/model.safetensors`, '');
    put(`${root}/mlx/same/same.gguf`, 'GGUF');
    put(`${root}/pub/same/same.gguf`, 'GGUF');
    put(`${root}/pub/Six.gguf/Six.gguf`, 'GGUF');
    put('.cache/lm-studio/models/older/Four/Four.Q6_K.gguf', 'GGUF');
  });

  it.each([
    ['lmstudio:pub/One-GGUF', `${root}/pub/One-GGUF/One-Q4_K_M.gguf`],
    ['lmstudio:one-gguf', `${root}/pub/One-GGUF/One-Q4_K_M.gguf`],
    ['lm-studio:PUB/two-gguf:q8_0', `${root}/pub/Two-GGUF/Two-Q8_0.gguf`],
    ['lmstudio:pub/Two-GGUF/Two-Q4_K_M.gguf', `${root}/pub/Two-GGUF/Two-Q4_K_M.gguf`],
    ['lmstudio:mlx/Three-4bit', `${root}/mlx/Three-4bit`],
    ['lmstudio:older/four', '.cache/lm-studio/models/older/Four/Four.Q6_K.gguf'],
    ['lmstudio:mlx/same', `${root}/mlx/same/same.gguf`],
    ['lmstudio:pub/Six.gguf', `${root}/pub/Six.gguf/Six.gguf`],
  ])('%s is found', async (argument, path) => {
    expect(await storedModel(argument, {}, home)).toBe(join(home, path));
  });

  it('are asked for where there are several, and listed where there is none', async () => {
    expect(await failure(storedModel('lmstudio:pub/Two-GGUF', {}, home))).toMatchObject({
      code: 'weights-gguf',
      message: 'lmstudio:pub/Two-GGUF holds 2 GGUF models: Q4_K_M, Q8_0',
      fix: 'Say which, such as lmstudio:pub/Two-GGUF:Q4_K_M.',
    });
    expect(await failure(storedModel('lmstudio:pub/Two-GGUF:Q2_K', {}, home))).toMatchObject({
      fix: 'Say which, such as lmstudio:pub/Two-GGUF:Q4_K_M.',
    });
    for (const name of ['same', 'pub/Tree', '', '..', 'mlx', 'mlx/Three-4bit:Q4_0']) {
      const error = await failure(storedModel(`lmstudio:${name}`, {}, home));
      expect(error.code, name).toBe('model-not-found');
      expect(error.message).toContain(join(home, root));
      expect(error.fix).toMatch(/lmstudio:mlx\/Three-4bit, .*lmstudio:pub\/One-GGUF/);
    }
  });

  it('lie where its settings say', async () => {
    const elsewhere = mkdtempSync(join(tmpdir(), 'kvant-lms-'));
    try {
      mkdirSync(join(elsewhere, 'home/.lmstudio'), { recursive: true });
      mkdirSync(join(elsewhere, 'disk/pub/Five'), { recursive: true });
      writeFileSync(join(elsewhere, 'disk/pub/Five/Five-Q4_0.gguf'), 'GGUF');
      const settings = join(elsewhere, 'home/.lmstudio/settings.json');
      const found = () => storedModel('lmstudio:pub/Five', {}, join(elsewhere, 'home'));
      expect((await failure(found())).code).toBe('model-not-found');
      writeFileSync(settings, JSON.stringify({ downloadsFolder: join(elsewhere, 'disk') }));
      expect(await found()).toBe(join(elsewhere, 'disk/pub/Five/Five-Q4_0.gguf'));
      writeFileSync(settings, '{"downloads');
      expect((await failure(found())).code).toBe('model-not-found');
    } finally {
      rmSync(elsewhere, { recursive: true });
    }
  });
});

describe('a path', () => {
  it('to a folder of several GGUF files needs a tag', async () => {
    const folder = join(home, '.lmstudio/models/pub/Two-GGUF');
    const error = await failure(localModel(folder));
    expect(error.message).toBe(`${folder} holds 2 GGUF models: Two-Q4_K_M.gguf, Two-Q8_0.gguf`);
    expect(error.fix).toContain(`${folder}:Q4_K_M`);
    expect(await localModel(`${folder}:Q8_0`)).toBe(join(folder, 'Two-Q8_0.gguf'));
    expect((await failure(localModel(`${folder}:Q2_K`))).message).toMatch(
      /no GGUF models Q2_K: Q4_K_M, Q8_0/,
    );
  });

  it('to a GGUF file of any name is one, to another file none', async () => {
    const odd = put('odd/weights', 'GGUF\x03\0\0\0');
    expect(await localModel(odd)).toBe(odd);
    expect(await localModel(put('odd/text', 'GGU'))).toBeUndefined();
    expect(await localModel(join(home, 'odd/none'))).toBeUndefined();
    // The config.json of the model that it was made from may lie beside it.
    put('made/config.json', '{}');
    expect(await localModel(join(home, 'made'))).toBe(join(home, 'made'));
    const made = put('made/m-Q4_0.gguf', 'GGUF');
    expect(await localModel(join(home, 'made'))).toBe(made);
  });

  it('to any file of a set is the first of them', async () => {
    const first = put('set/m-00001-of-00003.gguf', 'GGUF');
    const third = put('set/m-00003-of-00003.gguf', 'GGUF');
    expect(await localModel(third)).toBe(first);
    const alone = put('rest/m-00002-of-00003.gguf', 'GGUF');
    expect(await localModel(alone)).toBe(alone);
  });

  it('to one GGUF file takes no tag', async () => {
    const file = put('one/m-Q8_0.gguf', 'GGUF');
    expect(await failure(localModel(`${file}:Q8_0`))).toMatchObject({
      code: 'weights-gguf',
      message: `${file} is one GGUF file: there is no Q8_0 in it to choose`,
      fix: `Give the file itself: ${file}`,
    });
  });

  it.each([
    ['nothing', ['empty/.keep'], 'weights-none', /no \*\.safetensors or \*\.gguf file/],
    [
      'what sees alone',
      ['seeing/mmproj-F16.gguf', 'seeing/config.json'],
      'weights-gguf',
      /mmproj-F16\.gguf is no model/,
    ],
    ['a later file of a set', ['later/m-00002-of-00002.gguf'], 'weights-gguf', /first file is not here/],
    ['a pickle', ['pickle/pytorch_model.bin'], 'weights-pickle', /pickle/],
  ] as const)('to a folder with %s says what is there', async (_, files, code, message) => {
    const [first] = files.map((name) => put(name, 'GGUF'));
    const error = await failure(localModel(dirname(first!)));
    expect(error).toMatchObject({ code, message: expect.stringMatching(message) as string });
    expect(error.fix).toMatch(/\w/);
  });

  it('to a folder with a tokenizer alone is taken', async () => {
    const folder = dirname(put('words/tokenizer.json', '{}'));
    expect(await localModel(folder)).toBe(folder);
  });
});
