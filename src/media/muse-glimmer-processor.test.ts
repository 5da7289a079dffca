/** The sizes of Muse Glimmer's pictures: expected ones are those of `smart_resize` in transformers 5.24 (models/muse_glimmer). */
import { describe, expect, it } from 'vitest';
import { readProcessor } from './read-processor.js';

const sizeOf = (file: object, width: number, height: number): number[] => {
  const config = { image_processor_type: 'MuseGlimmerImageProcessor', ...file };
  const { rows, cols } = readProcessor(config, { patchSize: 14, mergeSize: 2 }).grid(width, height);
  return [cols * 14, rows * 14];
};

describe("Muse Glimmer's processor", () => {
  it.each([
    [640, 480, 644, 476],
    [1920, 1080, 1932, 1092],
    // Sides below a token.
    [1, 1, 28, 28],
    [12, 9, 28, 28],
    [100, 27, 112, 28],
    [3, 500, 28, 504],
    // Squares: two sizes are as close, and the reference takes the one that its set has first.
    [42, 42, 28, 28],
    [70, 70, 84, 84],
    [98, 98, 112, 112],
    [126, 126, 112, 112],
    [300, 300, 280, 280],
    [500, 500, 476, 476],
    [1000, 1000, 1008, 1008],
    [1234, 1234, 1260, 1260],
    // More tokens than there may be, or than any size has.
    [4032, 3024, 2044, 1540],
    [5000, 5000, 1792, 1792],
    [9000, 300, 9016, 308],
    [1, 200_000, 28, 200_004],
  ])('makes %i × %i into %i × %i', (width, height, ...want) => {
    expect(sizeOf({}, width, height)).toEqual(want);
  });

  it('has as many tokens as its file says', () => {
    expect(sizeOf({ max_image_tokens: 6 }, 300, 300)).toEqual([56, 56]);
  });

  it.each([
    [0, 10],
    [10, 0],
  ])('refuses %i × %i', (width, height) => {
    expect(() => sizeOf({}, width, height)).toThrow(expect.objectContaining({ code: 'invalid-image' }));
  });
});
