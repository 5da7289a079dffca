/** The image processor of Qwen2-VL, Qwen2.5-VL and Qwen3-VL: sizes, normalised patches. */
import { KvantError } from '../errors.js';
import type { RgbImage } from './image.js';
import { resizeImage } from './resize.js';
import type { ResizeFilter } from './resize-weights.js';

/** What preprocessor_config.json says, or the class's defaults where it is silent. */
export interface QwenProcessorSettings {
  readonly minPixels: number;
  readonly maxPixels: number;
  /** Side of a patch in pixels. */
  readonly patchSize: number;
  /** Patches a side that become one token. */
  readonly mergeSize: number;
  readonly filter: ResizeFilter;
  readonly resize: boolean;
  /** `rescale_factor`; 1 where `do_rescale` is off. */
  readonly scale: number;
  readonly mean: readonly number[];
  readonly std: readonly number[];
}

/** Patches of one image, in rows and columns. */
export interface ImageGrid {
  readonly rows: number;
  readonly cols: number;
}

/** Widest ratio of the sides that the reference takes. */
const WIDEST = 200;

/** Half to even, as Python rounds. */
function roundEven(x: number): number {
  const floor = Math.floor(x);
  const rest = x - floor;
  if (rest !== 0.5) return Math.round(x);
  return floor % 2 === 0 ? floor : floor + 1;
}

/**
 * The size to which an image is resized: sides that are multiples of `factor`, pixels within the bounds, the ratio kept as well as
 * that allows (`smart_resize` of the reference).
 *
 * @throws KvantError `invalid-image` for no pixels, or sides of more than 200 : 1
 */
export function smartResize(
  width: number,
  height: number,
  factor: number,
  minPixels: number,
  maxPixels: number,
): { readonly width: number; readonly height: number } {
  if (!(width > 0 && height > 0) || Math.max(width, height) / Math.min(width, height) > WIDEST)
    throw new KvantError(
      'invalid-image',
      `An image of ${width} × ${height} pixels: the longer side may be ${WIDEST} times the shorter at most.`,
      { kind: 'invalid-request', fix: 'Crop the image, or pad it.' },
    );
  let h = roundEven(height / factor) * factor;
  let w = roundEven(width / factor) * factor;
  if (h * w > maxPixels) {
    const beta = Math.sqrt((height * width) / maxPixels);
    h = Math.max(factor, Math.floor(height / beta / factor) * factor);
    w = Math.max(factor, Math.floor(width / beta / factor) * factor);
  } else if (h * w < minPixels) {
    const beta = Math.sqrt(minPixels / (height * width));
    h = Math.ceil((height * beta) / factor) * factor;
    w = Math.ceil((width * beta) / factor) * factor;
  }
  return { width: w, height: h };
}

export class QwenProcessor {
  readonly settings: QwenProcessorSettings;
  /** For each channel the value of each byte: rescaled, then normalised, rounded to f32 after each step as the reference does. */
  readonly #values: readonly Float32Array[];

  constructor(settings: QwenProcessorSettings) {
    this.settings = settings;
    this.#values = settings.mean.map((mean, c) =>
      Float32Array.from({ length: 256 }, (_, v) => {
        const scaled = Math.fround(v * settings.scale);
        return Math.fround(Math.fround(scaled - Math.fround(mean)) / Math.fround(settings.std[c]!));
      }),
    );
  }

  /** Numbers of a patch: channel, row, column, once for the frame that the reference repeats. */
  get patchValues(): number {
    return 3 * this.settings.patchSize ** 2;
  }

  /** Pixels of the resized image. Errors: `invalid-image`. */
  size(width: number, height: number): { readonly width: number; readonly height: number } {
    const { patchSize, mergeSize, minPixels, maxPixels, resize } = this.settings;
    const factor = patchSize * mergeSize;
    if (resize) return smartResize(width, height, factor, minPixels, maxPixels);
    if (width % factor === 0 && height % factor === 0 && width > 0 && height > 0) return { width, height };
    throw new KvantError(
      'invalid-image',
      `This model does not resize images, and ${width} × ${height} pixels are no multiples of ${factor}.`,
      { kind: 'invalid-request', fix: `Send sides that are multiples of ${factor} pixels.` },
    );
  }

  /** Patches that an image of so many pixels becomes. Errors: `invalid-image`. */
  grid(width: number, height: number): ImageGrid {
    const size = this.size(width, height);
    const { patchSize } = this.settings;
    return { rows: size.height / patchSize, cols: size.width / patchSize };
  }

  /** Tokens of a grid. */
  tokens({ rows, cols }: ImageGrid): number {
    return (rows * cols) / this.settings.mergeSize ** 2;
  }

  /**
   * `[rows · cols, 3 · patch²]`: normalised, the patches of one token together: merged row, merged column, then the patches within, each
   * in the order channel, row, column.
   */
  patches(image: RgbImage): Float32Array {
    const { patchSize: p, mergeSize: m, filter } = this.settings;
    const { width, height } = this.size(image.width, image.height);
    const { pixels } = resizeImage(image, width, height, filter);
    const out = new Float32Array(width * height * 3);
    let at = 0;
    for (let top = 0; top < height; top += p * m)
      for (let left = 0; left < width; left += p * m)
        for (let cell = 0; cell < m * m; cell++) {
          const y0 = top + Math.trunc(cell / m) * p;
          const x0 = left + (cell % m) * p;
          for (let c = 0; c < 3; c++) {
            const values = this.#values[c]!;
            for (let y = y0; y < y0 + p; y++) {
              let from = (y * width + x0) * 3 + c;
              for (let x = 0; x < p; x++, from += 3) out[at++] = values[pixels[from]!]!;
            }
          }
        }
    return out;
  }
}
