/** Decoded files beside PIL's pixels (scripts/fixtures/media.py), by either decoder, and files that are no pictures. */
import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { readPacked } from '../../test/fixtures/read-packed.js';
import { readAnimation } from './animation.js';
import { checkImage, decodeImage } from './decode.js';

const files = readPacked(new URL('../../test/fixtures/media/files.json.br', import.meta.url)) as {
  name: string;
  base64: string;
  width: number;
  height: number;
  sha256: string;
  dropped?: string;
}[];
const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
const bytesOf = (name: string): Uint8Array =>
  Buffer.from(files.find((f) => f.name === name)!.base64, 'base64');
const BY_WASM = files.filter(({ name }) => !/^gif|cmyk/.test(name));

describe('decodeImage', () => {
  it.each(files)('by sharp: $name', async ({ base64, width, height, sha256: want, dropped }) => {
    const bytes = Buffer.from(base64, 'base64');
    const image = await decodeImage(bytes, { decoder: 'sharp' });
    expect([image.width, image.height]).toEqual([width, height]);
    expect(sha256(image.pixels)).toBe(want);
    if (dropped !== undefined)
      expect(sha256((await decodeImage(bytes, { background: 'drop' })).pixels)).toBe(dropped);
  });

  it.each(BY_WASM)('by @jsquash: $name', async ({ base64, width, height, sha256: want }) => {
    const image = await decodeImage(Buffer.from(base64, 'base64'), { decoder: 'jsquash' });
    expect([image.width, image.height]).toEqual([width, height]);
    expect(sha256(image.pixels)).toBe(want);
  });

  it('says what is missing where @jsquash does not read a file', async () => {
    for (const [name, kind] of [
      ['jpeg-cmyk', 'JPEG of CMYK'],
      ['gif', 'GIF'],
    ] as const)
      await expect(decodeImage(bytesOf(name), { decoder: 'jsquash' }), name).rejects.toMatchObject({
        code: 'image-decoder-missing',
        where: 'image',
        message: expect.stringContaining(`is ${kind}, for which there is no decoder`),
      });
  });

  it.each([
    ['png-turned-6', 'eXIf'],
    ['webp-turned-8', 'EXIF'],
    ['webp-frames', 'ANMF'],
    ['webp-hollow', 'ANMF'],
  ])('takes %s with any damage to its %s, or refuses it', async (name, chunk) => {
    const bytes = bytesOf(name);
    const at = Buffer.from(bytes).indexOf(chunk);
    expect(at).toBeGreaterThan(0);
    for (let i = at - 4; i < Math.min(bytes.length, at + 44); i++)
      for (const value of [0, 255]) {
        const damaged = Buffer.from(bytes);
        damaged[i] = value;
        const { width, height, pixels } = await decodeImage(damaged, { decoder: 'jsquash' }).catch(
          (error) => {
            expect(error).toMatchObject({
              code: expect.stringMatching(/^(?:invalid-image|image-too-large)$/),
            });
            return { width: 0, height: 0, pixels: [] };
          },
        );
        expect(pixels.length).toBe(width * height * 3);
      }
  });

  it.each(['sharp', 'jsquash'] as const)(
    'refuses a file that is cut off anywhere, by %s',
    async (decoder) => {
      for (const name of [
        'jpeg-420',
        'jpeg-progressive',
        'png',
        'webp',
        'webp-frames',
        'gif',
        'gif-frames',
      ]) {
        const bytes = bytesOf(name);
        const ends = [16, 12, 5, 4, 2, 1].map((n) => bytes.length - n);
        for (let end = 0; end < bytes.length - 16; end += 397) ends.push(end);
        for (const end of ends)
          await expect(
            decodeImage(bytes.subarray(0, end), { decoder }),
            `${name} to ${end}`,
          ).rejects.toMatchObject({ code: expect.stringMatching(/^(?:invalid|unsupported)-image$/) });
      }
    },
  );

  it.each(['sharp', 'jsquash'] as const)(
    'takes a WebP whose chunks end with it, as PIL does, by %s',
    async (decoder) => {
      for (const name of ['webp', 'webp-lossless', 'webp-turned-8', 'webp-frames']) {
        const bytes = Buffer.from(bytesOf(name));
        const sized = (by: number, fill = 0): Promise<unknown> => {
          const changed = Buffer.concat([bytes, Buffer.alloc(Math.max(by, 0), fill)]);
          changed.writeUInt32LE(bytes.readUInt32LE(4) + by, 4);
          return decodeImage(changed, { decoder });
        };
        for (const by of [-20, -8, -7, -2, -1, 1, 7])
          await expect(sized(by), `${name} ${by}`).rejects.toMatchObject({ code: 'invalid-image' });
        await sized(8);
        if (/^webp-(?:turned|frames)/.test(name))
          for (const [by, fill] of [
            [9, 0],
            [14, 0],
            [14, 65],
          ] as const)
            await expect(sized(by, fill), `${name} ${by}`).rejects.toMatchObject({ code: 'invalid-image' });
        await decodeImage(Buffer.concat([bytes, Buffer.alloc(5)]), { decoder });
      }
    },
  );

  it('passes over bytes between the blocks of a GIF and behind its trailer, as PIL does', async () => {
    for (const name of ['gif', 'gif-frames']) {
      const bytes = bytesOf(name);
      const between = [bytes.subarray(0, -1), Buffer.alloc(3), bytes.subarray(-1), Buffer.alloc(5)];
      const { pixels } = await decodeImage(Buffer.concat(between));
      expect(sha256(pixels)).toBe(files.find((f) => f.name === name)!.sha256);
      expect(readAnimation(Buffer.concat(between))).toEqual(readAnimation(bytes));
      expect(readAnimation(bytes.subarray(0, -1))).toBe('broken');
    }
  });

  it('takes a GIF for as large as its first frame makes it, before it decodes it', async () => {
    const u16 = (n: number): number[] => [n & 255, n >> 8];
    const gif = (screen: number, at: number, side: number): Buffer =>
      Buffer.from([
        ...[...Buffer.from('GIF89a'), ...u16(screen), ...u16(screen), 0x80, 0, 0, 0, 0, 0, 255, 255, 255],
        ...[0x21, 0xf9, 4, 0, 10, 0, 0, 0, 0x2c, ...u16(at), ...u16(at), ...u16(side), ...u16(side), 0],
        ...[2, 2, 0x44, 1, 0, 0x3b],
      ]);
    const { width, height } = await decodeImage(gif(60, 50, 20));
    expect([width, height]).toEqual([70, 70]);
    expect(checkImage(gif(60, 50, 20))).toMatchObject({ width: 70, height: 70 });
    const tooLarge = expect.objectContaining({ code: 'image-too-large' });
    expect(() => checkImage(gif(60, 0, 9000))).toThrow(tooLarge);
    expect(() => checkImage(gif(60, 60_000, 1))).toThrow(tooLarge);
    for (const empty of [gif(0, 0, 60), gif(60, 0, 0), gif(60, 0, 60).subarray(0, 19)])
      expect(() => checkImage(empty)).toThrow(expect.objectContaining({ code: 'invalid-image' }));
  });

  it('refuses what is hostile or no picture, before it decodes anything', () => {
    const png = Buffer.from(bytesOf('png'));
    png.writeUInt32BE(30_000, 16);
    png.writeUInt32BE(30_000, 20);
    expect(() => checkImage(png)).toThrow(expect.objectContaining({ code: 'image-too-large' }));
    png.writeUInt32BE(0, 16);
    expect(() => checkImage(png)).toThrow(expect.objectContaining({ code: 'invalid-image' }));
    for (const text of ['<svg xmlns="http://www.w3.org/2000/svg"/>', 'BMxxxx', '%PDF-1.7', '', 'hello'])
      expect(() => checkImage(Buffer.from(text), {}, 'messages[0]')).toThrow(
        expect.objectContaining({ code: 'unsupported-image', where: 'messages[0]' }),
      );
    expect(() => checkImage(bytesOf('png'), { maxBytes: 10 })).toThrow(/10 are the most/);
  });

  it('refuses a picture that is not what its header says', async () => {
    const fake = Buffer.concat([bytesOf('png').subarray(0, 33), bytesOf('jpeg-420')]);
    await expect(decodeImage(fake)).rejects.toMatchObject({ code: 'invalid-image' });
  });
});
