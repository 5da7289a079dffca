/** Where a step of the CPU device has its inputs and its results while it is under way. */

import type { KvantError } from '../../errors.js';
import { INVALID_TOKEN } from '../device.js';
import { HISTORY_FEATURES } from '../sampling.js';
import type { StepInputs } from '../step.js';
import { StepResult } from '../step-result.js';
import type { Allocation } from './memory.js';
import { STEP_WANTS } from './opcodes.js';
import type { Waiter } from './pool.js';
import { resultWords } from './sample-commands.js';
import { P_FEATURES, P_POSITION, R_WORDS, RECORDS } from './sample-words.js';
import type { CpuSamplerRows } from './sampler-rows.js';
import { type StepLayout, writeStep } from './step-layout.js';

/** The room of one step under way: its inputs, its results, and who waits for it. */
export class StepSlot implements Waiter {
  readonly result: number;
  /** Resolves when the forward half that was begun last has been computed. */
  computed: Promise<void> | null = null;
  readonly #layout: StepLayout;
  readonly #sampler: CpuSamplerRows | null;
  /** Inputs of a step or of its first half, and those of the second: the first may not have been read by then. */
  readonly #inboxes: readonly Inbox[];
  /** What the threads were given last. */
  #u32: Uint32Array;
  readonly #results: Uint32Array<ArrayBufferLike>;
  readonly #hiddenRows: Float32Array<ArrayBufferLike>;
  readonly #hiddenCols: number;
  #hidden = 0;
  readonly #onSettled: () => void;
  /** Two buffers for results, used in turn. */
  readonly #buffers: readonly [ResultBuffer, ResultBuffer];
  readonly #executor = (resolve: (result: StepResult) => void, reject: (error: KvantError) => void): void => {
    this.#resolve = resolve;
    this.#reject = reject;
  };
  #resolve: (result: StepResult) => void = () => {};
  #reject: (error: KvantError) => void = () => {};
  #turn = 0;
  #tokens = 0;
  #outputs = 0;
  #onComputed: () => void = () => {};
  /** Waits for the forward half. */
  readonly #forward: Waiter = { retired: () => this.#onComputed(), failed: () => this.#onComputed() };

  constructor(
    inboxes: readonly Allocation[],
    result: Allocation,
    layout: StepLayout,
    sampler: CpuSamplerRows | null,
    maxOutputs: number,
    hiddenCols: number,
    hiddenWords: number,
    onSettled: () => void,
  ) {
    this.result = result.at;
    this.#layout = layout;
    this.#sampler = sampler;
    this.#inboxes = inboxes.map(({ memory, at }) => ({
      at,
      u32: memory.u32(at, layout.words) as Uint32Array,
      f32: memory.f32(at, layout.words) as Float32Array,
    }));
    this.#u32 = this.#inboxes[0]!.u32;
    this.#results = result.memory.u32(result.at, resultWords(maxOutputs));
    const behind = result.at + resultWords(maxOutputs) * 4;
    this.#hiddenRows = result.memory.f32(behind, hiddenWords);
    this.#hiddenCols = hiddenCols;
    this.#onSettled = onSettled;
    const most = sampler === null ? maxOutputs : resultWords(maxOutputs);
    this.#buffers = [new ResultBuffer(most), new ResultBuffer(most)];
  }

  /** Writes a step to one of the inboxes, and answers its address. */
  fill(step: StepInputs, inbox: 0 | 1): number {
    const { at, u32, f32 } = this.#inboxes[inbox]!;
    this.#tokens = step.tokenCount;
    this.#outputs = this.#sampler === null ? 0 : step.outputCount;
    this.#hidden = step.hiddenCount;
    this.#u32 = u32;
    writeStep(this.#layout, step, u32, f32);
    return at;
  }

  /** Who waits for the forward half. */
  begin(): Waiter {
    this.computed = new Promise((resolve) => {
      this.#onComputed = resolve;
    });
    return this.#forward;
  }

  /** Whether it was filled with as much. */
  isOf(step: StepInputs): boolean {
    return step.tokenCount === this.#tokens && (this.#sampler === null || step.outputCount === this.#outputs);
  }

  promise(): Promise<StepResult> {
    return new Promise(this.#executor);
  }

  retired(): void {
    this.#turn ^= 1;
    const wants = this.#u32[STEP_WANTS]!;
    const buffer = this.#buffers[this.#turn as 0 | 1];
    const result = buffer.fill(this.#results, this.#outputs, (wants & RECORDS) !== 0);
    if (wants & HISTORY_FEATURES) this.#note(result.ids);
    this.#resolve(
      this.#hidden === 0
        ? result
        : result.withHidden(new Float32Array(this.#hiddenRows.subarray(0, this.#hidden * this.#hiddenCols))),
    );
    this.#onSettled();
  }

  /** The threads have taken the ids into the rows' states. */
  #note(ids: Uint32Array): void {
    const { outputSlots, sampling, samplingStride } = this.#layout;
    for (let r = 0; r < this.#outputs; r++) {
      if (ids[r] === INVALID_TOKEN || this.#u32[sampling + P_FEATURES * samplingStride + r] === 0) continue;
      const position = this.#u32[sampling + P_POSITION * samplingStride + r]!;
      this.#sampler?.note(this.#u32[outputSlots + r]!, position, ids[r]!);
    }
  }

  failed(error: KvantError): void {
    this.#reject(error);
    this.#onSettled();
  }
}

interface Inbox {
  readonly at: number;
  readonly u32: Uint32Array;
  readonly f32: Float32Array;
}

/** Words of results, and a result of every size that was asked for: a step makes none anew. */
class ResultBuffer {
  readonly #words: Uint32Array;
  readonly #plain: (StepResult | undefined)[] = [];
  readonly #recorded: (StepResult | undefined)[] = [];

  constructor(length: number) {
    this.#words = new Uint32Array(length);
  }

  /** Takes a step's words over. */
  fill(words: Uint32Array, outputs: number, recorded: boolean): StepResult {
    const count = outputs * (recorded ? 1 + R_WORDS : 1);
    for (let i = 0; i < count; i++) this.#words[i] = words[i]!;
    const results = recorded ? this.#recorded : this.#plain;
    const result = results[outputs] ?? new StepResult(this.#words.subarray(0, count), outputs);
    results[outputs] = result;
    return result;
  }
}
