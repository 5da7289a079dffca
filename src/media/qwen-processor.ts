/** The image processor of Qwen2-VL, Qwen2.5-VL and Qwen3-VL, and that of GLM-4.1V to 4.6V: sizes, normalised patches. */
import { KvantError } from '../errors.js';
import type { RgbImage } from './image.js';
import {
  type ImageGrid,
  type ImageProcessor,
  type PixelValues,
  type TowerInput,
  valueTables,
  writePatch,
} from './processor.js';
import { CLIP_MEAN, CLIP_STD, type ProcessorFields } from './processor-fields.js';
import { resizeImage } from './resize.js';

/** What preprocessor_config.json says, or the class's defaults where it is silent. */
export interface QwenProcessorSettings extends PixelValues {
  readonly minPixels: number;
  readonly maxPixels: number;
  /** Side of a patch in pixels. */
  readonly patchSize: number;
  /** Patches a side that become one token. */
  readonly mergeSize: number;
  readonly resize: boolean;
  /** Sides shorter than a token's are made as long before anything else, in the same ratio (GLM-4V). Default: each is by itself. */
  readonly enlarge?: true;
}

/** Qwen2VLImageProcessor. Errors: `invalid-preprocessor`. */
export function readQwenProcessor(fields: ProcessorFields, tower: TowerInput): ImageProcessor {
  // Pixels, not edges, in spite of the names.
  const size = fields.within('size');
  const minPixels = fields.count('min_pixels') ?? size.count('shortest_edge') ?? size.count('min_pixels');
  const maxPixels = fields.count('max_pixels') ?? size.count('longest_edge') ?? size.count('max_pixels');
  const patchSize = fields.count('patch_size') ?? 14;
  const mergeSize = fields.count('merge_size') ?? 2;
  fields.agree('patch_size', patchSize, tower.patchSize);
  fields.agree('merge_size', mergeSize, tower.mergeSize);
  return new QwenProcessor({
    ...fields.pixels('bicubic', CLIP_MEAN, CLIP_STD),
    minPixels: minPixels ?? 3136,
    maxPixels: maxPixels ?? 1_003_520,
    patchSize,
    mergeSize,
    resize: fields.flag('do_resize', true),
  });
}

/**
 * Glm4vImageProcessor and Glm46VImageProcessor, whose `size` counts the pixels of a patch's frames, all of which are the picture.
 * Errors: `invalid-preprocessor`.
 */
export function readGlm4vProcessor(fields: ProcessorFields, tower: TowerInput): ImageProcessor {
  const frames = fields.count('temporal_patch_size') ?? 2;
  const size = fields.within('size');
  const bound = (name: string, edge: string, fallback: number): number =>
    // As a request bounds them: width times height.
    fields.count(name) ?? (size.count(edge) ?? fallback) / frames;
  fields.agree('patch_size', fields.count('patch_size'), tower.patchSize);
  fields.agree('merge_size', fields.count('merge_size'), tower.mergeSize);
  return new QwenProcessor({
    ...fields.pixels('bicubic', CLIP_MEAN, CLIP_STD),
    minPixels: bound('min_pixels', 'shortest_edge', 112 ** 2),
    maxPixels: bound('max_pixels', 'longest_edge', 28 ** 2 * 15_000),
    patchSize: tower.patchSize,
    mergeSize: tower.mergeSize,
    resize: fields.flag('do_resize', true),
    enlarge: true,
  });
}

/** Widest ratio of the sides that the reference takes. */
export const WIDEST = 200;

/** Half to even, as Python rounds. */
export function roundEven(x: number): number {
  const floor = Math.floor(x);
  const rest = x - floor;
  if (rest !== 0.5) return Math.round(x);
  return floor % 2 === 0 ? floor : floor + 1;
}

/**
 * The size to which an image is resized: sides that are multiples of `factor`, pixels within the bounds, the ratio kept as well as
 * that allows (`smart_resize` of the reference). `least`: what sides are before pixels are counted.
 *
 * @throws KvantError `invalid-image` for no pixels, or sides of more than 200 : 1
 */
export function smartResize(
  width: number,
  height: number,
  factor: number,
  minPixels: number,
  maxPixels: number,
  least = 0,
): { readonly width: number; readonly height: number } {
  if (!(width > 0 && height > 0) || Math.max(width, height) / Math.min(width, height) > WIDEST)
    throw new KvantError(
      'invalid-image',
      `An image of ${width} × ${height} pixels: the longer side may be ${WIDEST} times the shorter at most.`,
      { kind: 'invalid-request', fix: 'Crop the image, or pad it.' },
    );
  let h = Math.max(least, roundEven(height / factor) * factor);
  let w = Math.max(least, roundEven(width / factor) * factor);
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

/** Sides of which none is shorter than `least`, in the same ratio. */
export function enlarged(width: number, height: number, least: number): readonly [number, number] {
  if ((width >= least && height >= least) || !(width > 0 && height > 0)) return [width, height];
  const scale = Math.max(least / height, least / width);
  return [Math.trunc(width * scale), Math.trunc(height * scale)];
}

export class QwenProcessor implements ImageProcessor {
  readonly settings: QwenProcessorSettings;
  readonly #tables: readonly Float32Array[];

  constructor(settings: QwenProcessorSettings) {
    this.settings = settings;
    this.#tables = valueTables(settings);
  }

  /** Pixels of the resized image. Errors: `invalid-image`. */
  size(width: number, height: number): { readonly width: number; readonly height: number } {
    const { patchSize, mergeSize, minPixels, maxPixels, resize, enlarge } = this.settings;
    const factor = patchSize * mergeSize;
    if (resize) {
      const [w, h] = enlarge === true ? enlarged(width, height, factor) : [width, height];
      return smartResize(w, h, factor, minPixels, maxPixels);
    }
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

  patches(image: RgbImage): Float32Array<ArrayBuffer> {
    const { width, height } = this.size(image.width, image.height);
    return mergedPatches(image, width, height, this.settings, this.#tables);
  }
}

/**
 * An image resized and cut up, `[rows · cols, 3 · patch²]`: normalised, the patches of one token together: merged row, merged column, then
 * the patches within, each in the order channel, row, column.
 */
export function mergedPatches(
  image: RgbImage,
  width: number,
  height: number,
  { patchSize: p, mergeSize: m, filter }: Pick<QwenProcessorSettings, 'patchSize' | 'mergeSize' | 'filter'>,
  tables: readonly Float32Array[],
): Float32Array<ArrayBuffer> {
  const resized = resizeImage(image, width, height, filter);
  const out = new Float32Array(width * height * 3);
  let at = 0;
  for (let top = 0; top < height; top += p * m)
    for (let left = 0; left < width; left += p * m)
      for (let cell = 0; cell < m * m; cell++) {
        const corner = [left + (cell % m) * p, top + Math.trunc(cell / m) * p] as const;
        at = writePatch(out, at, resized, corner, p, tables);
      }
  return out;
}
