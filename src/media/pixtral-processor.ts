/** The processor of Pixtral and Mistral 3: pictures keep their ratio, are only ever made smaller, and end at whole tokens. */
import { KvantError } from '../errors.js';
import type { RgbImage } from './image.js';
import {
  type ImageGrid,
  type ImageProcessor,
  type PixelValues,
  type TowerInput,
  valueTables,
} from './processor.js';
import { CLIP_MEAN, CLIP_STD, type ProcessorFields } from './processor-fields.js';
import { wholePatches } from './whole-patches.js';

export interface PixtralSettings extends PixelValues {
  /** Longest side in pixels, before it is made a multiple of a token's. */
  readonly longest: number;
  readonly patchSize: number;
  readonly mergeSize: number;
}

/** PixtralImageProcessor, as Pixtral's processor calls it: with the tower's patch. Errors: `invalid-preprocessor`. */
export function readPixtralProcessor(fields: ProcessorFields, tower: TowerInput): ImageProcessor {
  fields.mustBe('do_resize', true);
  const patch = fields.within('patch_size', ['height']).count('height');
  // Files of merged patches may say the side of a token.
  if (patch !== tower.patchSize * tower.mergeSize) fields.agree('patch_size', patch, tower.patchSize);
  return new PixtralProcessor({
    ...fields.pixels('bicubic', CLIP_MEAN, CLIP_STD),
    longest: fields.within('size', ['longest_edge']).count('longest_edge') ?? 1024,
    patchSize: tower.patchSize,
    mergeSize: tower.mergeSize,
  });
}

class PixtralProcessor implements ImageProcessor {
  readonly settings: PixtralSettings;
  readonly #tables: readonly Float32Array[];

  constructor(settings: PixtralSettings) {
    this.settings = settings;
    this.#tables = valueTables(settings);
  }

  grid(width: number, height: number): ImageGrid {
    const { longest, patchSize, mergeSize } = this.settings;
    const ratio = Math.max(height / longest, width / longest);
    const side = patchSize * mergeSize;
    const patches = (pixels: number): number => {
      const kept = ratio > 1 ? Math.floor(pixels / ratio) : pixels;
      return (Math.floor((kept - 1) / side) + 1) * mergeSize;
    };
    const grid = { rows: patches(height), cols: patches(width) };
    if (width > 0 && height > 0 && grid.rows > 0 && grid.cols > 0) return grid;
    throw new KvantError(
      'invalid-image',
      `An image of ${width} × ${height} pixels, of which nothing is left at ${longest} pixels of its longer side.`,
      { kind: 'invalid-request', fix: 'Crop the image, or pad it.' },
    );
  }

  patches(image: RgbImage): Float32Array<ArrayBuffer> {
    return wholePatches(image, this.grid(image.width, image.height), this.settings, this.#tables);
  }
}
