/** Processors that make one square of every picture: CLIP's cuts its middle out, SigLIP's changes its ratio. */
import { KvantError } from '../errors.js';
import type { RgbImage } from './image.js';
import {
  type ImageGrid,
  type ImageProcessor,
  type PixelValues,
  type TowerInput,
  tileSize,
  valueTables,
  writeTile,
} from './processor.js';
import { CLIP_MEAN, CLIP_STD, HALF, invalidProcessor, type ProcessorFields } from './processor-fields.js';
import { resizeImage } from './resize.js';
import type { ResizeFilter } from './resize-weights.js';

export interface SquareSettings extends PixelValues {
  /** Side of the square in pixels. */
  readonly size: number;
  /** Side to which the shorter one is resized before the middle is cut out; null where the ratio changes. */
  readonly shortest: number | null;
  /** Where the ratio changes: side of the square whose middle is cut out. Default: it is whole. */
  readonly squeezed?: number;
  readonly patchSize: number;
}

/** Widest ratio of the sides: a picture is resized whole before its middle is cut out. */
const WIDEST = 200;

/** CLIPImageProcessor. Errors: `invalid-preprocessor`. */
export function readClipProcessor(fields: ProcessorFields, tower: TowerInput): ImageProcessor {
  fields.mustBe('do_resize', true);
  const size = fields.within('size', ['shortest_edge']);
  const height = size.count('shortest_edge') === undefined ? size.count('height') : undefined;
  if (height !== undefined && (size.count('width') ?? height) !== height)
    throw fields.odd('size', 'It takes a square.');
  const crops = fields.flag('do_center_crop', true);
  // Else pictures would have sides of any ratio.
  if (height === undefined) fields.mustBe('do_center_crop', true);
  const resized = height ?? size.count('shortest_edge') ?? 224;
  const side = crops ? readCrop(fields, resized) : resized;
  fields.agree(crops ? 'crop_size' : 'size', side, tileSize(tower, side));
  return new SquareProcessor({
    ...fields.pixels('bicubic', CLIP_MEAN, CLIP_STD),
    size: side,
    shortest: height === undefined ? resized : null,
    ...(height !== undefined && height !== side && { squeezed: height }),
    patchSize: tower.patchSize,
  });
}

/** Side of the middle of a picture of sides of at least `resized`. Errors: `invalid-preprocessor`. */
function readCrop(fields: ProcessorFields, resized: number): number {
  const crop = fields.within('crop_size', ['height', 'width']);
  const side = crop.count('height') ?? 224;
  if ((crop.count('width') ?? side) !== side) throw fields.odd('crop_size', 'It takes a square.');
  if (resized >= side) return side;
  throw invalidProcessor('size', `is ${resized}, below crop_size`, 'It takes no less than crop_size.');
}

/** SiglipImageProcessor. Errors: `invalid-preprocessor`. */
export function readSiglipProcessor(
  fields: ProcessorFields,
  tower: TowerInput,
  filter: ResizeFilter = 'bicubic',
): ImageProcessor {
  fields.mustBe('do_resize', true);
  fields.mustBe('do_center_crop', false);
  const size = fields.within('size', ['height', 'width']);
  const side = size.count('height') ?? 224;
  if ((size.count('width') ?? side) !== side) throw fields.odd('size', 'It takes a square.');
  fields.agree('size', side, tileSize(tower, side));
  return new SquareProcessor({
    ...fields.pixels(filter, HALF, HALF),
    size: side,
    shortest: null,
    patchSize: tower.patchSize,
  });
}

/** Gemma3ImageProcessor. Errors: `invalid-preprocessor`, for crops beside the whole. */
export function readGemma3Processor(fields: ProcessorFields, tower: TowerInput): ImageProcessor {
  if (fields.flag('do_pan_and_scan', false))
    throw fields.odd(
      'do_pan_and_scan',
      'Only the whole picture is known for this processor: set it to false.',
    );
  return readSiglipProcessor(fields, tower, 'bilinear');
}

class SquareProcessor implements ImageProcessor {
  readonly settings: SquareSettings;
  readonly #tables: readonly Float32Array[];

  constructor(settings: SquareSettings) {
    this.settings = settings;
    this.#tables = valueTables(settings);
  }

  grid(width: number, height: number): ImageGrid {
    const { size, shortest, patchSize } = this.settings;
    if (
      !(width > 0 && height > 0) ||
      (shortest !== null && Math.max(width, height) / Math.min(width, height) > WIDEST)
    )
      throw new KvantError(
        'invalid-image',
        `An image of ${width} × ${height} pixels: the longer side may be ${WIDEST} times the shorter at most.`,
        { kind: 'invalid-request', fix: 'Crop the image, or pad it.' },
      );
    const side = Math.floor(size / patchSize);
    return { rows: side, cols: side };
  }

  patches(image: RgbImage): Float32Array<ArrayBuffer> {
    const { size, shortest, squeezed = size, patchSize, filter } = this.settings;
    const grid = this.grid(image.width, image.height);
    const [width, height] = shortest === null ? [squeezed, squeezed] : around(image, shortest);
    const resized = resizeImage(image, width, height, filter);
    const corner = [Math.floor((width - size) / 2), Math.floor((height - size) / 2)] as const;
    const out = new Float32Array(grid.rows * grid.cols * 3 * patchSize ** 2);
    writeTile(out, 0, resized, corner, grid, patchSize, this.#tables);
    return out;
  }
}

/** The size whose shorter side is `shortest`. */
function around({ width, height }: RgbImage, shortest: number): readonly [number, number] {
  const longer = Math.trunc((shortest * Math.max(width, height)) / Math.min(width, height));
  return width <= height ? [shortest, longer] : [longer, shortest];
}
