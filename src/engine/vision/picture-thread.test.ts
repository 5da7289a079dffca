/** The thread that makes pictures: one that hangs or kills it ends alone. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { readPacked } from '../../../test/fixtures/read-packed.js';
import { readProcessor } from '../../media/read-processor.js';
import { makePicture } from './make-picture.js';
import { PictureThread, type PictureThreadOptions } from './picture-thread.js';

const { signal } = new AbortController();
const tower = { patchSize: 14, mergeSize: 2 };
const MODEL = new URL('../../../models/demo-vision/', import.meta.url);
const config = JSON.parse(readFileSync(new URL('preprocessor_config.json', MODEL), 'utf8')) as Record<
  string,
  unknown
>;
const { cases } = readPacked(new URL('../../../test/fixtures/demo-vision.json.br', import.meta.url)) as {
  cases: { images: { png_base64: string }[] }[];
};
const png = Buffer.from(cases[0]!.images[0]!.png_base64, 'base64');
const ask = (bytes: Uint8Array, where = 'w') => ({ bytes, where, config, tower });

/** A worker that does as a picture's first byte says. */
const SCRIPT = new URL(
  `data:text/javascript,${encodeURIComponent(`
import { parentPort } from 'node:worker_threads';
parentPort.on('message', ({ bytes }) => {
  parentPort.postMessage({ type: 'begun' });
  if (bytes[0] === 1) for (;;);
  if (bytes[0] === 2) process.exit(3);
  if (bytes[0] === 3) throw new Error('thrown');
  if (bytes[0] === 4) { const kept = []; for (;;) kept.push(new Array(1000).fill({})); }
  parentPort.postMessage({ type: 'made', pictures: bytes[0] });
});
`)}`,
);
const scripted = (options: PictureThreadOptions): PictureThread =>
  new PictureThread({ script: SCRIPT, ...options });
const byte = (value: number) => ask(Uint8Array.of(value), `picture ${value}`);

describe('the thread of pictures', () => {
  it('makes what is made without it, and tells errors as they are', async () => {
    const thread = new PictureThread();
    try {
      const [[made], error] = await Promise.all([
        thread.make(ask(png), { signal }),
        thread.make(ask(png.subarray(0, 200), 'messages[1]'), { signal }).catch((reason: unknown) => reason),
      ]);
      const here = await makePicture(readProcessor(config, tower), png, 'w');
      expect(made).toEqual(here);
      expect(made!.patches.buffer).toBeInstanceOf(ArrayBuffer);
      expect(error).toMatchObject({ code: 'invalid-image', where: 'messages[1]', status: 400 });
    } finally {
      await thread.close();
    }
  });

  it.each([
    [1, 'image-too-costly'],
    [2, 'image-decoder-crashed'],
    [3, 'image-decoder-crashed'],
    [4, 'image-decoder-crashed'],
  ])('picture %i ends with %s, and the next one is made', async (bad, code) => {
    const thread = scripted(bad === 1 ? { limitMs: 1000 } : { heapMb: 16 });
    const runs = [byte(0), byte(bad), byte(9)].map((one) =>
      thread.make(one, { signal }).catch((e: unknown) => e),
    );
    const [before, refused, after] = await Promise.all(runs);
    expect([before, after]).toEqual([0, 9]);
    expect(refused).toMatchObject({ code, where: `picture ${bad}` });
    await thread.close();
  });

  it('lets those go who do not wait any more, and refuses what is too much to wait', async () => {
    const thread = scripted({ maxWaiting: 2 });
    const gone = new AbortController();
    const first = thread.make(byte(5), { signal: gone.signal });
    const waits = thread.make(byte(6), { signal: gone.signal });
    const other = thread.make(byte(7), { signal });
    await expect(thread.make(byte(8), { signal })).rejects.toMatchObject({
      code: 'overloaded-images',
      status: 429,
    });
    gone.abort(new Error('gone'));
    await expect(first).rejects.toThrow('gone');
    await expect(waits).rejects.toThrow('gone');
    expect(await other).toBe(7);
    await expect(thread.make(byte(8), { signal: gone.signal })).rejects.toThrow('gone');
    await thread.close();
  });

  it('closed, it refuses all', async () => {
    const thread = scripted({});
    const runs = [byte(1), byte(0)].map((one) => thread.make(one, { signal }).catch((e: unknown) => e));
    await thread.close();
    for (const error of await Promise.all(runs)) expect(error).toMatchObject({ code: 'engine-closed' });
    await expect(thread.make(byte(0), { signal })).rejects.toMatchObject({ code: 'engine-closed' });
  });
});
