/** A ring of mappable buffers: the ids of a step reach the host through one of them, and the end of the step too. */

import { KvantError } from '../../errors.js';
import type { Allocator } from './allocator.js';
import { MAP_MODE_READ, USAGE } from './constants.js';
import { waitIsOver } from './dawn-ticks.js';
import { deviceLost, type FaultSink, type Faults } from './faults.js';

export interface ReadbackSlot extends FaultSink {
  readonly buffer: GPUBuffer;
  error: KvantError | null;
  busy: boolean;
}

export class ReadbackRing {
  readonly #slots: ReadbackSlot[];
  readonly #allocator: Allocator;
  readonly #faults: Faults;
  #next = 0;

  constructor(allocator: Allocator, faults: Faults, inFlight: number, bytes: number) {
    this.#allocator = allocator;
    this.#faults = faults;
    this.#slots = Array.from({ length: inFlight }, (_, i) => {
      const slot: ReadbackSlot = {
        buffer: allocator.create(`ids readback ${i}`, bytes, USAGE.MAP_READ | USAGE.COPY_DST),
        error: null,
        busy: false,
        fail: (error) => {
          slot.error ??= error;
        },
      };
      return slot;
    });
  }

  /** The buffer that the next step copies its ids to. Throws if all are under way. */
  take(): ReadbackSlot {
    const slot = this.#slots[this.#next]!;
    if (slot.busy) {
      throw new KvantError('invalid-step', `More than ${this.#slots.length} steps are under way.`, {
        where: 'submit',
        fix: 'This is a fault of the caller: it must wait for the step before.',
      });
    }
    this.#next = (this.#next + 1) % this.#slots.length;
    slot.busy = true;
    slot.error = null;
    this.#faults.add(slot);
    return slot;
  }

  /** After the submit: the first `count` ids once the step has retired. */
  async read(slot: ReadbackSlot, count: number): Promise<Uint32Array> {
    try {
      await slot.buffer.mapAsync(MAP_MODE_READ, 0, Math.max(16, count * 4));
      waitIsOver();
      const ids = new Uint32Array(slot.buffer.getMappedRange(0, Math.max(16, count * 4)), 0, count).slice();
      slot.buffer.unmap();
      if (slot.error !== null) throw slot.error;
      return ids;
    } catch (error) {
      if (error instanceof KvantError) throw error;
      throw slot.error ?? this.#faults.lost ?? deviceLost('map failed', String(error));
    } finally {
      this.#release(slot);
    }
  }

  /** The same for a step that is submitted later: once `submitted` is settled. Errors: those of submitting it. */
  async readBehind(submitted: Promise<void>, slot: ReadbackSlot, count: number): Promise<Uint32Array> {
    try {
      await submitted;
    } catch (error) {
      this.cancel(slot);
      throw slot.error ?? error;
    }
    return this.read(slot, count);
  }

  /** For a step that was not submitted after all. */
  cancel(slot: ReadbackSlot): void {
    this.#next = this.#slots.indexOf(slot);
    this.#release(slot);
  }

  dispose(): void {
    for (const { buffer } of this.#slots) this.#allocator.destroy(buffer);
  }

  #release(slot: ReadbackSlot): void {
    slot.busy = false;
    this.#faults.remove(slot);
  }
}
