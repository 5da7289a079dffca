import type { RgbImage } from '../../src/media/image.js';

/** The picture that scripts/fixtures/media.py draws: waves, with noise of a 32-bit generator. */
export function picture(width: number, height: number, seed: number): RgbImage {
  let state = seed;
  const pixels = new Uint8Array(width * height * 3);
  let at = 0;
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++)
      for (let c = 0; c < 3; c++) {
        state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
        const noise = Math.floor((state >>> 24) / (1 + Math.floor((x * 7) / width)));
        pixels[at++] = (x * (3 + c) + y * (5 - c) + noise) % 256;
      }
  return { width, height, pixels };
}
