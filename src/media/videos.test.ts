/** Videos beside transformers' processors and PIL (scripts/fixtures/videos.py): frames that are taken, sizes, and pixels of files. */
import { createHash } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { readPacked } from '../../test/fixtures/read-packed.js';
import { frameRate, readAnimation } from './animation.js';
import { checkAnimation, decodeFrames } from './decode-frames.js';
import { readVideoProcessor } from './read-processor.js';

interface Packed {
  readonly sampling: {
    readonly frames: readonly (readonly [
      total: number,
      fps: number,
      qwen2: number[],
      qwen3: number[],
      glm4v: number[],
      glm46v: number[],
    ])[];
    readonly sizes: readonly (readonly [number, number, number, [number, number], [number, number]])[];
    readonly muse: {
      readonly frames: readonly (readonly [total: number, fps: number, taken: number[]])[];
      readonly sizes: readonly (readonly [width: number, height: number, sides: [number, number]])[];
    };
  };
  readonly animations: readonly {
    readonly name: string;
    readonly base64: string;
    readonly size: readonly [number, number];
    readonly delays: readonly number[];
    readonly frames: readonly string[];
  }[];
}
const { sampling, animations } = readPacked(
  fileURLToPath(new URL('../../test/fixtures/videos.json.br', import.meta.url)),
) as Packed;

const qwen2 = readVideoProcessor({}, 'Qwen2VLVideoProcessor', { patchSize: 14, mergeSize: 2 });
const size = { shortest_edge: 4096, longest_edge: 25_165_824 };
const qwen3 = readVideoProcessor({ size }, 'Qwen3VLVideoProcessor', { patchSize: 16, mergeSize: 2 });

const glms = (['Glm4vVideoProcessor', 'Glm46VVideoProcessor'] as const).map((name) =>
  readVideoProcessor({}, name, { patchSize: 14, mergeSize: 2 }),
);

describe('processors of videos', () => {
  it.each(sampling.frames)(
    'of %i frames at %f a second take those of the reference',
    (total, fps, second, third, ...own) => {
      expect(glms.map((glm) => glm.sample(total, fps))).toEqual(own);
      expect(qwen2.sample(total, fps)).toEqual(second);
      expect(qwen3.sample(total, fps)).toEqual(third);
    },
  );

  it.each(sampling.sizes)(
    'make %i frames of %i × %i as large as the reference',
    (frames, width, height, second, third) => {
      const sides = (of: typeof qwen2, patch: number): number[] => {
        const { rows, cols } = of.grid(frames, width, height);
        return [rows * patch, cols * patch];
      };
      expect(sides(qwen2, 14)).toEqual(second);
      expect(sides(qwen3, 16)).toEqual(third);
    },
  );

  it('of Muse Glimmer take the frames of the reference, as large', () => {
    const muse = readVideoProcessor({}, 'MuseGlimmerVideoProcessor', { patchSize: 14, mergeSize: 2 });
    for (const [total, fps, taken] of sampling.muse.frames) expect(muse.sample(total, fps)).toEqual(taken);
    for (const [width, height, sides] of sampling.muse.sizes) {
      const { rows, cols } = muse.grid(2, width, height);
      expect([rows * 14, cols * 14]).toEqual(sides);
    }
    const tower = { patchSize: 14, mergeSize: 2 };
    const times = { frame_timestamp_format: '{timestamp} s' };
    expect(() => readVideoProcessor(times, 'MuseGlimmerVideoProcessor', tower)).toThrow(
      expect.objectContaining({ code: 'invalid-preprocessor', where: 'frame_timestamp_format' }),
    );
  });

  it('of GLM count a last frame that stands twice', () => {
    for (const glm of glms) {
      expect(glm.grid(5, 1920, 1080)).toEqual(glm.grid(6, 1920, 1080));
      expect(glm.grid(200, 1920, 1080).rows).toBeLessThan(glm.grid(6, 1920, 1080).rows);
    }
  });

  it('bound the pixels of frames by tokens where the file says so', () => {
    const cap = { cap_pixels_per_frame: true, size };
    const capped = readVideoProcessor(cap, 'Qwen3VLVideoProcessor', { patchSize: 16, mergeSize: 2 });
    const { rows, cols } = capped.grid(4, 3840, 2160);
    expect((rows * cols) / 4).toBeLessThanOrEqual(768);
    expect(qwen3.grid(4, 3840, 2160).rows).toBeGreaterThan(rows);
  });

  it('take one frame as it is', () => {
    for (const one of [qwen2, qwen3]) expect(one.sample(1, 10)).toEqual([0]);
  });

  it.each([
    [{ patch_size: 14 }, 'patch_size'],
    [{ temporal_patch_size: 4 }, 'temporal_patch_size'],
    [{ num_frames: 32 }, 'num_frames'],
    [{ video_processor_type: 'Glm4vVideoProcessor' }, 'video_processor_type'],
    [{ fps: 0 }, 'fps'],
    [{ size: { shortest_edge: 10, longest_edge: 5 } }, 'size'],
  ])('refuse %j by its field', (config, where) => {
    expect(() =>
      readVideoProcessor(config, 'Qwen3VLVideoProcessor', { patchSize: 16, mergeSize: 2 }),
    ).toThrow(
      expect.objectContaining({
        code: 'invalid-preprocessor',
        where,
        message: expect.stringMatching(/^video_preprocessor_config/),
      }),
    );
  });
});

describe('animated files', () => {
  it.each(animations)(
    '$name: the frames that PIL shows',
    async ({ base64, size: [width, height], delays, frames }) => {
      const bytes = Buffer.from(base64, 'base64');
      const found = checkAnimation(bytes);
      expect([found.width, found.height]).toEqual([width, height]);
      expect(found.delays).toEqual(delays.map((ms) => (ms < 11 ? 100 : ms)));
      const hashes: string[] = [];
      await decodeFrames(bytes, [...frames.keys()], ({ pixels }) =>
        hashes.push(createHash('sha256').update(pixels).digest('hex')),
      );
      expect(hashes).toEqual(frames);
    },
  );

  it('gives the frames that are asked for, and their rate', async () => {
    const { base64, frames } = animations.find(({ name }) => name === 'webp')!;
    const taken: string[] = [];
    await decodeFrames(Buffer.from(base64, 'base64'), [1, 4], ({ pixels }, index) =>
      taken.push(`${index} ${createHash('sha256').update(pixels).digest('hex')}`),
    );
    expect(taken).toEqual([1, 4].map((index) => `${index} ${frames[index]}`));
    expect(frameRate({ delays: [40, 60] })).toBe(20);
  });

  it('refuses one that is cut off anywhere, and one that is too large, before it is decoded', async () => {
    for (const { base64, name } of animations) {
      const bytes = Buffer.from(base64, 'base64');
      const ends = [bytes.length - 2, bytes.length - 1];
      for (let end = 0; end < bytes.length - 8; end += 61) ends.push(end);
      for (const end of ends) {
        const cut = decodeFrames(bytes.subarray(0, end), [0], () => {});
        await expect(cut, `${name} to ${end}`).rejects.toMatchObject({
          code: expect.stringMatching(/^(?:invalid|unsupported)-video$/),
          status: 400,
        });
      }
      for (const limits of [{ maxBytes: 10 }, { maxFrames: 0 }, { maxPixels: 20 }, { maxAllPixels: 100 }])
        expect(() => checkAnimation(bytes, limits, 'there')).toThrow(
          expect.objectContaining({ code: 'video-too-large', where: 'there' }),
        );
    }
    const many = Buffer.from(animations[0]!.base64, 'base64');
    const frame = many.subarray(many.indexOf(Buffer.from([0x21, 0xf9])), -1);
    const bomb = Buffer.concat([
      many.subarray(0, -1),
      ...Array.from({ length: 3000 }, () => frame),
      many.subarray(-1),
    ]);
    expect(readAnimation(bomb)).toMatchObject({ delays: { length: 15_005 } });
    expect(() => checkAnimation(bomb)).toThrow(/more than 10000 frames/);
  });

  it.each([
    ['\0\0\0\x18ftypisom', 'MP4'],
    ['\x1aE\xdf\xa3......', 'WebM or Matroska'],
    ['RIFF....AVI ', 'AVI'],
    ['\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x05\0\0\0\x05', 'PNG'],
    ['what?', 'no video'],
  ])('tells %j by name, and what could read it', (text, name) => {
    expect(() => checkAnimation(Buffer.from(text, 'latin1'))).toThrow(
      expect.objectContaining({
        code: 'unsupported-video',
        message: expect.stringContaining(name),
        fix: expect.stringContaining('decodeVideo'),
      }),
    );
  });
});
