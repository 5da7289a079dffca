/** What packing needs beside the weights: one piece of each memory that weights are packed in, while any are. */
import type { Allocation, DeviceMemory, MemorySet } from './memory.js';

export class PackScratch {
  readonly #set: MemorySet;
  readonly #held = new Map<DeviceMemory, Allocation>();
  #users = 0;

  constructor(set: MemorySet) {
    this.#set = set;
  }

  /** Somebody packs from now on. */
  begin(): void {
    this.#users++;
  }

  /** And no more. */
  end(): void {
    if (--this.#users > 0) return;
    for (const held of this.#held.values()) this.#set.free(held);
    this.#held.clear();
  }

  /** The address of so many bytes. What was given before may be somebody else's then. */
  at(memory: DeviceMemory, bytes: number): number {
    const held = this.#held.get(memory);
    if (held !== undefined && held.bytes >= bytes) return held.at;
    if (held !== undefined) {
      this.#held.delete(memory);
      this.#set.free(held);
    }
    const more = this.#set.allocateIn(memory, bytes);
    this.#held.set(memory, more);
    return more.at;
  }
}
