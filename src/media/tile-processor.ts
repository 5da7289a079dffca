/** Processors that cut a picture into square tiles, and show the whole of it in one more: Idefics3, SmolVLM, InternVL. */
import type { RgbImage } from './image.js';
import {
  checkPixels,
  type ImageGrid,
  type ImageProcessor,
  type PixelValues,
  type TowerInput,
  tileSize,
  valueTables,
  writeTile,
} from './processor.js';
import {
  CLIP_MEAN,
  CLIP_STD,
  HALF,
  IMAGENET_MEAN,
  IMAGENET_STD,
  type ProcessorFields,
} from './processor-fields.js';
import { resizeImage } from './resize.js';

export interface TileSettings extends PixelValues {
  /** Side of a tile in pixels. */
  readonly tile: number;
  readonly patchSize: number;
  readonly rule:
    | {
        /** The longer side first becomes `longest`, then both become whole tiles, up. */
        readonly kind: 'edge';
        readonly longest: number;
        readonly splits: boolean;
      }
    | {
        /** The numbers of tiles whose ratio is nearest to the picture's. */
        readonly kind: 'ratio';
        readonly least: number;
        readonly most: number;
      };
  /** The whole is one more tile, where there are several. */
  readonly whole: boolean;
}

/** No side is longer. */
const MOST_PIXELS = 4096;

/** Idefics3ImageProcessor and SmolVLMImageProcessor. Errors: `invalid-preprocessor`. */
export function readIdefics3Processor(fields: ProcessorFields, tower: TowerInput): ImageProcessor {
  fields.mustBe('do_resize', true);
  const tile = fields.within('max_image_size', ['longest_edge']).count('longest_edge') ?? 364;
  fields.agree('max_image_size', tile, tileSize(tower, tile));
  return new TileProcessor({
    ...fields.pixels('lanczos', HALF, HALF),
    tile,
    patchSize: tower.patchSize,
    rule: {
      kind: 'edge',
      longest: fields.within('size', ['longest_edge']).count('longest_edge') ?? 4 * 364,
      splits: fields.flag('do_image_splitting', true),
    },
    whole: true,
  });
}

/** GotOcr2ImageProcessor, as InternVL's processor calls it: whatever the file says of `crop_to_patches`. Errors: `invalid-preprocessor`. */
export function readInternVlProcessor(fields: ProcessorFields, tower: TowerInput): ImageProcessor {
  fields.mustBe('do_resize', true);
  const size = fields.within('size', ['height', 'width']);
  const tile = size.count('height') ?? 384;
  if ((size.count('width') ?? tile) !== tile) throw fields.odd('size', 'It takes a square.');
  fields.agree('size', tile, tileSize(tower, tile));
  const [least, most] = [fields.count('min_patches') ?? 1, fields.count('max_patches') ?? 12];
  if (most < least) throw fields.odd('max_patches', 'It takes no less than min_patches.');
  return new TileProcessor({
    ...fields.pixels('bicubic', CLIP_MEAN, CLIP_STD),
    tile,
    patchSize: tower.patchSize,
    rule: { kind: 'ratio', least, most },
    whole: true,
  });
}

/** The one of InternVL as OpenGVLab has it, by what config.json says of it. Errors: `invalid-preprocessor`. */
export function readInternVlChatProcessor(fields: ProcessorFields, tower: TowerInput): ImageProcessor {
  const tile = fields.count('size') ?? 448;
  fields.agree('size', tile, tileSize(tower, tile));
  return new TileProcessor({
    ...fields.pixels('bicubic', IMAGENET_MEAN, IMAGENET_STD),
    tile,
    patchSize: tower.patchSize,
    rule: {
      kind: 'ratio',
      least: fields.count('dynamic_min_num') ?? 1,
      most: fields.count('dynamic_max_num') ?? 12,
    },
    whole: fields.flag('dynamic_use_thumbnail', true),
  });
}

class TileProcessor implements ImageProcessor {
  readonly settings: TileSettings;
  readonly #tables: readonly Float32Array[];

  constructor(settings: TileSettings) {
    this.settings = settings;
    this.#tables = valueTables(settings);
  }

  grid(width: number, height: number): ImageGrid {
    checkPixels(width, height);
    const { tile, patchSize, rule } = this.settings;
    const side = Math.floor(tile / patchSize);
    const { rows, cols } =
      rule.kind === 'edge' ? tilesOfEdge(width, height, tile, rule) : tilesOfRatio(width, height, tile, rule);
    const one = rows === 1 && cols === 1;
    return { rows: side, cols: side, ...(one ? {} : { tiles: { rows, cols, whole: this.settings.whole } }) };
  }

  patches(image: RgbImage): Float32Array<ArrayBuffer> {
    const { tile, patchSize, filter, rule } = this.settings;
    const grid = this.grid(image.width, image.height);
    const { tiles = { rows: 1, cols: 1, whole: false } } = grid;
    const [rows, cols] = [tiles.rows, tiles.cols];
    const count = rows * cols + (tiles.whole ? 1 : 0);
    const out = new Float32Array(count * grid.rows * grid.cols * 3 * patchSize ** 2);
    let source = image;
    if (rule.kind === 'edge') {
      const { width, height } = longestEdge(image.width, image.height, rule.longest);
      source = resizeImage(image, width, height, filter);
    }
    const canvas = resizeImage(source, cols * tile, rows * tile, filter);
    let at = 0;
    for (let y = 0; y < rows; y++)
      for (let x = 0; x < cols; x++)
        at = writeTile(out, at, canvas, [x * tile, y * tile], grid, patchSize, this.#tables);
    if (tiles.whole) {
      // Of the tiles together, or of the picture itself.
      const whole = resizeImage(rule.kind === 'edge' ? canvas : image, tile, tile, filter);
      writeTile(out, at, whole, [0, 0], grid, patchSize, this.#tables);
    }
    return out;
  }
}

interface Size {
  readonly width: number;
  readonly height: number;
}

function longestEdge(width: number, height: number, longest: number): Size {
  const even = (side: number): number => Math.max(1, side + (side % 2));
  const ratio = width / height;
  const size =
    width >= height
      ? { width: longest, height: even(Math.trunc(longest / ratio)) }
      : { width: even(Math.trunc(longest * ratio)), height: longest };
  if (longest <= MOST_PIXELS) return size;
  const bounded = size.width / size.height;
  return size.width >= size.height
    ? { width: MOST_PIXELS, height: Math.max(1, Math.trunc(MOST_PIXELS / bounded)) }
    : { width: Math.max(1, Math.trunc(MOST_PIXELS * bounded)), height: MOST_PIXELS };
}

function tilesOfEdge(
  fullWidth: number,
  fullHeight: number,
  tile: number,
  { longest, splits }: { readonly longest: number; readonly splits: boolean },
): { readonly rows: number; readonly cols: number } {
  if (!splits) return { rows: 1, cols: 1 };
  const { width, height } = longestEdge(fullWidth, fullHeight, longest);
  const ratio = width / height;
  const up = (side: number): number => Math.ceil(side / tile);
  if (width >= height) {
    const cols = up(width);
    return { cols, rows: up(Math.trunc((cols * tile) / ratio)) };
  }
  const rows = up(height);
  return { cols: up(Math.trunc(rows * tile * ratio)), rows };
}

/** The numbers of tiles whose ratio is nearest to the picture's. */
export function tilesOfRatio(
  width: number,
  height: number,
  tile: number,
  { least, most }: { readonly least: number; readonly most: number },
): { readonly rows: number; readonly cols: number } {
  const all: { rows: number; cols: number }[] = [];
  for (let cols = 1; cols <= most; cols++)
    for (let rows = 1; rows <= most; rows++)
      if (cols * rows >= least && cols * rows <= most) all.push({ rows, cols });
  // Sorting keeps the order of equals.
  all.sort((a, b) => a.rows * a.cols - b.rows * b.cols);
  const ratio = width / height;
  let best = { rows: 1, cols: 1 };
  let nearest = Number.POSITIVE_INFINITY;
  for (const one of all) {
    const distance = Math.abs(ratio - one.cols / one.rows);
    const fills = width * height > 0.5 * tile * tile * one.rows * one.cols;
    if (distance < nearest || (distance === nearest && fills)) best = one;
    nearest = Math.min(nearest, distance);
  }
  return best;
}
