/** The processor of Muse Glimmer: pictures keep their ratio as well as whole tokens allow, and have so many at most. */
import type { RgbImage } from './image.js';
import {
  checkPixels,
  type ImageGrid,
  type ImageProcessor,
  type PixelValues,
  type TowerInput,
  valueTables,
} from './processor.js';
import { HALF, type ProcessorFields } from './processor-fields.js';
import { type Pair, setOrder } from './python-set.js';
import { roundEven } from './qwen-processor.js';
import { wholePatches } from './whole-patches.js';

export interface MuseGlimmerSettings extends PixelValues {
  readonly mostTokens: number;
  readonly patchSize: number;
  /** Patches a side that become one token. */
  readonly mergeSize: number;
}

/** MuseGlimmerImageProcessor. Errors: `invalid-preprocessor`. */
export function readMuseGlimmerProcessor(fields: ProcessorFields, tower: TowerInput): ImageProcessor {
  fields.mustBe('do_resize', true);
  fields.agree('patch_size', fields.count('patch_size') ?? 14, tower.patchSize);
  fields.agree('merge_size', fields.count('merge_size') ?? 2, tower.mergeSize);
  return new MuseGlimmerProcessor({
    ...fields.tensorPixels('lanczos', HALF, HALF),
    mostTokens: fields.count('max_image_tokens') ?? 4096,
    patchSize: tower.patchSize,
    mergeSize: tower.mergeSize,
  });
}

/**
 * Rows and columns of tokens of `side` pixels: of the numbers around those that the picture would have the pair that is closest to its
 * ratio (`smart_resize` of the reference).
 *
 * @example tokenGrid(500, 500, 28, 4096) // [17, 17]: [18, 18] is as close, but the reference comes to it later
 */
export function tokenGrid(width: number, height: number, side: number, most: number): Pair {
  const ratio = width / side / (height / side);
  let [rows, cols] = [height / side, width / side];
  if (rows * cols > most) {
    rows = Math.sqrt(most / ratio);
    cols = rows * ratio;
  }
  const around = (x: number): number[] => [Math.floor(x), Math.ceil(x)];
  const pairs = around(rows).flatMap((r) => around(cols).map((c): Pair => [r, c]));
  const possible = setOrder(pairs).filter(([r, c]) => r >= 1 && c >= 1 && r * c <= most);
  const off = ([r, c]: Pair): number => Math.abs(r / c - height / width);
  return possible.length === 0
    ? [Math.max(1, roundEven(rows)), Math.max(1, roundEven(cols))]
    : possible.reduce((best, pair) => (off(pair) < off(best) ? pair : best));
}

class MuseGlimmerProcessor implements ImageProcessor {
  readonly settings: MuseGlimmerSettings;
  readonly #tables: readonly Float32Array[];

  constructor(settings: MuseGlimmerSettings) {
    this.settings = settings;
    this.#tables = valueTables(settings);
  }

  grid(width: number, height: number): ImageGrid {
    checkPixels(width, height);
    const { patchSize, mergeSize, mostTokens } = this.settings;
    const [rows, cols] = tokenGrid(width, height, patchSize * mergeSize, mostTokens);
    return { rows: rows * mergeSize, cols: cols * mergeSize };
  }

  patches(image: RgbImage): Float32Array<ArrayBuffer> {
    return wholePatches(image, this.grid(image.width, image.height), this.settings, this.#tables);
  }
}
