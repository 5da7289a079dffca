/** How a packed step reaches the device: at once, or stretch by stretch, with what the host computes between two of them. */

import { KvantError } from '../../errors.js';
import type { StepSlice } from '../device.js';
import type { HostExperts } from './host-experts.js';
import type { StepFacts } from './kernel.js';
import type { Plan, StepPart } from './plan.js';
import type { ReadbackSlot } from './readback.js';
import type { StepOrder } from './step-order.js';
import type { StepReadback } from './step-readback.js';

/** A step as it goes to the device, whatever becomes of what it was made of. */
export interface PackedStep {
  /** What is written to the step's buffer. */
  readonly words: Uint32Array;
  readonly facts: StepFacts;
  /** The hidden rows that are asked for. */
  readonly hidden: Uint32Array;
}

export class StepSubmitter {
  readonly #device: GPUDevice;
  readonly #order: StepOrder;
  readonly #buffer: GPUBuffer;
  readonly #readback: StepReadback;

  /** @param buffer the step's */
  constructor(device: GPUDevice, order: StepOrder, buffer: GPUBuffer, readback: StepReadback) {
    this.#device = device;
    this.#order = order;
    this.#buffer = buffer;
    this.#readback = readback;
  }

  /** The results are copied behind the draw. */
  whole(slot: ReadbackSlot, plan: Plan, step: PackedStep, part: StepPart, slice?: StepSlice): void {
    this.#write(step);
    const encoder = this.#device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    plan.encode(pass, step.facts, part, slice);
    pass.end();
    if (part !== 'forward') this.#readback.copy(encoder, slot.buffer, step.facts, step.hidden);
    this.#device.queue.submit([encoder.finish()]);
  }

  /** Behind the steps before it: stretch by stretch. Settles when all of it has been submitted. `after`: what it waits for first. */
  inTurn(
    slot: ReadbackSlot,
    plan: Plan,
    step: PackedStep,
    part: StepPart,
    experts: HostExperts,
    after: Promise<void> | null,
  ): Promise<void> {
    const last = part === 'sample' ? 0 : experts.cuts;
    const { facts, hidden } = step;
    return this.#order.step(async () => {
      // Without its first half there is nothing to draw from.
      if (after !== null) await after;
      this.#write(step);
      for (let stretch = 0; stretch <= last; stretch++) {
        const encoder = this.#device.createCommandEncoder();
        const pass = encoder.beginComputePass();
        plan.encodeStretch(pass, facts, part, stretch);
        pass.end();
        const rows = stretch < last ? facts[experts.rowsAt(stretch)] : 0;
        if (rows > 0) experts.bring(encoder, stretch, rows);
        if (stretch === last && part !== 'forward') this.#readback.copy(encoder, slot.buffer, facts, hidden);
        this.#device.queue.submit([encoder.finish()]);
        if (rows > 0) await experts.compute(stretch, rows);
      }
    });
  }

  #write({ words }: PackedStep): void {
    this.#device.queue.writeBuffer(this.#buffer, 0, words as Uint32Array<ArrayBuffer>);
  }
}

/** `invalid-step`: submit, forward or sample where it has no place. */
export function wrongOrder(message: string): KvantError {
  return new KvantError('invalid-step', message, {
    where: 'submit',
    fix: 'This is a fault of the caller: `sample` follows `forward`, with the same inputs.',
  });
}
