/**
 * The memories of the CPU device: one or several shared WebAssembly memories of up to 4 GiB. A kernel sees one memory,
 * so whatever an op touches must lie in one.
 *
 * A memory grows as it is needed. Ranges are handed out first fit on multiples of 64 bytes and come back when the
 * program or pool that holds them is disposed of.
 */

import { outOfMemory } from './errors.js';
import { CONTROL, HEAP, SPIN_TURNS } from './opcodes.js';

const PAGE = 65536;
const ALIGN = 64;
/** The last page stays unused, so that the end of a range is always a 32-bit number. */
const MOST_BYTES = 65535 * PAGE;

interface Range {
  at: number;
  bytes: number;
}

export class DeviceMemory {
  readonly index: number;
  readonly memory: WebAssembly.Memory;
  readonly limit: number;
  readonly #used = new Map<number, number>();
  /** Sorted by address; the last one ends at the limit. */
  readonly #free: Range[];
  #usedBytes = 0;
  #u8: Uint8Array<ArrayBufferLike>;

  constructor(index: number, limitBytes: number, spinTurns: number) {
    this.index = index;
    this.limit = Math.min(MOST_BYTES, Math.floor(limitBytes / PAGE) * PAGE);
    try {
      this.memory = new WebAssembly.Memory({ initial: 2, maximum: this.limit / PAGE, shared: true });
    } catch (cause) {
      throw outOfMemory(`The machine refused a memory of up to ${this.limit} bytes.`, cause);
    }
    this.#free = [{ at: HEAP, bytes: this.limit - HEAP }];
    this.#u8 = new Uint8Array(this.memory.buffer);
    this.u32(CONTROL + SPIN_TURNS, 1)[0] = spinTurns;
  }

  get buffers(): number {
    return this.#used.size;
  }

  get bytes(): number {
    return this.#usedBytes;
  }

  get freeBytes(): number {
    return this.limit - HEAP - this.#usedBytes;
  }

  /** Grows for so many bytes beside those in use, once: each time that a memory grows all threads are told. */
  reserve(bytes: number): void {
    this.#grow(Math.min(HEAP + this.#usedBytes + bytes, this.limit));
  }

  /** The address of a new range, or −1 if there is no room for it. */
  tryAllocate(bytes: number): number {
    const size = roundUp(Math.max(bytes, 1));
    const index = this.#free.findIndex((range) => range.bytes >= size);
    const range = this.#free[index];
    if (range === undefined) return -1;
    const at = range.at;
    this.#grow(at + size);
    range.at += size;
    range.bytes -= size;
    if (range.bytes === 0) this.#free.splice(index, 1);
    this.#used.set(at, size);
    this.#usedBytes += size;
    return at;
  }

  free(at: number): void {
    const bytes = this.#used.get(at);
    if (bytes === undefined) return;
    this.#used.delete(at);
    this.#usedBytes -= bytes;
    let index = this.#free.findIndex((range) => range.at > at);
    if (index < 0) index = this.#free.length;
    this.#free.splice(index, 0, { at, bytes });
    this.#join(index);
    if (index > 0) this.#join(index - 1);
  }

  u8(at: number, length: number): Uint8Array<ArrayBufferLike> {
    return new Uint8Array(this.memory.buffer, at, length);
  }

  u32(at: number, length: number): Uint32Array<ArrayBufferLike> {
    return new Uint32Array(this.memory.buffer, at, length);
  }

  i32(at: number, length: number): Int32Array<ArrayBufferLike> {
    return new Int32Array(this.memory.buffer, at, length);
  }

  f32(at: number, length: number): Float32Array<ArrayBufferLike> {
    return new Float32Array(this.memory.buffer, at, length);
  }

  #grow(end: number): void {
    // Kernels read whole vectors and tiles: what lies behind the last range must be there too.
    const missing = Math.min(end + PAGE, this.limit) - this.#u8.byteLength;
    if (missing <= 0) return;
    const pages = Math.ceil(missing / PAGE);
    try {
      this.memory.grow(pages);
    } catch (cause) {
      throw outOfMemory(`The machine refused ${pages * PAGE} more bytes.`, cause);
    }
    this.#u8 = new Uint8Array(this.memory.buffer);
  }

  /** Joins a free range with the one behind it, if they touch. */
  #join(index: number): void {
    const range = this.#free[index];
    const next = this.#free[index + 1];
    if (range === undefined || next === undefined || range.at + range.bytes !== next.at) return;
    range.bytes += next.bytes;
    this.#free.splice(index + 1, 1);
  }
}

/** A range in one of the memories. */
export interface Allocation {
  readonly memory: DeviceMemory;
  readonly at: number;
  readonly bytes: number;
}

export interface MemorySetOptions {
  /** Largest size of one memory. */
  readonly memoryLimitBytes: number;
  /** Bytes all memories may hold together. */
  readonly totalBytes: number;
  readonly spinTurns: number;
  /** Called for each new memory, before it is used. */
  readonly onMemory: (memory: DeviceMemory) => void;
}

export class MemorySet {
  readonly #options: MemorySetOptions;
  readonly #memories: DeviceMemory[] = [];
  /** Memory of each placement group. */
  #groups: number[] = [];
  #peakBytes = 0;

  constructor(options: MemorySetOptions) {
    this.#options = options;
    this.memory(0);
  }

  get all(): readonly DeviceMemory[] {
    return this.#memories;
  }

  get buffers(): number {
    return this.#memories.reduce((sum, m) => sum + m.buffers, 0);
  }

  get bytes(): number {
    return this.#memories.reduce((sum, m) => sum + m.bytes, 0);
  }

  /** Most bytes that there have been at once. */
  get peakBytes(): number {
    return this.#peakBytes;
  }

  /** Memory by index; those up to it are made as needed. */
  memory(index: number): DeviceMemory {
    while (this.#memories.length <= index) {
      const { memoryLimitBytes, spinTurns, onMemory } = this.#options;
      const memory = new DeviceMemory(this.#memories.length, memoryLimitBytes, spinTurns);
      onMemory(memory);
      this.#memories.push(memory);
    }
    return this.#memories[index]!;
  }

  /**
   * Decides in which memory each group shall lie: in order, a new memory where the last one is full. An eighth of
   * each is left for activations, scratch and step arrays.
   *
   * @throws KvantError `device-out-of-memory` if a group is larger than a memory, or all are larger than the machine.
   */
  place(groupBytes: readonly number[]): void {
    const limit = this.memory(0).limit;
    const room = limit - HEAP - limit / 8;
    const total = groupBytes.reduce((a, b) => a + b, 0);
    if (total > this.#options.totalBytes) {
      throw outOfMemory(
        `The model and its KV need ${total} bytes, the machine has ${this.#options.totalBytes}.`,
      );
    }
    const wanted = new Map<number, number>();
    let memory = 0;
    let left = room - this.memory(0).bytes;
    this.#groups = groupBytes.map((bytes, group) => {
      if (bytes > room) {
        throw outOfMemory(
          `Placement group ${group} needs ${bytes} bytes, more than one memory holds (${room}).`,
        );
      }
      if (bytes > left) {
        memory++;
        left = room;
      }
      left -= bytes;
      return memory;
    });
    this.#groups.forEach((memory, group) => {
      wanted.set(memory, (wanted.get(memory) ?? 0) + groupBytes[group]!);
    });
    for (const [index, bytes] of wanted) this.memory(index).reserve(bytes);
  }

  /** A range in the memory of a placement group; in a later one, or any, if that is full. */
  allocate(bytes: number, group = 0): Allocation {
    const preferred = this.#groups[group] ?? 0;
    this.memory(preferred);
    for (let index = preferred; index < this.#memories.length; index++) {
      const found = this.#tryIn(this.memory(index), bytes);
      if (found !== null) return found;
    }
    for (let index = 0; index < preferred; index++) {
      const found = this.#tryIn(this.memory(index), bytes);
      if (found !== null) return found;
    }
    if (bytes <= this.memory(0).limit - HEAP) {
      const found = this.#tryIn(this.memory(this.#memories.length), bytes);
      if (found !== null) return found;
    }
    throw outOfMemory(`${bytes} bytes do not fit one memory of ${this.memory(0).limit} bytes.`);
  }

  /** A range in a certain memory. */
  allocateIn(memory: DeviceMemory, bytes: number): Allocation {
    const found = this.#tryIn(memory, bytes);
    if (found !== null) return found;
    throw outOfMemory(
      `${bytes} bytes do not fit the ${memory.freeBytes} that memory ${memory.index} has left.`,
    );
  }

  free(allocation: Allocation): void {
    allocation.memory.free(allocation.at);
  }

  #tryIn(memory: DeviceMemory, bytes: number): Allocation | null {
    if (this.bytes + bytes > this.#options.totalBytes) {
      throw outOfMemory(
        `${bytes} bytes more would be ${this.bytes + bytes}, the machine has ${this.#options.totalBytes}.`,
      );
    }
    const at = memory.tryAllocate(bytes);
    if (at < 0) return null;
    this.#peakBytes = Math.max(this.#peakBytes, this.bytes);
    return { memory, at, bytes };
  }
}

function roundUp(bytes: number): number {
  return Math.ceil(bytes / ALIGN) * ALIGN;
}
