/**
 * The one place that makes and frees GPU buffers, so that the numbers in `stats()` are true and a failed allocation
 * is noticed: WebGPU hands out a dead buffer and says so later, through an error scope.
 */

import type { KvantError } from '../../errors.js';
import { internalFault, outOfMemory } from './faults.js';

export class Allocator {
  readonly #device: GPUDevice;
  readonly #live = new Map<GPUBuffer, number>();
  #bytes = 0;
  #peakBytes = 0;
  #created = 0;
  #unsettled: Promise<KvantError | null>[] = [];

  constructor(device: GPUDevice) {
    this.#device = device;
  }

  get buffers(): number {
    return this.#live.size;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Most bytes that there have been at once. */
  get peakBytes(): number {
    return this.#peakBytes;
  }

  /** Buffers ever made. */
  get created(): number {
    return this.#created;
  }

  /** A multiple of 16 bytes, so that a vec4 never reads past the end. Whether the allocation worked is known after `settle`. Throws at once if it cannot. */
  create(label: string, bytes: number, usage: number): GPUBuffer {
    const size = Math.max(16, Math.ceil(bytes / 16) * 16);
    if (size > this.#device.limits.maxBufferSize) throw outOfMemory(label, size);
    this.#device.pushErrorScope('validation');
    this.#device.pushErrorScope('out-of-memory');
    let buffer: GPUBuffer;
    try {
      buffer = this.#device.createBuffer({ label, size, usage });
    } finally {
      const memory = this.#device.popErrorScope();
      const validation = this.#device.popErrorScope();
      this.#unsettled.push(
        Promise.all([memory, validation]).then(
          ([m, v]) => {
            if (m !== null) return outOfMemory(label, size, m);
            return v === null ? null : internalFault(`Buffer ${label}: ${v.message}`, label);
          },
          // A lost device rejects; whoever uses the buffer next is told of the loss.
          () => null,
        ),
      );
    }
    this.#live.set(buffer, size);
    this.#bytes += size;
    this.#peakBytes = Math.max(this.#peakBytes, this.#bytes);
    this.#created++;
    return buffer;
  }

  /** Waits for the allocations so far; throws the first that failed. */
  async settle(): Promise<void> {
    const waiting = this.#unsettled;
    this.#unsettled = [];
    const failed = (await Promise.all(waiting)).find((e) => e !== null);
    if (failed !== undefined && failed !== null) throw failed;
  }

  destroy(buffer: GPUBuffer): void {
    const size = this.#live.get(buffer);
    if (size === undefined) return;
    this.#live.delete(buffer);
    this.#bytes -= size;
    buffer.destroy();
  }

  destroyAll(): void {
    for (const buffer of [...this.#live.keys()]) this.destroy(buffer);
  }
}
