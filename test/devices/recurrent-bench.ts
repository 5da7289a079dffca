/**
 * A recurrent op on a device: sequences whose tokens come in steps of any cut and any company, each row compared with what one
 * whole walk gives.
 */
import { expect } from 'vitest';
import type { Device, Program } from '../../src/device/device.js';
import type { Tensor } from '../../src/device/graph.js';
import type { KvPool } from '../../src/device/kv.js';
import type { Ops } from '../../src/device/ops.js';
import type { StateShape } from '../../src/device/state.js';
import { Random } from './numbers.js';
import { LIMITS, record, stepOf } from './run.js';

export const SLOTS = 8;
/** Of state: more than rows, so that a table that is not looked at shows. */
const BLOCKS = 20;

/** Sequence s goes on by so many tokens. */
export type Part = readonly [sequence: number, tokens: number];

export class RecurrentBench {
  readonly pool: KvPool;
  readonly #program: Program;
  readonly #inputs: readonly Tensor[];
  readonly #y: Tensor;

  private constructor(pool: KvPool, program: Program, inputs: readonly Tensor[], y: Tensor) {
    this.pool = pool;
    this.#program = program;
    this.#inputs = inputs;
    this.#y = y;
  }

  static async create(
    device: Device,
    state: StateShape,
    cols: number | readonly number[],
    build: (ops: Ops, inputs: readonly [Tensor, ...Tensor[]]) => Tensor,
  ): Promise<RecurrentBench> {
    const format = { kind: 'float', dtype: 'f32' } as const;
    const layer = { kvHeads: 0, headDim: 0, key: format, value: format, group: 0, state };
    // A layer before it, so that one that is not looked at shows.
    const other = { ...layer, state: { conv: { channels: 4, taps: 3 }, matrix: null } };
    const pool = device.createKvPool({
      layers: [other, layer],
      blocks: BLOCKS,
      blockTokens: 16,
      slots: SLOTS,
      maxBlocksPerSlot: 20,
    });
    for (let slot = 0; slot < SLOTS; slot++)
      pool.setBlocks(slot, 0, Uint32Array.of(RecurrentBench.slotOf(slot)));
    const { graph, tensors } = record((ops) => {
      const inputs = [cols].flat().map((width) => ops.input('tokens', width));
      return { inputs, y: ops.keep(build(ops, inputs as [Tensor, ...Tensor[]])) };
    });
    const program = await device.compile(graph, LIMITS, pool);
    return new RecurrentBench(pool, program, tensors.inputs, tensors.y);
  }

  /** Where the state of a slot is. */
  static slotOf(slot: number): number {
    return (slot * 7 + 3) % BLOCKS;
  }

  /** Runs the parts of each step; a row has the columns of all inputs, side by side; sequence s is in slot `slots[s]`. Gives each sequence's rows, one behind the other. */
  async run(
    rows: readonly (readonly Float32Array[])[],
    steps: readonly (readonly Part[])[],
    slots: readonly number[] = rows.map((_, s) => s),
    from: readonly number[] = rows.map(() => 0),
  ): Promise<Float32Array[][]> {
    const at = [...from];
    const out: Float32Array[][] = rows.map(() => []);
    for (const parts of steps) {
      const step = stepOf(
        parts.map(([, tokens]) => tokens),
        parts.map(([s]) => at[s]!),
        parts.map(([s]) => slots[s]!),
      );
      let first = 0;
      for (const input of this.#inputs) {
        const data = new Float32Array(step.tokenCount * input.cols);
        let row = 0;
        for (const [s, tokens] of parts)
          for (let i = 0; i < tokens; i++)
            data.set(rows[s]![at[s]! + i]!.subarray(first, first + input.cols), row++ * input.cols);
        this.#program.write(input, data);
        first += input.cols;
      }
      await this.#program.submit(step);
      const got = await this.#program.read(this.#y, step.tokenCount);
      let token = 0;
      for (const [s, tokens] of parts) {
        for (let i = 0; i < tokens; i++, token++)
          out[s]!.push(got.slice(token * this.#y.cols, (token + 1) * this.#y.cols));
        at[s]! += tokens;
      }
    }
    return out;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#program.dispose();
    this.pool.dispose();
  }
}

export function randomRows(seed: number, length: number, cols: number): Float32Array[] {
  const random = new Random(seed);
  return Array.from({ length }, () => random.normals(cols));
}

/** Lengths of pieces that a sequence is cut into: from 1 up to `most`. */
export function cut(random: Random, length: number, most: number): number[] {
  const parts: number[] = [];
  for (let left = length; left > 0; left -= parts.at(-1)!) parts.push(Math.min(left, 1 + random.int(most)));
  return parts;
}

/** The largest error of all rows, beside a value or 1, whichever is larger. */
export function worst(got: readonly ArrayLike<number>[], wanted: readonly ArrayLike<number>[]): number {
  let most = got.length === wanted.length ? 0 : Number.POSITIVE_INFINITY;
  wanted.forEach((row, t) => {
    for (let c = 0; c < row.length; c++) {
      const error = Math.abs(got[t]![c]! - row[c]!) / Math.max(1, Math.abs(row[c]!));
      if (!(error <= most)) most = Number.isNaN(error) ? Number.POSITIVE_INFINITY : error;
    }
  });
  return most;
}

/** A scan of several sequences in one step is what `reference` makes of each, within `bound`; cut into steps it is the same in bits. */
export async function expectScan(
  bench: RecurrentBench,
  random: Random,
  width: number,
  bound: number,
  reference: (rows: readonly Float32Array[]) => readonly ArrayLike<number>[],
): Promise<void> {
  const lengths = [1, 2, 63, 64, 65];
  const inputs = lengths.map((length) => randomRows(length, length, width));
  const whole = await bench.run(inputs, [lengths.map((length, s) => [s, length] as Part)]);
  inputs.forEach((own, s) => {
    expect(worst(whole[s]!, reference(own)), `sequence ${s}`).toBeLessThan(bound);
  });
  for (const most of [1, 40]) {
    const parts = lengths.map((length) => cut(random, length, most));
    const steps: Part[][] = [];
    for (let i = 0; parts.some((own) => i < own.length); i++)
      steps.push(parts.flatMap((own, s) => (i < own.length ? [[s, own[i]!] as const] : [])).reverse());
    expect(await bench.run(inputs, steps, [7, 2, 4, 0, 1])).toEqual(whole);
  }
}
