/** What a tower's launch reads of its pictures, written where the device takes it from. */

import type { Program } from '../../device/device.js';
import type { Tensor } from '../../device/graph.js';
import { NO_PATCH, type PlacedImage, type TowerTensors } from '../../models/vision/tower.js';
import type { PatchedImage } from './patched-image.js';
import { Yielder } from './pieces.js';

/** Pictures of one launch: `rows` in all. */
export interface Launch {
  readonly images: readonly PatchedImage[];
  readonly placed: readonly PlacedImage[];
  readonly rows: number;
}

/** `patchValues`: numbers of a patch, behind which a row of pixels has zeros. */
export async function fillTower(
  program: Program,
  { pixels, motion, places, bounds }: TowerTensors,
  patchValues: number,
  launch: Launch,
): Promise<void> {
  const { rows, images } = launch;
  const moves = motion !== undefined && images.some(({ second }) => second !== undefined);
  const from = { patchValues, cols: pixels.cols, motion: false };
  await program.fill(pixels, rows, (room) => fillPatches(room, launch, from));
  if (moves) await program.fill(motion, rows, (room) => fillPatches(room, launch, { ...from, motion: true }));
  // A video may have been there.
  else if (motion !== undefined) program.clear(motion, rows);
  await fillPlaces(program, places, bounds, launch);
}

/** Rows between two looks at the clock. */
const ROWS_OF_PIECE = 128;

interface PatchRows {
  readonly patchValues: number;
  readonly cols: number;
  /** What the first of two frames has more than the second, not their mean. */
  readonly motion: boolean;
}

async function fillPatches(room: Float32Array, { images, placed }: Launch, patch: PatchRows): Promise<void> {
  const yielder = new Yielder('copy patches');
  const { patchValues, cols, motion } = patch;
  let to = 0;
  for (const [i, { order }] of placed.entries()) {
    const { patches, second } = images[i]!;
    for (let row = 0; row < order.length; row++, to += cols) {
      if (row % ROWS_OF_PIECE === 0 && yielder.due) await yielder.giveWay();
      const start = order[row]! * patchValues;
      if (order[row] === NO_PATCH || (motion && second === undefined)) {
        room.fill(0, to, to + cols);
        continue;
      }
      if (second === undefined) room.set(patches.subarray(start, start + patchValues), to);
      else
        for (let v = 0; v < patchValues; v++) {
          const [a, b] = [patches[start + v]!, second[start + v]!];
          room[to + v] = (motion ? a - b : a + b) / 2;
        }
      room.fill(0, to + patchValues, to + cols);
    }
  }
}

async function fillPlaces(
  program: Program,
  places: readonly Tensor[],
  bounds: readonly Tensor[],
  { placed, rows }: Launch,
): Promise<void> {
  const yielder = new Yielder('upload places');
  const [only] = placed;
  const alone = placed.length === 1 && only !== undefined;
  for (const [p, tensor] of places.entries()) {
    if (yielder.due) await yielder.giveWay();
    program.write(
      tensor,
      alone ? only.places[p]! : joined(placed, rows * tensor.cols, (of) => of.places[p]!),
    );
  }
  for (const [set, tensor] of bounds.entries()) {
    if (yielder.due) await yielder.giveWay();
    if (alone) {
      program.write(tensor, only.bounds[set]!);
      continue;
    }
    const seen = joined(placed, rows * 2, (of) => of.bounds[set]!);
    let at = 0;
    for (const { order } of placed) {
      const first = at / 2;
      for (const end = at + order.length * 2; at < end; at++) seen[at]! += first;
    }
    program.write(tensor, seen);
  }
}

function joined(
  placed: readonly PlacedImage[],
  length: number,
  of: (image: PlacedImage) => Float32Array,
): Float32Array {
  const all = new Float32Array(length);
  let at = 0;
  for (const image of placed) {
    const own = of(image);
    all.set(own, at);
    at += own.length;
  }
  return all;
}
