/**
 * The tokens of pictures that were cut into tiles after padding (LLaVA-NeXT, LLaVA-OneVision): the whole picture, then the tiles side by
 * side without the padding, each line with a row of the checkpoint behind it. A picture that is one tile has one such row behind it.
 */

import type { TileGrid } from '../../media/processor.js';
import { bilinearTaps } from './places.js';
import type { PatchGrid, TokenRows } from './tower.js';

export interface AnyresConfig {
  /** Tiles whose rows a picture may have; those of more are resized to as many, bilinearly. Null: any number. */
  readonly most: number | null;
}

/** By how much more than `most` tiles a picture is left as it is. */
const TOLERANCE = 1.1;

/** `side`: patches a side of a tile. */
export function anyresTokens(grid: PatchGrid, side: number, { most }: AnyresConfig): number {
  const lines = linesOf(grid, side, most);
  return side ** 2 + (lines === null ? 1 : lines.rows * (lines.cols + 1));
}

/** Made of the rows of all patches, tile by tile, the whole last; the row of the checkpoint is numbered behind them. */
export function anyresRows(grid: PatchGrid, side: number, { most }: AnyresConfig): TokenRows {
  const { tiles } = grid;
  const each = side ** 2;
  const lines = linesOf(grid, side, most);
  if (tiles === undefined || lines === null)
    return { taps: 1, rows: Uint32Array.from({ length: each + 1 }, (_, row) => row), weights: null };
  const kept = tiles.kept ?? sidesOf(grid, side);
  const resized = lines.rows !== kept.rows || lines.cols !== kept.cols;
  const taps = resized ? 4 : 1;
  const tokens = anyresTokens(grid, side, { most });
  const rows = new Uint32Array(tokens * taps);
  const weights = resized ? new Float32Array(tokens * taps) : null;
  const whole = tiles.rows * tiles.cols * each;
  const newline = whole + each;
  let token = 0;
  const put = (row: number): void => {
    rows.fill(row, token * taps, (token + 1) * taps);
    if (weights !== null) weights[token * taps] = 1;
    token++;
  };
  const all = sidesOf(grid, side);
  const [top, left] = [(all.rows - kept.rows) / 2, (all.cols - kept.cols) / 2];
  const rowAt = (y: number, x: number): number => {
    const [row, col] = [top + y, left + x];
    const tile = Math.floor(row / side) * tiles.cols + Math.floor(col / side);
    return tile * each + (row % side) * side + (col % side);
  };
  for (let row = 0; row < each; row++) put(whole + row);
  for (let y = 0; y < lines.rows; y++) {
    for (let x = 0; x < lines.cols; x++) {
      if (weights === null) put(rowAt(y, x));
      else {
        const found = bilinearTaps(
          kept,
          sourceOf(y, lines.rows, kept.rows),
          sourceOf(x, lines.cols, kept.cols),
        );
        for (let tap = 0; tap < taps; tap++) {
          const place = found[tap]!;
          rows[token * taps + tap] = rowAt(Math.floor(place / kept.cols), place % kept.cols);
        }
        weights.set(found.slice(taps), token * taps);
        token++;
      }
    }
    put(newline);
  }
  return { taps, rows, weights };
}

/** Where a place of `to` lies among `from`: half-pixel centres, as `interpolate` of PyTorch has them without antialias. */
function sourceOf(at: number, to: number, from: number): number {
  return Math.max(0, (at + 0.5) * (from / to) - 0.5);
}

function sidesOf({ tiles }: PatchGrid, side: number): TileGrid {
  return { rows: (tiles?.rows ?? 1) * side, cols: (tiles?.cols ?? 1) * side };
}

/** Lines of tokens behind those of the whole; null where the picture is one tile. */
function linesOf(grid: PatchGrid, side: number, most: number | null): TileGrid | null {
  if (grid.tiles === undefined) return null;
  const kept = grid.tiles.kept ?? sidesOf(grid, side);
  if (most === null) return kept;
  const ratio = Math.sqrt((kept.rows * kept.cols) / (most * side ** 2));
  if (ratio <= TOLERANCE) return kept;
  return { rows: Math.floor(kept.rows / ratio), cols: Math.floor(kept.cols / ratio) };
}
