/** Pixels beside those of PIL and of transformers' processors (scripts/fixtures/media.py): no byte off. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { picture } from '../../test/setup/picture.js';
import { smartResize } from './qwen-processor.js';
import { readProcessor } from './read-processor.js';
import { resizeImage } from './resize.js';
import type { ResizeFilter } from './resize-weights.js';

const fixture = JSON.parse(
  readFileSync(new URL('../../test/fixtures/media/pixels.json', import.meta.url), 'utf8'),
) as {
  readonly resizes: readonly {
    from: [number, number];
    to: [number, number];
    filter: ResizeFilter;
    sha256: string;
  }[];
  readonly configs: Readonly<Record<string, Record<string, unknown>>>;
  readonly processors: readonly {
    config: string;
    size: [number, number];
    grid: [number, number, number];
    shape: [number, number];
    head: number[];
    sha256: string;
  }[];
};
const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

describe('resizeImage', () => {
  it.each(fixture.resizes)(
    'makes $to of $from as PIL does, $filter',
    ({ from, to, filter, sha256: want }) => {
      const got = resizeImage(picture(...from, 7), ...to, filter);
      expect(got.pixels.length).toBe(to[0] * to[1] * 3);
      expect(sha256(got.pixels)).toBe(want);
    },
  );
});

describe('QwenProcessor', () => {
  it.each(fixture.processors)('$config: $size', ({ config, size, grid, shape, sha256: want, head }) => {
    const patchSize = (fixture.configs[config]?.patch_size as number | undefined) ?? 14;
    const processor = readProcessor(
      { image_processor_type: 'Qwen2VLImageProcessor', ...fixture.configs[config] },
      { patchSize, mergeSize: 2 },
    );
    const image = picture(...size, 11);
    const got = processor.grid(...size);
    expect([1, got.rows, got.cols]).toEqual(grid);
    const patches = processor.patches(image);
    const patchValues = 3 * patchSize ** 2;
    expect([...patches.subarray(patchValues, patchValues + 4)]).toEqual(head);
    // The reference repeats the frame: channel, frame, row, column.
    const area = patchValues / 3;
    const repeated = new Float32Array(shape[0] * shape[1]);
    for (let i = 0; i < patches.length / area; i++) {
      const part = patches.subarray(i * area, (i + 1) * area);
      repeated.set(part, 2 * i * area);
      repeated.set(part, (2 * i + 1) * area);
    }
    expect(sha256(new Uint8Array(repeated.buffer))).toBe(want);
  });

  it('refuses sides of more than 200 : 1, and none', () => {
    for (const [width, height] of [
      [1, 500],
      [0, 10],
      [500, 1],
    ] as const)
      expect(() => smartResize(width, height, 28, 3136, 1e6)).toThrow(
        expect.objectContaining({ code: 'invalid-image', status: 400 }),
      );
  });

  it('refuses a file that names another processor, or numbers that cannot be', () => {
    const tower = { patchSize: 14, mergeSize: 2 };
    const base = { image_processor_type: 'Qwen2VLImageProcessorFast' };
    for (const [given, named] of [
      [{ image_processor_type: 'FuyuImageProcessor' }, /FuyuImageProcessor/],
      [{ ...base, patch_size: 1.5 }, /patch_size/],
      [{ ...base, patch_size: 16 }, /patch_size is 16; the model's config.json says 14/],
      [{ ...base, merge_size: 3 }, /merge_size/],
      [{ ...base, image_mean: [1, 2] }, /image_mean/],
      [{ ...base, resample: 5 }, /resample/],
      [{ ...base, do_resize: 'no' }, /do_resize/],
    ] as const)
      expect(() => readProcessor(given, tower)).toThrow(
        expect.objectContaining({ code: 'invalid-preprocessor', message: expect.stringMatching(named) }),
      );
  });
});
