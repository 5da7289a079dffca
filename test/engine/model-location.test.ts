import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { locateModel } from '../../src/engine/model-location.js';

it('takes a folder as it is, and nothing else for one', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'kvant-location-'));
  try {
    await expect(locateModel(folder, {})).rejects.toMatchObject({ code: 'weights-none' });
    await writeFile(join(folder, 'config.json'), '{}');
    expect(await locateModel(folder, {})).toBe(folder);
    const offline = { offline: true, cacheDir: join(folder, 'cache') };
    // A revision is of a hub model: the folder of that name is another.
    await expect(locateModel(folder, { hub: { ...offline, revision: 'main' } })).rejects.toMatchObject({
      code: 'model-not-found',
    });
    await expect(locateModel(join(folder, 'none'), { hub: offline })).rejects.toMatchObject({
      code: 'model-not-found',
    });
    await expect(locateModel('org/name', { hub: offline })).rejects.toMatchObject({ code: 'hub-offline' });
  } finally {
    await rm(folder, { recursive: true });
  }
});
