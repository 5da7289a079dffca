/** Runs the sampler alone: logits in, ids and records out, rows synced as the engine does it. */
import { type Device, INVALID_TOKEN, type Program, type ProgramLimits } from '../../src/device/device.js';
import type { Tensor } from '../../src/device/graph.js';
import {
  ALL_FEATURES,
  MAX_TOP_LOGPROBS,
  type RowRecord,
  type SamplerRows,
} from '../../src/device/sampling.js';
import type { StepInputs } from '../../src/device/step.js';
import type { DeviceSpec } from './devices.js';
import { record, rowsStep } from './run.js';
import {
  featuresOfRow,
  fillRow,
  maskOfRow,
  type RowParams,
  type RowTokens,
  specOfRow,
} from './sampling-reference.js';

const SAMPLING_LIMITS: ProgramLimits = {
  maxTokens: 64,
  maxOutputs: 64,
  maxSequences: 64,
  maxContext: 4096,
  inFlight: 2,
};

/** What the devices' samplers can do. Here so that nothing is left out unnoticed. */
export const SAMPLER_FEATURES: Record<DeviceSpec['kind'], number> = {
  cpu: ALL_FEATURES,
  webgpu: ALL_FEATURES,
};

export interface SampledRow {
  readonly row: RowParams;
  readonly tokens: RowTokens;
}

export interface Sampled {
  /** −1: invalid. */
  readonly token: number;
  readonly record: RowRecord | null;
  /** The record's words, for comparisons of bits. */
  readonly words: readonly number[];
}

/** A program that draws from logits given to it. Slots are named by the caller. */
export class Sampler {
  readonly program: Program;
  readonly vocab: number;
  readonly #logits: Tensor;
  readonly #step: StepInputs;

  private constructor(program: Program, logits: Tensor, vocab: number, limits: ProgramLimits) {
    this.program = program;
    this.vocab = vocab;
    this.#logits = logits;
    this.#step = rowsStep(limits.maxOutputs, limits);
  }

  static async make(device: Device, vocab: number, limits = SAMPLING_LIMITS): Promise<Sampler> {
    const { graph, tensors } = record((ops) => {
      const logits = ops.input('outputs', vocab);
      ops.sample(logits);
      return logits;
    });
    return new Sampler(await device.compile(graph, limits, null), tensors, vocab, limits);
  }

  get rows(): SamplerRows {
    return this.program.sampler!;
  }

  /** Syncs a slot as its row says, if the row has anything to sync. */
  async sync(slot: number, { row, tokens }: SampledRow): Promise<void> {
    if (featuresOfRow(row) === 0) return;
    await this.rows.sync(slot, specOfRow(row), Int32Array.from(tokens.history), tokens.promptLength);
    const mask = maskOfRow(row, this.vocab);
    if (mask !== null) this.rows.setMask(slot, mask);
  }

  /** One step: row r draws for slot `slots[r]`. */
  async draw(
    logits: readonly Float32Array[],
    rows: readonly SampledRow[],
    slots: readonly number[] = rows.map((_, r) => r),
  ): Promise<Sampled[]> {
    const data = new Float32Array(rows.length * this.vocab);
    logits.forEach((l, r) => {
      data.set(l, r * this.vocab);
    });
    this.program.write(this.#logits, data);
    const step = this.#step;
    step.tokenCount = rows.length;
    step.sequenceCount = rows.length;
    step.outputCount = rows.length;
    rows.forEach(({ row, tokens }, r) => {
      step.outputSlot[r] = slots[r]!;
      fillRow(step.sampling, r, row, tokens.history.length);
    });
    const result = await this.program.submit(step);
    return rows.map((_, r) => {
      const token = result.ids[r] === INVALID_TOKEN ? -1 : result.ids[r]!;
      return { token, record: result.record(r), words: [...(result.recordWords(r) ?? [])] };
    });
  }

  /** Syncs all rows, draws once and lets go of them. */
  async drawOnce(logits: readonly Float32Array[], rows: readonly SampledRow[]): Promise<Sampled[]> {
    for (const [slot, row] of rows.entries()) await this.sync(slot, row);
    const drawn = await this.draw(logits, rows);
    for (const slot of rows.keys()) this.rows.release(slot);
    return drawn;
  }

  /** The logits as the last step left them. */
  async left(rows: number): Promise<Float32Array> {
    return this.program.read(this.#logits, rows);
  }
}

/** Draws rows that all have their own logits, on a program of their own. */
export async function sampleRows(
  device: Device,
  logits: readonly Float32Array[],
  rows: readonly SampledRow[],
): Promise<Sampled[]> {
  const sampler = await Sampler.make(device, logits[0]!.length);
  try {
    return await sampler.drawOnce(logits, rows);
  } finally {
    await sampler.program.dispose();
  }
}

/** The same row, telling its processed log-probabilities. */
export function telling(row: RowParams): RowParams {
  return { ...row, logprobs: MAX_TOP_LOGPROBS, processed: true };
}

/** Whether a device can do what a row asks for. */
export function canDo(spec: DeviceSpec, row: RowParams): boolean {
  return (featuresOfRow(row) & ~SAMPLER_FEATURES[spec.kind]) === 0;
}
