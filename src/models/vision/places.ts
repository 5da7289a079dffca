/** Where rows of a tower stand in their picture, and what they are told of it. */

import type { TileGrid } from '../../media/processor.js';
import { type PatchGrid, tileCount } from './tower.js';

/** A patch: its number in the processor's order, its row and its column. */
export type VisitPatch = (patch: number, row: number, col: number) => void;

/**
 * Patches of a tile whose groups of `side` × `side` stand together, row by row of groups and within them. `merged`: the processor gives
 * them in that order already; else row by row.
 */
export function visitGroups(
  rows: number,
  cols: number,
  side: number,
  merged: boolean,
  visit: VisitPatch,
): void {
  let at = 0;
  for (let top = 0; top < rows; top += side)
    for (let left = 0; left < cols; left += side)
      for (let within = 0; within < side * side; within++, at++) {
        const row = top + Math.trunc(within / side);
        const col = left + (within % side);
        visit(merged ? at : row * cols + col, row, col);
      }
}

/** What a generator returns, run to its end at once. */
export function finished<T>(pieces: Generator<void, T>): T {
  for (;;) {
    const { done, value } = pieces.next();
    if (done === true) return value;
  }
}

/**
 * The turns of 2-D rotations. `frequencies` `[2][n]`: of rows and of columns. A row of angles has the cosines of all pairs, then the
 * sines; pairs of rows first. A picture has few rows and columns beside its patches, so that those of each are computed once.
 */
export class Turns {
  readonly #frequencies: readonly [Float64Array, Float64Array];
  readonly #half: number;
  /** By axis and position: cosines, then sines. */
  readonly #known: readonly [Map<number, AxisTurns>, Map<number, AxisTurns>] = [new Map(), new Map()];
  readonly angles: Float32Array;

  constructor(patches: number, frequencies: readonly [Float64Array, Float64Array]) {
    this.#frequencies = frequencies;
    this.#half = frequencies[0].length + frequencies[1].length;
    this.angles = new Float32Array(patches * 2 * this.#half);
  }

  set(at: number, row: number, col: number): void {
    const to = at * 2 * this.#half;
    this.#copy(this.#of(0, row), to);
    this.#copy(this.#of(1, col), to + this.#frequencies[0].length);
  }

  #copy({ cosines, sines }: AxisTurns, to: number): void {
    const { angles } = this;
    for (let i = 0; i < cosines.length; i++) {
      angles[to + i] = cosines[i]!;
      angles[to + this.#half + i] = sines[i]!;
    }
  }

  #of(axis: 0 | 1, position: number): AxisTurns {
    const known = this.#known[axis].get(position);
    if (known !== undefined) return known;
    const angles = this.#frequencies[axis].map((frequency) => position * frequency);
    const made = { cosines: Float32Array.from(angles, Math.cos), sines: Float32Array.from(angles, Math.sin) };
    this.#known[axis].set(position, made);
    return made;
  }
}

interface AxisTurns {
  readonly cosines: Float32Array;
  readonly sines: Float32Array;
}

/** The four entries of a table `[rows, cols]` around a point, and their weights: see Node `add-gathered`. */
export function bilinearTaps({ rows, cols }: TileGrid, y: number, x: number): number[] {
  const [top, left] = [Math.floor(y), Math.floor(x)];
  const [bottom, right] = [Math.min(top + 1, rows - 1), Math.min(left + 1, cols - 1)];
  const [dy, dx] = [y - top, x - left];
  return [
    top * cols + left,
    top * cols + right,
    bottom * cols + left,
    bottom * cols + right,
    (1 - dy) * (1 - dx),
    (1 - dy) * dx,
    dy * (1 - dx),
    dy * dx,
  ];
}

/**
 * The same of a table `[side, side]` resampled to `of`, centres of entries on centres: around what is `place` there. What is beyond a rim
 * counts as zeros.
 */
export function resampledTaps(
  side: number,
  place: readonly [number, number],
  of: readonly [number, number],
): number[] {
  const [[top, bottom], [left, right]] = [0, 1].map((axis) => {
    const at = ((place[axis]! + 0.5) * side) / of[axis]! - 0.5;
    const first = Math.floor(at);
    const tap = (entry: number, weight: number): Tap =>
      entry < 0 || entry >= side ? { entry: 0, weight: 0 } : { entry, weight };
    return [tap(first, first + 1 - at), tap(first + 1, at - first)] as const;
  }) as [readonly [Tap, Tap], readonly [Tap, Tap]];
  const corners = [top, bottom].flatMap((y) => [left, right].map((x) => [y, x] as const));
  return [
    ...corners.map(([y, x]) => y.entry * side + x.entry),
    ...corners.map(([y, x]) => y.weight * x.weight),
  ];
}

interface Tap {
  readonly entry: number;
  readonly weight: number;
}

/** Cubic convolution with a = −0.75, as PyTorch has it: the weights of the four entries around a point that is `t` behind the second. */
function cubicWeights(t: number): readonly number[] {
  const a = -0.75;
  const near = (d: number): number => ((a + 2) * d - (a + 3)) * d * d + 1;
  const far = (d: number): number => ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
  return [far(1 + t), near(t), near(1 - t), far(2 - t)];
}

/** The sixteen entries of a table `[side, side]` around a point, and their weights; beyond a rim its own entry counts. */
export function bicubicTaps(side: number, y: number, x: number): number[] {
  const [top, left] = [Math.floor(y), Math.floor(x)];
  const [down, across] = [cubicWeights(y - top), cubicWeights(x - left)];
  const within = (at: number): number => Math.min(Math.max(at, 0), side - 1);
  const entries: number[] = [];
  const weights: number[] = [];
  for (const [dy, wy] of down.entries())
    for (const [dx, wx] of across.entries()) {
      entries.push(within(top - 1 + dy) * side + within(left - 1 + dx));
      weights.push(wy * wx);
    }
  return [...entries, ...weights];
}

/** `[rows, 2]`: every row of a tile sees the `seen` first rows of it, those behind see themselves. `each`: rows of a tile. */
export function tileBounds(grid: PatchGrid, each: number, seen = each): Float32Array {
  const tiles = tileCount(grid);
  const bounds = new Float32Array(tiles * each * 2);
  for (let row = 0; row < tiles * each; row++) {
    const first = row - (row % each);
    bounds.set(row - first < seen ? [first, first + seen] : [row, row + 1], row * 2);
  }
  return bounds;
}

/**
 * The weights `[size][side]` by which `side` entries become `size`: bilinear with antialias, half-pixel centres, the rims not
 * stretched, as `interpolate` of PyTorch has them.
 */
export function resizedTaps(side: number, size: number): Float64Array[] {
  const scale = side / size;
  const reach = Math.max(scale, 1);
  return Array.from({ length: size }, (_, at) => {
    const centre = (at + 0.5) * scale - 0.5;
    const weights = Float64Array.from({ length: side }, (_, from) =>
      Math.max(0, 1 - Math.abs(from - centre) / reach),
    );
    const sum = weights.reduce((total, weight) => total + weight, 0);
    return weights.map((weight) => weight / sum);
  });
}
