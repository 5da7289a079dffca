/**
 * The buffer in which the sampler keeps the state of rows, and who has which part of it. It is made when the first
 * slot asks for room, grows by doubling, and is given back when no slot holds any. All of it between steps.
 */

import { KvantError } from '../../errors.js';
import type { Allocator } from './allocator.js';
import { USAGE } from './constants.js';

/** A stretch of the buffer, in vectors of 16 bytes. */
export interface Stretch {
  readonly at: number;
  readonly length: number;
}

const LEAST_BYTES = 1 << 20;

export class SamplerSpace {
  readonly #device: GPUDevice;
  readonly #allocator: Allocator;
  readonly #most: number;
  readonly #onChange: (buffer: GPUBuffer | null) => void;
  #buffer: GPUBuffer | null = null;
  /** Free stretches, ascending, no two adjacent. */
  #free: Stretch[] = [];
  #taken = 0;

  /** `onChange` is told of every new buffer, and of null when it is given back. */
  constructor(
    device: GPUDevice,
    allocator: Allocator,
    bindingBytes: number,
    onChange: (buffer: GPUBuffer | null) => void,
  ) {
    this.#device = device;
    this.#allocator = allocator;
    this.#most = bindingBytes;
    this.#onChange = onChange;
  }

  get bytes(): number {
    return this.#buffer?.size ?? 0;
  }

  get buffer(): GPUBuffer {
    if (this.#buffer === null) throw new Error('no row holds state');
    return this.#buffer;
  }

  /** One at a time. Errors: `device-out-of-memory`; nothing has changed then. */
  async take(length: number): Promise<Stretch> {
    // Another slot may give its stretch back, and the buffer go, while a larger one is waited for.
    for (;;) {
      const found = this.#find(length);
      if (found !== null) {
        this.#taken++;
        return found;
      }
      await this.#grow(length);
    }
  }

  give(stretch: Stretch): void {
    this.#taken--;
    if (this.#taken === 0) {
      this.dispose();
      return;
    }
    const { at, length } = stretch;
    const next = this.#free.findIndex((f) => f.at > at);
    this.#free.splice(next < 0 ? this.#free.length : next, 0, { at, length });
    this.#free = joined(this.#free);
  }

  dispose(): void {
    if (this.#buffer === null) return;
    this.#allocator.destroy(this.#buffer);
    this.#buffer = null;
    this.#free = [];
    this.#taken = 0;
    this.#onChange(null);
  }

  #find(length: number): Stretch | null {
    const i = this.#free.findIndex((f) => f.length >= length);
    if (i < 0) return null;
    const { at, length: there } = this.#free[i]!;
    if (there === length) this.#free.splice(i, 1);
    else this.#free[i] = { at: at + length, length: there - length };
    return { at, length };
  }

  async #grow(length: number): Promise<void> {
    const before = this.bytes;
    // Vector 0 is nobody's: a part at 0 is a part that is not there.
    const wanted = before + (length + 1) * 16;
    if (wanted > this.#most) {
      throw new KvantError(
        'device-out-of-memory',
        `The state of the sampler takes ${wanted} bytes, a binding of this GPU holds ${this.#most}.`,
        {
          kind: 'device',
          where: 'sampler state',
          fix: 'Run fewer requests with penalties at once, or with fewer of them.',
        },
      );
    }
    let bytes = LEAST_BYTES;
    while (bytes < wanted) bytes *= 2;
    const usage = USAGE.STORAGE | USAGE.COPY_DST | USAGE.COPY_SRC;
    const buffer = this.#allocator.create('sampler state', Math.min(bytes, this.#most), usage);
    try {
      await this.#allocator.settle();
    } catch (error) {
      this.#allocator.destroy(buffer);
      throw error;
    }
    const old = this.#buffer;
    const copied = old === null ? 16 : old.size;
    if (old !== null) {
      const encoder = this.#device.createCommandEncoder();
      encoder.copyBufferToBuffer(old, 0, buffer, 0, old.size);
      this.#device.queue.submit([encoder.finish()]);
      this.#allocator.destroy(old);
    }
    this.#buffer = buffer;
    this.#free = joined([...this.#free, { at: copied / 16, length: (buffer.size - copied) / 16 }]);
    this.#onChange(buffer);
  }
}

function joined(stretches: readonly Stretch[]): Stretch[] {
  const out: Stretch[] = [];
  for (const { at, length } of stretches) {
    const last = out.at(-1);
    if (last !== undefined && last.at + last.length === at) {
      out[out.length - 1] = { at: last.at, length: last.length + length };
    } else out.push({ at, length });
  }
  return out;
}
