import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { chooseProjector, repositoryProjector } from './projectors.js';

describe('the mmproj file of a repository', () => {
  // As llama.cpp's own tests of its choice have them.
  it.each<[string, string[], string | undefined]>([
    ['m-Q4_K_M.gguf', ['mmproj-F32.gguf', 'mmproj-F16.gguf', 'mmproj-BF16.gguf'], 'mmproj-BF16.gguf'],
    ['m-Q4_K_M.gguf', ['mmproj-F16.gguf', 'mmproj-Q8_0.gguf'], 'mmproj-Q8_0.gguf'],
    ['m-F32.gguf', ['mmproj-F16.gguf', 'mmproj-F32.gguf'], 'mmproj-F32.gguf'],
    ['Q8_0/m-Q8_0-00001-of-00002.gguf', ['mmproj-F16.gguf', 'Q8_0/mmproj-F32.gguf'], 'Q8_0/mmproj-F32.gguf'],
    ['Q8_0/m-Q8_0.gguf', ['Q4_0/mmproj-F16.gguf', 'mmproj-F16.gguf'], 'mmproj-F16.gguf'],
    ['Q8_0/m-Q8_0.gguf', ['Q4_0/mmproj-F16.gguf'], undefined],
    ['m-Q8_0.gguf', ['imatrix.gguf', 'm-Q4_0.gguf', 'mmproj.txt'], undefined],
  ])('of %s among %j is %s', (model, names, found) => {
    expect(repositoryProjector(model, [model, ...names])).toBe(found);
  });
});

describe('the mmproj file beside a model', () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'kvant-projectors-'));
  });
  afterEach(() => rmSync(folder, { recursive: true }));
  const put = (...names: string[]): void => {
    for (const name of names) {
      mkdirSync(join(folder, name, '..'), { recursive: true });
      writeFileSync(join(folder, name), 'GGUF');
    }
  };
  const chosen = async (model: string): Promise<unknown> => {
    const found = await chooseProjector(join(folder, model));
    return found && [basename(found.path), found.others];
  };

  it('is one that is named for the model, before one without a name, before those of others', async () => {
    put('gemma-3-4b-it-Q4_K_M.gguf', 'mmproj-Qwen2.5-VL-3B-Q4_0.gguf');
    expect(await chosen('gemma-3-4b-it-Q4_K_M.gguf')).toEqual(['mmproj-Qwen2.5-VL-3B-Q4_0.gguf', []]);
    put('mmproj-model-f16.gguf');
    expect(await chosen('gemma-3-4b-it-Q4_K_M.gguf')).toEqual([
      'mmproj-model-f16.gguf',
      ['mmproj-Qwen2.5-VL-3B-Q4_0.gguf'],
    ]);
    put('mmproj-gemma-3-4b-it-F32.gguf', 'gemma-3-4b-it.mmproj-f16.gguf');
    expect(await chosen('gemma-3-4b-it-Q4_K_M.gguf')).toEqual([
      'gemma-3-4b-it.mmproj-f16.gguf',
      ['mmproj-gemma-3-4b-it-F32.gguf', 'mmproj-model-f16.gguf', 'mmproj-Qwen2.5-VL-3B-Q4_0.gguf'],
    ]);
  });

  it('may lie above a model of the hub, but not above another', async () => {
    const snapshot = `snapshots/${'a'.repeat(40)}`;
    put(`${snapshot}/mmproj-F16.gguf`, `${snapshot}/Q8_0/m-Q8_0.gguf`, 'snapshots/mmproj-F16.gguf');
    put('own/Q8_0/m-Q8_0.gguf', 'own/mmproj-F16.gguf');
    expect(await chosen(`${snapshot}/Q8_0/m-Q8_0.gguf`)).toEqual(['mmproj-F16.gguf', []]);
    expect(await chosen('own/Q8_0/m-Q8_0.gguf')).toBeUndefined();
  });

  it('is the one that was asked for, which must be there', async () => {
    put('mmproj-F16.gguf', 'other.gguf', 'm.gguf');
    const other = join(folder, 'other.gguf');
    expect(await chooseProjector(join(folder, 'm.gguf'), other)).toEqual({
      path: other,
      given: true,
      others: [],
    });
    await expect(chooseProjector(join(folder, 'm.gguf'), folder)).rejects.toMatchObject({
      code: 'weights-missing',
    });
  });
});
