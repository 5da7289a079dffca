/** The sizes of GLM-4V's pictures: expected ones are those of `smart_resize` in transformers 5.24 (models/glm4v), with two frames. */
import { describe, expect, it } from 'vitest';
import { readProcessor } from './read-processor.js';

const TOWER = { patchSize: 14, mergeSize: 2 };
const FILE = {
  image_processor_type: 'Glm4vImageProcessor',
  size: { shortest_edge: 12_544, longest_edge: 9_633_792 },
};
const sizeOf = (file: object, width: number, height: number): number[] => {
  const { rows, cols } = readProcessor({ ...FILE, ...file }, TOWER).grid(width, height);
  return [cols * 14, rows * 14];
};

describe("GLM-4V's processor", () => {
  it.each([
    [640, 480, 644, 476],
    // Below the least, each side below a token, and one of them.
    [12, 9, 112, 84],
    [28, 28, 84, 84],
    [3, 500, 28, 4676],
    [100, 27, 168, 56],
    [27, 5399, 28, 5600],
    [113, 111, 112, 112],
    // Above the most.
    [4032, 3024, 2520, 1876],
    [5000, 5000, 2184, 2184],
    [9000, 300, 8988, 308],
  ])('makes %i × %i into %i × %i', (width, height, ...want) => {
    for (const name of ['Glm4vImageProcessor', 'Glm46VImageProcessorFast'])
      expect(sizeOf({ image_processor_type: name }, width, height)).toEqual(want);
  });

  it('counts the pixels of one frame where a request bounds them', () => {
    expect(sizeOf({ min_pixels: 1, max_pixels: 28 ** 2 * 6 }, 300, 300)).toEqual([56, 56]);
    expect(sizeOf({ size: { shortest_edge: 2, longest_edge: 28 ** 2 * 12 } }, 300, 300)).toEqual([56, 56]);
  });

  it.each([
    [0, 10],
    [1, 500],
    [9001, 45],
  ])('refuses %i × %i', (width, height) => {
    expect(() => sizeOf({}, width, height)).toThrow(expect.objectContaining({ code: 'invalid-image' }));
  });
});
