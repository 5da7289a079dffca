/** What an image processor is: from a decoded picture to the patches that a tower takes. */

import { KvantError } from '../errors.js';
import type { RgbImage } from './image.js';
import type { ResizeFilter } from './resize-weights.js';

/** Patches of one picture, in rows and columns. */
export interface ImageGrid {
  readonly rows: number;
  readonly cols: number;
  /** Where the picture is cut up, its tiles, all with as many patches. Default: it is one tile. */
  readonly tiles?: ImageTiles;
}

export interface ImageTiles {
  readonly rows: number;
  readonly cols: number;
  /** The whole picture, made small, is one more tile behind the others. */
  readonly whole: boolean;
  /** Patches of that one, where it is no tile as the others are. */
  readonly wholeGrid?: TileGrid;
  /** Patches of all tiles together that hold the picture, in their middle: what is around them is padding. Default: all do. */
  readonly kept?: TileGrid;
}

/** Patches of a tile, in rows and columns. */
export type TileGrid = Pick<ImageGrid, 'rows' | 'cols'>;

/** The tiles of a picture, in order. */
export function tileGrids({ rows, cols, tiles }: ImageGrid): TileGrid[] {
  if (tiles === undefined) return [{ rows, cols }];
  const all = Array.from({ length: tiles.rows * tiles.cols }, () => ({ rows, cols }));
  return tiles.whole ? [...all, tiles.wholeGrid ?? { rows, cols }] : all;
}

/** Patches of a picture, of all its tiles. */
export function patchCount(grid: ImageGrid): number {
  return tileGrids(grid).reduce((sum, tile) => sum + tile.rows * tile.cols, 0);
}

export interface ImageProcessor {
  /** All that pixels depend on, as plain data. */
  readonly settings: object;
  /** Patches that a picture of so many pixels becomes. Errors: `invalid-image`. */
  grid(width: number, height: number): ImageGrid;
  /**
   * `[patches, 3 · patch²]`: normalised, in the order channel, row, column; tile by tile. Which patch follows which is the
   * processor's, the memory the caller's.
   */
  patches(image: RgbImage): Float32Array<ArrayBuffer>;
}

/** Errors: `invalid-image` for a picture without pixels. */
export function checkPixels(width: number, height: number): void {
  if (width > 0 && height > 0) return;
  throw new KvantError('invalid-image', `An image of ${width} × ${height} pixels.`, {
    kind: 'invalid-request',
    fix: 'Send an image that has pixels.',
  });
}

/** From the frames of a video to patches. */
export interface VideoProcessor {
  /** All that pixels depend on, as plain data. */
  readonly settings: object;
  /** Which of so many frames are taken, rising. `fps`: frames a second. */
  sample(frames: number, fps: number): readonly number[];
  /** Patches of each of so many frames that were taken. Errors: `invalid-video`. */
  grid(frames: number, width: number, height: number): ImageGrid;
  /** As {@link ImageProcessor.patches}, of one frame. */
  patches(frame: RgbImage, grid: ImageGrid): Float32Array<ArrayBuffer>;
}

/** What the tower of the model takes, by its config.json. */
export interface TowerInput {
  /** Side of a patch in pixels. */
  readonly patchSize: number;
  /** Patches a side that become one token. */
  readonly mergeSize: number;
  /** Side of a tile in pixels; null or absent where pictures may have any size. */
  readonly tileSize?: number | null;
}

/** The side of a tile that the tower takes, `stated` where it takes any. */
export function tileSize(tower: TowerInput, stated: number): number {
  return tower.tileSize ?? stated;
}

/** How bytes become numbers. */
export interface PixelValues {
  readonly filter: ResizeFilter;
  /** `rescale_factor`; 1 where `do_rescale` is off. */
  readonly scale: number;
  readonly mean: readonly number[];
  readonly std: readonly number[];
  /** The reference scales mean and deviation, not the bytes: the last bit shows it. Default: it rescales, then normalises. */
  readonly fused?: true;
}

/** For each channel the value of each byte: rescaled, then normalised, rounded to f32 after each step as the reference does. */
export function valueTables({ scale, mean, std, fused }: PixelValues): readonly Float32Array[] {
  return mean.map((of, c) =>
    Float32Array.from({ length: 256 }, (_, v) => {
      if (fused) {
        const by = Math.fround(1 / scale);
        const scaledMean = Math.fround(Math.fround(of) * by);
        return Math.fround(Math.fround(v - scaledMean) / Math.fround(Math.fround(std[c]!) * by));
      }
      const scaled = Math.fround(v * scale);
      return Math.fround(Math.fround(scaled - Math.fround(of)) / Math.fround(std[c]!));
    }),
  );
}

/** The same for videos, of which the reference rescales mean and deviation instead of the bytes. */
export function videoTables({ scale, mean, std }: PixelValues): readonly Float32Array[] {
  const factor = Math.fround(1 / scale);
  return mean.map((of, c) => {
    const [less, by] = [Math.fround(Math.fround(of) * factor), Math.fround(Math.fround(std[c]!) * factor)];
    return Float32Array.from({ length: 256 }, (_, v) => Math.fround(Math.fround(v - less) / by));
  });
}

/** Writes one patch of `side` × `side` pixels whose corner is at `x0`, `y0`. Returns where the next one goes. */
export function writePatch(
  out: Float32Array,
  at: number,
  { pixels, width }: RgbImage,
  [x0, y0]: readonly [number, number],
  side: number,
  tables: readonly Float32Array[],
): number {
  let to = at;
  for (const [c, values] of tables.entries())
    for (let y = y0; y < y0 + side; y++) {
      let from = (y * width + x0) * 3 + c;
      for (let x = 0; x < side; x++, from += 3) out[to++] = values[pixels[from]!]!;
    }
  return to;
}

/** Writes the patches of a tile, row by row, whose corner is at `x0`, `y0`. Returns where the next one goes. */
export function writeTile(
  out: Float32Array,
  at: number,
  image: RgbImage,
  [x0, y0]: readonly [number, number],
  { rows, cols }: Pick<ImageGrid, 'rows' | 'cols'>,
  side: number,
  tables: readonly Float32Array[],
): number {
  let to = at;
  for (let y = 0; y < rows; y++)
    for (let x = 0; x < cols; x++)
      to = writePatch(out, to, image, [x0 + x * side, y0 + y * side], side, tables);
  return to;
}
