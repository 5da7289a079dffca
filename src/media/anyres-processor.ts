/** Processors that fit a picture into one of several sizes of whole tiles, padded, and show the whole as one more tile: LLaVA-NeXT, OneVision. */
import { KvantError } from '../errors.js';
import type { RgbImage } from './image.js';
import {
  type ImageGrid,
  type ImageProcessor,
  type PixelValues,
  patchCount,
  type TileGrid,
  type TowerInput,
  tileSize,
  valueTables,
  writeTile,
} from './processor.js';
import { CLIP_MEAN, CLIP_STD, type ProcessorFields } from './processor-fields.js';
import { resizeImage } from './resize.js';

/** Height and width in pixels. */
export type Pinpoint = readonly [height: number, width: number];

export interface AnyresSettings extends PixelValues {
  /** Side of a tile in pixels. */
  readonly tile: number;
  readonly patchSize: number;
  /** None: a picture is padded to a square, which is its only tile. */
  readonly pinpoints: readonly Pinpoint[];
  /** What squares are padded with, by channel. */
  readonly background: readonly number[];
}

const NEXT_PINPOINTS: readonly Pinpoint[] = [
  [336, 672],
  [672, 336],
  [672, 672],
  [1008, 336],
  [336, 1008],
];
const SIDES = [384, 768, 1152, 1536, 1920, 2304];
const ONEVISION_PINPOINTS = SIDES.flatMap((height) => SIDES.map((width): Pinpoint => [height, width]));
/** A picture of more tiles would take minutes. */
const MOST_TILES = 64;
/** Widest ratio of the sides. */
const WIDEST = 200;

/** LlavaNextImageProcessor. Errors: `invalid-preprocessor`. */
export function readLlavaNextProcessor(fields: ProcessorFields, tower: TowerInput): ImageProcessor {
  const size = fields.within('size', ['shortest_edge']);
  const side = size.count('shortest_edge') ?? size.count('height') ?? 224;
  if ((size.count('width') ?? side) !== side) throw fields.odd('size', 'It takes a square.');
  const crop = fields.within('crop_size', ['height', 'width']);
  for (const name of ['height', 'width'])
    if ((crop.count(name) ?? side) !== side)
      throw fields.odd('crop_size', 'It takes a square as large as size.');
  return read(fields, tower, side, NEXT_PINPOINTS);
}

/** LlavaOnevisionImageProcessor. Errors: `invalid-preprocessor`. */
export function readOnevisionProcessor(fields: ProcessorFields, tower: TowerInput): ImageProcessor {
  fields.mustBe('do_center_crop', false);
  const size = fields.within('size', ['height', 'width']);
  const side = size.count('height') ?? 384;
  if ((size.count('width') ?? side) !== side) throw fields.odd('size', 'It takes a square.');
  return read(fields, tower, side, ONEVISION_PINPOINTS);
}

function read(
  fields: ProcessorFields,
  tower: TowerInput,
  side: number,
  fallback: readonly Pinpoint[],
): ImageProcessor {
  fields.mustBe('do_resize', true);
  fields.agree('size', side, tileSize(tower, side));
  const pixels = fields.pixels('bicubic', CLIP_MEAN, CLIP_STD);
  const mean = fields.three('image_mean') ?? CLIP_MEAN;
  return new AnyresProcessor({
    ...pixels,
    tile: side,
    patchSize: tower.patchSize,
    pinpoints: readPinpoints(fields, side) ?? fallback,
    background: mean.map((of) => Math.trunc(of * 255)),
  });
}

function readPinpoints(fields: ProcessorFields, side: number): readonly Pinpoint[] | null {
  const value = fields.value('image_grid_pinpoints');
  if (value === undefined) return null;
  const fits = (one: unknown): boolean =>
    Number.isSafeInteger(one) && (one as number) > 0 && (one as number) % side === 0;
  if (
    Array.isArray(value) &&
    value.every((one) => Array.isArray(one) && one.length === 2 && one.every(fits)) &&
    value.every(([height, width]) => (height * width) / side ** 2 <= MOST_TILES)
  )
    return value as readonly Pinpoint[];
  throw fields.odd(
    'image_grid_pinpoints',
    `It takes pairs of heights and widths, multiples of ${side}, of up to ${MOST_TILES} tiles.`,
  );
}

class AnyresProcessor implements ImageProcessor {
  readonly settings: AnyresSettings;
  readonly #tables: readonly Float32Array[];

  constructor(settings: AnyresSettings) {
    this.settings = settings;
    this.#tables = valueTables(settings);
  }

  grid(width: number, height: number): ImageGrid {
    if (!(width > 0 && height > 0) || Math.max(width, height) / Math.min(width, height) > WIDEST)
      throw new KvantError(
        'invalid-image',
        `An image of ${width} × ${height} pixels: the longer side may be ${WIDEST} times the shorter at most.`,
        { kind: 'invalid-request', fix: 'Crop the image, or pad it.' },
      );
    const { tile, patchSize } = this.settings;
    const side = Math.floor(tile / patchSize);
    const best = this.#best(width, height);
    if (best === null) return { rows: side, cols: side };
    const [rows, cols] = [best[0] / tile, best[1] / tile];
    const kept = keptOf(width, height, { rows: rows * side, cols: cols * side });
    return { rows: side, cols: side, tiles: { rows, cols, whole: true, kept } };
  }

  patches(image: RgbImage): Float32Array<ArrayBuffer> {
    const { tile, patchSize, filter, background } = this.settings;
    const grid = this.grid(image.width, image.height);
    const out = new Float32Array(patchCount(grid) * 3 * patchSize ** 2);
    let at = 0;
    const write = (from: RgbImage, corner: readonly [number, number]): void => {
      at = writeTile(out, at, from, corner, grid, patchSize, this.#tables);
    };
    const { tiles } = grid;
    if (tiles === undefined) {
      const longer = Math.max(image.width, image.height);
      const square = padded(image, longer, longer, background);
      write(resizeImage(square, tile, tile, filter), [0, 0]);
      return out;
    }
    const [width, height] = [tiles.cols * tile, tiles.rows * tile];
    const inner = inside(image, width, height);
    const canvas = padded(resizeImage(image, inner.width, inner.height, filter), width, height, [0, 0, 0]);
    for (let y = 0; y < tiles.rows; y++)
      for (let x = 0; x < tiles.cols; x++) write(canvas, [x * tile, y * tile]);
    write(resizeImage(image, tile, tile, filter), [0, 0]);
    return out;
  }

  /** The size that shows most of the picture, and of those the one that wastes least. */
  #best(width: number, height: number): Pinpoint | null {
    let best: Pinpoint | null = null;
    let [most, least] = [0, Number.POSITIVE_INFINITY];
    for (const one of this.settings.pinpoints) {
      const scale = Math.min(one[1] / width, one[0] / height);
      const shown = Math.min(Math.trunc(width * scale) * Math.trunc(height * scale), width * height);
      const wasted = one[0] * one[1] - shown;
      if (shown < most || (shown === most && wasted >= least)) continue;
      [best, most, least] = [one, shown, wasted];
    }
    return best;
  }
}

/** The size of a picture within another: one side is that of the other. */
function inside(
  image: Pick<RgbImage, 'width' | 'height'>,
  width: number,
  height: number,
): { readonly width: number; readonly height: number } {
  const [across, down] = [width / image.width, height / image.height];
  return across < down
    ? { width, height: Math.min(Math.ceil(image.height * across), height) }
    : { width: Math.min(Math.ceil(image.width * down), width), height };
}

/** The picture in the middle of a larger one. */
function padded(
  { pixels, width, height }: RgbImage,
  fullWidth: number,
  fullHeight: number,
  background: readonly number[],
): RgbImage {
  if (width === fullWidth && height === fullHeight) return { pixels, width, height };
  const out = new Uint8Array(fullWidth * fullHeight * 3);
  for (let at = 0; at < out.length; at += 3) for (let c = 0; c < 3; c++) out[at + c] = background[c]!;
  const [left, top] = [Math.floor((fullWidth - width) / 2), Math.floor((fullHeight - height) / 2)];
  for (let y = 0; y < height; y++)
    out.set(pixels.subarray(y * width * 3, (y + 1) * width * 3), ((top + y) * fullWidth + left) * 3);
  return { pixels: out, width: fullWidth, height: fullHeight };
}

/** Patches of all tiles together that hold the picture: as much is left out at both ends. */
function keptOf(width: number, height: number, { rows, cols }: TileGrid): TileGrid {
  const cut = (full: number, size: number): number => {
    const kept = Math.trunc(Number(size.toFixed(7)));
    return full - 2 * Math.floor((full - kept) / 2);
  };
  return width / height > cols / rows
    ? { rows: cut(rows, height * (cols / width)), cols }
    : { rows, cols: cut(cols, width * (rows / height)) };
}
