/** Runs a model's tower: pictures' patches to the rows that stand for them in the decoder. */

import type { Device, Program } from '../../device/device.js';
import type { FeatureSlab } from '../../device/feature-slab.js';
import { NO_SLOT, StepInputs } from '../../device/step.js';
import type { Model, TowerGraph } from '../../models/load.js';
import type { PatchGrid, PlacedImage, TowerDefinition } from '../../models/vision/tower.js';
import { epochNow } from '../yield.js';
import { NO_PACE, type Pace } from './pace.js';
import type { PatchedImage } from './patched-image.js';
import { tell, Yielder } from './pieces.js';
import { tokensOf } from './token-rows.js';
import { fillTower } from './tower-inputs.js';
import { TowerSlices } from './tower-slices.js';

/** Takes what a launch made of some pictures. */
type Take = (program: Program, placed: readonly PlacedImage[]) => Promise<void>;

/** Rows of all grids whose places are kept: pictures of one size follow each other, and to place one takes a tenth of its tower's time and more. */
const KEPT_ROWS = 65_536;

/** Rows that there is room for at first. */
const FIRST_ROOM = 256;

/**
 * Encodes pictures. One that fits a launch with others shares it; its rows are the same to the last bit as alone.
 * Room on the device grows with the largest launch so far.
 */
export class VisionEncoder {
  readonly #device: Device;
  readonly #tower: TowerDefinition;
  readonly #recorded: TowerGraph;
  readonly #mostRows: number;
  readonly #slices = new TowerSlices();
  /** By grid, the one used last at the end. */
  readonly #placed = new Map<string, PlacedImage>();
  /** Sizes of launches that the program has been made ready for, in powers of two. */
  readonly #prepared = new Set<string>();
  #room = 0;
  #seconds = 0;
  #program: Program | null = null;
  #last: Promise<unknown> = Promise.resolve();

  /** @param mostRows of one launch; a picture with more has one of its own */
  constructor(device: Device, model: Model, mostRows = 4096) {
    if (model.vision === null) throw new Error('the model has nothing that sees');
    this.#device = device;
    this.#tower = model.vision.tower;
    this.#recorded = model.buildTower();
    this.#mostRows = mostRows;
  }

  /** Numbers of a row: the decoder's width, once for itself and once for each layer that more is added behind. */
  get rowValues(): number {
    return this.#tower.width * (1 + this.#tower.addedLevels);
  }

  /** That launches took so far. */
  get seconds(): number {
    return this.#seconds;
  }

  /**
   * Makes room for all launches but those of pictures that need one of their own, as far as pictures of so many tokens together can want
   * it, and answers what makes each of their Plans. For use at load.
   */
  async plansFor(tokens: number): Promise<(() => Promise<void>)[]> {
    const { merged } = this.#tower;
    const program = await this.#reserve(Math.min(this.#mostRows, tokens * merged));
    const plans: (() => Promise<void>)[] = [];
    for (let rows = 1; rows <= this.#room; rows *= 2) {
      const most = Math.ceil(rows / merged);
      // Up to half of the rows of a bucket may be there for others' sake: a row for the whole of a tile, or one that holds no patch.
      for (const outputs of new Set([most, Math.ceil(most / 2)]))
        plans.push(() => program.prepare(rows, outputs));
    }
    return plans;
  }

  /** `[tokens, rowValues]` for each picture, on the host. Calls are run one after the other, in slices that keep to the pace. */
  async encode(images: readonly PatchedImage[], pace: Pace = NO_PACE): Promise<Float32Array[]> {
    const out: Float32Array[] = [];
    await this.#run(images, pace, async (program, placed) => {
      out.push(...(await this.#read(program, placed, pace)));
    });
    return out;
  }

  /**
   * The same, but the rows of each picture go to a feature slab, from the row of `firsts` on. They come to the host only where
   * tokens are made of several rows.
   */
  encodeTo(
    images: readonly PatchedImage[],
    slab: FeatureSlab,
    firsts: readonly number[],
    pace: Pace = NO_PACE,
  ): Promise<void> {
    const { width } = this.#tower;
    let next = 0;
    return this.#run(images, pace, async (program, placed) => {
      if (placed.some(({ tokens }) => tokens !== undefined)) {
        for (const rows of await this.#read(program, placed, pace)) slab.write(firsts[next++]!, rows);
        return;
      }
      let from = 0;
      for (const { outputs } of placed) {
        const place = { first: firsts[next++]!, rows: outputs.length, from };
        for (const [level, tensor] of this.#recorded.tensors.features.entries())
          program.store(tensor, slab, { ...place, column: level * width });
        from += outputs.length;
      }
    });
  }

  async dispose(): Promise<void> {
    await this.#last;
    await this.#program?.dispose();
    this.#program = null;
  }

  #run(images: readonly PatchedImage[], pace: Pace, take: Take): Promise<void> {
    const run = this.#last.then(() => this.#encode(images, pace, take));
    this.#last = run.catch(() => undefined);
    return run;
  }

  async #encode(images: readonly PatchedImage[], pace: Pace, take: Take): Promise<void> {
    const placed: PlacedImage[] = [];
    for (const { grid } of images) placed.push(await this.#place(grid));
    for (let at = 0; at < images.length; ) {
      let end = at + 1;
      let rows = placed[at]!.order.length;
      while (end < images.length && rows + placed[end]!.order.length <= this.#mostRows)
        rows += placed[end++]!.order.length;
      await this.#launch(images.slice(at, end), placed.slice(at, end), pace, take);
      at = end;
    }
  }

  async #place(grid: PatchGrid): Promise<PlacedImage> {
    const key = JSON.stringify(grid);
    const placed = this.#placed.get(key) ?? (await this.#placeNew(grid));
    this.#placed.delete(key);
    this.#placed.set(key, placed);
    let rows = 0;
    for (const [old, { order }] of [...this.#placed].reverse()) {
      rows += order.length;
      if (rows > KEPT_ROWS) this.#placed.delete(old);
    }
    return placed;
  }

  async #placeNew(grid: PatchGrid): Promise<PlacedImage> {
    const yielder = new Yielder('place rows');
    const pieces = this.#tower.placing?.(grid);
    if (pieces === undefined) return this.#tower.place(grid);
    for (;;) {
      const { done, value } = pieces.next();
      if (done === true) return value;
      if (yielder.due) await yielder.giveWay();
    }
  }

  async #launch(
    images: readonly PatchedImage[],
    placed: readonly PlacedImage[],
    pace: Pace,
    take: Take,
  ): Promise<void> {
    const began = performance.now();
    const rows = placed.reduce((sum, { order }) => sum + order.length, 0);
    const tokens = placed.reduce((sum, { outputs }) => sum + outputs.length, 0);
    const reserving = epochNow();
    const program = await this.#reserve(rows);
    await this.#prepare(program, rows, tokens);
    tell('make ready', reserving);
    await fillTower(program, this.#recorded.tensors, this.#tower.patchValues, { images, placed, rows });
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
    await this.#slices.run(program, step, pace);
    const taken = epochNow();
    await take(program, placed);
    tell('take features', taken);
    this.#seconds += (performance.now() - began) / 1000;
  }

  /** Rows of the levels side by side, picture by picture. */
  async #read(program: Program, placed: readonly PlacedImage[], pace: Pace): Promise<Float32Array[]> {
    const { width } = this.#tower;
    const { constants, features } = this.#recorded.tensors;
    const count = placed.reduce((sum, { outputs }) => sum + outputs.length, 0);
    const levels: Float32Array[] = [];
    for (const tensor of features) levels.push(await program.read(tensor, count));
    let first = 0;
    const all: Float32Array[] = [];
    for (const { outputs, tokens } of placed) {
      const rows = outputs.length;
      const out = new Float32Array(rows * this.rowValues);
      levels.forEach((values, level) => {
        for (let r = 0; r < rows; r++) {
          const from = (first + r) * width;
          out.set(values.subarray(from, from + width), r * this.rowValues + level * width);
        }
      });
      all.push(tokens === undefined ? out : await tokensOf(tokens, out, constants, this.rowValues, pace));
      first += rows;
    }
    return all;
  }

  /** A picture that nothing was made ready for at load: compilers take their time while others are served. */
  async #prepare(program: Program, rows: number, outputs: number): Promise<void> {
    const bucket = `${Math.ceil(Math.log2(rows))} ${Math.ceil(Math.log2(outputs))}`;
    if (this.#prepared.has(bucket)) return;
    await program.prepare(rows, outputs);
    this.#prepared.add(bucket);
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
      oneOrder: true,
      maxSequences: 1,
      maxContext: this.#room,
      inFlight: 1,
    };
    this.#prepared.clear();
    this.#program = await this.#device.compile(this.#recorded.graph, limits, null);
    return this.#program;
  }
}
