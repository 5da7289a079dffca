/** Where a reader of pictures finds how they are made. */
import { copyFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseModelConfig } from '../../models/families.js';
import { PictureReader } from './picture-reader.js';

const MODEL = join(import.meta.dirname, '../../../test/fixtures/vision-families/mistral3');

describe('PictureReader.open', () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'kvant-reader-'));
  });
  afterAll(() => rm(folder, { recursive: true }));

  it('reads the part in the file of all processors, else the file of the image processor', async () => {
    const { vision } = parseModelConfig(JSON.parse(await readFile(join(MODEL, 'config.json'), 'utf8')));
    const open = () =>
      PictureReader.open(folder, vision!, { access: {}, mostTokens: 1000, thread: false }).catch(
        (reason: unknown) => reason,
      );
    const missing = expect.objectContaining({
      code: 'invalid-preprocessor',
      where: 'preprocessor_config.json',
    });
    expect(await open()).toEqual(missing);
    const all = join(folder, 'processor_config.json');
    await writeFile(all, JSON.stringify({ image_token: '[IMG]' }));
    expect(await open()).toEqual(missing);
    const own = JSON.parse(await readFile(join(MODEL, 'preprocessor_config.json'), 'utf8'));
    await writeFile(all, JSON.stringify({ image_processor: { ...own, patch_size: 99 } }));
    expect(await open()).toMatchObject({ code: 'invalid-preprocessor', where: 'patch_size' });
    await writeFile(all, JSON.stringify({ image_processor: own }));
    expect(await open()).toBeInstanceOf(PictureReader);
    await copyFile(join(MODEL, 'preprocessor_config.json'), join(folder, 'preprocessor_config.json'));
    await writeFile(all, '{}');
    expect(await open()).toBeInstanceOf(PictureReader);
    // The reference looks there first.
    await writeFile(all, JSON.stringify({ image_processor: { ...own, patch_size: 99 } }));
    expect(await open()).toMatchObject({ code: 'invalid-preprocessor', where: 'patch_size' });
  });
});
