/** The patches of a picture that is taken whole: made as large as its grid, and cut row by row. */
import type { RgbImage } from './image.js';
import { type ImageGrid, type PixelValues, writeTile } from './processor.js';
import { resizeImage } from './resize.js';

/** `[rows · cols, 3 · patchSize²]`. `tables`: `valueTables` of the same settings. */
export function wholePatches(
  image: RgbImage,
  grid: ImageGrid,
  { patchSize, filter }: Pick<PixelValues, 'filter'> & { readonly patchSize: number },
  tables: readonly Float32Array[],
): Float32Array<ArrayBuffer> {
  const resized = resizeImage(image, grid.cols * patchSize, grid.rows * patchSize, filter);
  const out = new Float32Array(grid.rows * grid.cols * 3 * patchSize ** 2);
  writeTile(out, 0, resized, [0, 0], grid, patchSize, tables);
  return out;
}
