/** Runs a model's tower: pictures' patches to the rows that stand for them in the decoder. */

import type { Device, Program } from '../../device/device.js';
import { NO_SLOT, StepInputs } from '../../device/step.js';
import type { Model, TowerGraph } from '../../models/load.js';
import {
  NO_PATCH,
  type PatchGrid,
  type PlacedImage,
  patchCount,
  type TowerDefinition,
} from '../../models/vision/tower.js';

/** A picture as its processor leaves it. */
export interface PatchedImage {
  readonly grid: PatchGrid;
  /** `[patches, patchValues]` of all its tiles, in the processor's order. */
  readonly patches: Float32Array;
}

/** Patches that there is room for at first. */
const FIRST_ROOM = 256;

/**
 * Encodes pictures. One that fits a launch with others shares it; its rows are the same to the last bit as alone.
 * Room on the device grows with the largest launch so far.
 */
export class VisionEncoder {
  readonly #device: Device;
  readonly #tower: TowerDefinition;
  readonly #recorded: TowerGraph;
  readonly #mostPatches: number;
  #room = 0;
  #seconds = 0;
  #program: Program | null = null;
  #last: Promise<unknown> = Promise.resolve();

  /** @param mostPatches of one launch; a picture with more has one of its own */
  constructor(device: Device, model: Model, mostPatches = 4096) {
    if (model.vision === null) throw new Error('the model has nothing that sees');
    this.#device = device;
    this.#tower = model.vision.tower;
    this.#recorded = model.buildTower();
    this.#mostPatches = mostPatches;
  }

  /** Numbers of a row: the decoder's width, once for itself and once for each layer that more is added behind. */
  get rowValues(): number {
    return this.#tower.width * (1 + this.#tower.addedLevels);
  }

  /** That launches took so far. */
  get seconds(): number {
    return this.#seconds;
  }

  /** Makes room for launches of so many patches. For use at load. */
  async prepare(patches: number): Promise<void> {
    await this.#reserve(patches);
    await this.#program?.prepare(patches, patches / this.#tower.merged);
  }

  /** `[tokens, rowValues]` for each picture. Calls are run one after the other. */
  encode(images: readonly PatchedImage[]): Promise<Float32Array[]> {
    const run = this.#last.then(() => this.#encode(images));
    this.#last = run.catch(() => undefined);
    return run;
  }

  async dispose(): Promise<void> {
    await this.#last;
    await this.#program?.dispose();
    this.#program = null;
  }

  async #encode(images: readonly PatchedImage[]): Promise<Float32Array[]> {
    const out: Float32Array[] = [];
    for (let at = 0; at < images.length; ) {
      let end = at + 1;
      let patches = count(images[at]!);
      while (end < images.length && patches + count(images[end]!) <= this.#mostPatches)
        patches += count(images[end++]!);
      out.push(...(await this.#launch(images.slice(at, end))));
      at = end;
    }
    return out;
  }

  async #launch(images: readonly PatchedImage[]): Promise<Float32Array[]> {
    const began = performance.now();
    const placed = images.map(({ grid }) => this.#tower.place(grid));
    const rows = placed.reduce((sum, { order }) => sum + order.length, 0);
    const tokens = placed.reduce((sum, { outputs }) => sum + outputs.length, 0);
    const program = await this.#reserve(rows);
    this.#fill(program, images, placed, rows);
    const step = new StepInputs(rows, 1, tokens);
    step.tokenCount = step.seqLength[0] = rows;
    step.sequenceCount = 1;
    step.outputCount = tokens;
    step.outputSlot.fill(NO_SLOT);
    let at = 0;
    let group = 0;
    for (const { order, outputs } of placed) {
      for (const [i, own] of outputs.entries()) step.outputs[at + i] = group + own;
      at += outputs.length;
      group += order.length / this.#tower.merged;
    }
    await program.submit(step);
    const levels: Float32Array[] = [];
    for (const tensor of this.#recorded.tensors.features) levels.push(await program.read(tensor, tokens));
    this.#seconds += (performance.now() - began) / 1000;
    return this.#split(levels, placed);
  }

  /** Rows of the levels side by side, picture by picture. */
  #split(levels: readonly Float32Array[], placed: readonly PlacedImage[]): Float32Array[] {
    const { width } = this.#tower;
    let first = 0;
    return placed.map(({ outputs }) => {
      const rows = outputs.length;
      const out = new Float32Array(rows * this.rowValues);
      levels.forEach((values, level) => {
        for (let r = 0; r < rows; r++) {
          const from = (first + r) * width;
          out.set(values.subarray(from, from + width), r * this.rowValues + level * width);
        }
      });
      first += rows;
      return out;
    });
  }

  #fill(
    program: Program,
    images: readonly PatchedImage[],
    placed: readonly PlacedImage[],
    rows: number,
  ): void {
    const { pixels, places, bounds } = this.#recorded.tensors;
    const { patchValues } = this.#tower;
    const values = new Float32Array(rows * patchValues);
    const told = places.map(({ cols }) => new Float32Array(rows * cols));
    const seen = bounds.map(() => new Float32Array(rows * 2));
    let first = 0;
    placed.forEach((image, i) => {
      const from = images[i]!.patches;
      image.order.forEach((patch, row) => {
        if (patch === NO_PATCH) return;
        values.set(
          from.subarray(patch * patchValues, (patch + 1) * patchValues),
          (first + row) * patchValues,
        );
      });
      image.places.forEach((own, p) => {
        told[p]!.set(own, first * places[p]!.cols);
      });
      image.bounds.forEach((own, set) => {
        for (const [j, bound] of own.entries()) seen[set]![first * 2 + j] = first + bound;
      });
      first += image.order.length;
    });
    program.write(pixels, values);
    places.forEach((tensor, p) => {
      program.write(tensor, told[p]!);
    });
    bounds.forEach((tensor, set) => {
      program.write(tensor, seen[set]!);
    });
  }

  async #reserve(rows: number): Promise<Program> {
    if (this.#program !== null && rows <= this.#room) return this.#program;
    await this.#program?.dispose();
    this.#program = null;
    this.#room = FIRST_ROOM;
    while (this.#room < rows) this.#room *= 2;
    const limits = {
      maxTokens: this.#room,
      maxOutputs: Math.ceil(this.#room / this.#tower.merged),
      maxSequences: 1,
      maxContext: this.#room,
      inFlight: 1,
    };
    this.#program = await this.#device.compile(this.#recorded.graph, limits, null);
    return this.#program;
  }
}

function count({ grid }: PatchedImage): number {
  return patchCount(grid);
}
