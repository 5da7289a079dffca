/** The processor of LFM2-VL: pictures keep their ratio; large ones are cut into square tiles, with the whole, made small, behind them. */
import type { RgbImage } from './image.js';
import {
  type ImageGrid,
  type ImageProcessor,
  type PixelValues,
  patchCount,
  type TileGrid,
  type TowerInput,
  tileGrids,
  valueTables,
  writeTile,
} from './processor.js';
import { HALF, type ProcessorFields } from './processor-fields.js';
import { roundEven, smartResize } from './qwen-processor.js';
import { resizeImage } from './resize.js';
import { tilesOfRatio } from './tile-processor.js';

export interface Lfm2VlSettings extends PixelValues {
  readonly patchSize: number;
  /** Patches a side of a token. */
  readonly mergeSize: number;
  /** Tokens of a picture that is one tile, and of the whole beside tiles. */
  readonly leastTokens: number;
  readonly mostTokens: number;
  /** How many times `mostTokens` a picture may have before it is cut into tiles. */
  readonly tolerance: number;
  /** Null where no picture is cut. */
  readonly tiles: {
    /** Side of a tile in pixels. */
    readonly side: number;
    readonly least: number;
    readonly most: number;
    /** The whole is one more tile. */
    readonly whole: boolean;
  } | null;
}

/** Lfm2VlImageProcessor, which resizes whatever its file says of `do_resize`. Errors: `invalid-preprocessor`. */
export function readLfm2VlProcessor(fields: ProcessorFields, tower: TowerInput): ImageProcessor {
  const { patchSize, mergeSize } = tower;
  fields.agree('encoder_patch_size', fields.count('encoder_patch_size') ?? 16, patchSize);
  fields.agree('downsample_factor', fields.count('downsample_factor') ?? 2, mergeSize);
  const [leastTokens, mostTokens] = [
    fields.count('min_image_tokens') ?? 64,
    fields.count('max_image_tokens') ?? 256,
  ];
  if (mostTokens < leastTokens)
    throw fields.odd('max_image_tokens', 'It takes no less than min_image_tokens.');
  return new Lfm2VlProcessor({
    ...fields.tensorPixels('bilinear', HALF, HALF),
    patchSize,
    mergeSize,
    leastTokens,
    mostTokens,
    tolerance: fields.number('max_pixels_tolerance') ?? 2,
    tiles: readTiles(fields, patchSize * mergeSize),
  });
}

/** `token`: side of a token in pixels. */
function readTiles(fields: ProcessorFields, token: number): Lfm2VlSettings['tiles'] {
  const [least, most] = [fields.count('min_tiles') ?? 2, fields.count('max_tiles') ?? 10];
  const splits = fields.flag('do_image_splitting', true) && !(least === 1 && most === 1);
  if (!splits) return null;
  // The reference counts the tokens of one tile as those of the picture uncut.
  if (least < 2) throw fields.odd('min_tiles', 'It takes 2 or more, or 1 with max_tiles 1.');
  if (most < least) throw fields.odd('max_tiles', 'It takes no less than min_tiles.');
  const side = fields.count('tile_size') ?? 512;
  if (side % token !== 0) throw fields.odd('tile_size', `It takes a multiple of a token's side (${token}).`);
  return { side, least, most, whole: fields.flag('use_thumbnail', true) };
}

class Lfm2VlProcessor implements ImageProcessor {
  readonly settings: Lfm2VlSettings;
  readonly #tables: readonly Float32Array[];

  constructor(settings: Lfm2VlSettings) {
    this.settings = settings;
    this.#tables = valueTables(settings);
  }

  grid(width: number, height: number): ImageGrid {
    const { patchSize, tiles } = this.settings;
    const whole = this.#uncut(width, height);
    if (tiles === null || !this.#isLarge(width, height)) return whole;
    const side = tiles.side / patchSize;
    const counts = tilesOfRatio(width, height, tiles.side, tiles);
    return { rows: side, cols: side, tiles: { ...counts, whole: tiles.whole, wholeGrid: whole } };
  }

  patches(image: RgbImage): Float32Array<ArrayBuffer> {
    const { patchSize, filter } = this.settings;
    const grid = this.grid(image.width, image.height);
    const out = new Float32Array(patchCount(grid) * 3 * patchSize ** 2);
    const [height, width] = [grid.rows * patchSize, grid.cols * patchSize];
    const { rows, cols } = grid.tiles ?? { rows: 1, cols: 1 };
    const canvas = resizeImage(image, cols * width, rows * height, filter);
    let at = 0;
    for (let y = 0; y < rows; y++)
      for (let x = 0; x < cols; x++)
        at = writeTile(out, at, canvas, [x * width, y * height], grid, patchSize, this.#tables);
    const whole = grid.tiles?.whole ? tileGrids(grid).at(-1)! : null;
    if (whole !== null) {
      const small = resizeImage(image, whole.cols * patchSize, whole.rows * patchSize, filter);
      writeTile(out, at, small, [0, 0], whole, patchSize, this.#tables);
    }
    return out;
  }

  /** Errors: `invalid-image`. */
  #uncut(width: number, height: number): TileGrid {
    const { patchSize, mergeSize, leastTokens, mostTokens } = this.settings;
    const token = patchSize * mergeSize;
    const size = smartResize(width, height, token, leastTokens * token ** 2, mostTokens * token ** 2, token);
    return { rows: size.height / patchSize, cols: size.width / patchSize };
  }

  #isLarge(width: number, height: number): boolean {
    const { patchSize, mergeSize, mostTokens, tolerance } = this.settings;
    const token = patchSize * mergeSize;
    const side = (pixels: number): number => Math.max(patchSize, roundEven(pixels / token) * token);
    return side(width) * side(height) > mostTokens * token ** 2 * tolerance;
  }
}
