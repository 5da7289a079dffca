import type { RgbImage } from './image.js';

/** The picture as its EXIF orientation (1 to 8) wants it seen. */
export function turnImage(image: RgbImage, orientation: number): RgbImage {
  if (orientation === 1) return image;
  const { width: w, height: h, pixels } = image;
  const swapped = orientation >= 5;
  const width = swapped ? h : w;
  const height = swapped ? w : h;
  // Source of the upright pixel (x, y).
  const mirrorX = orientation === 2 || orientation === 3 || orientation === 7 || orientation === 8;
  const mirrorY = orientation === 3 || orientation === 4 || orientation === 6 || orientation === 7;
  const out = new Uint8Array(pixels.length);
  let to = 0;
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const sx = swapped ? y : x;
      const sy = swapped ? x : y;
      const from = ((mirrorY ? h - 1 - sy : sy) * w + (mirrorX ? w - 1 - sx : sx)) * 3;
      out[to++] = pixels[from]!;
      out[to++] = pixels[from + 1]!;
      out[to++] = pixels[from + 2]!;
    }
  return { width, height, pixels: out };
}
