import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { checkSight } from './sees.js';

describe('whether a model sees, from its configuration', () => {
  const blind = 'test/fixtures/models/qwen2-bias';
  const ask = (type: string) => [{ role: 'user', content: [{ type, [type]: 'a.png' }] }];
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'kvant-sees-'));
  });
  afterAll(async () => {
    await rm(folder, { recursive: true });
  });

  it.each(['image', 'image_url', 'input_image', 'video', 'video_url'])(
    'refuses a part of type %s where it does not',
    async (type) => {
      await expect(checkSight(blind, ask(type), {})).rejects.toMatchObject({
        code: 'unsupported-content',
        where: 'messages[0].content[0]',
        fix: expect.stringContaining('Leave the part out'),
      });
    },
  );

  it('lets text through, and pictures where it sees', async () => {
    await checkSight(blind, [{ role: 'user', content: 'Hi' }], {});
    await checkSight('models/demo-vision', ask('image'), {});
    await checkSight('test/fixtures/models/qwen2.5-vl', ask('image'), {});
  });

  it('leaves what else is wrong to loading', async () => {
    await writeFile(join(folder, 'config.json'), '{"model_type": "nobody knows"}');
    await checkSight(folder, ask('image'), {});
    await writeFile(join(folder, 'config.json'), '{');
    await checkSight(folder, ask('image'), {});
  });
});
