/**
 * The block table of one state slot: which blocks hold positions 0, blockTokens, 2 · blockTokens, … of the
 * sequence that has the slot. Made once for each slot; a sequence borrows it.
 */

import type { KvPool } from '../device/kv.js';
import type { BlockPool } from './block-pool.js';

export class BlockTable {
  readonly slot: number;
  #length = 0;
  readonly #blocks: Uint32Array;
  readonly #pool: BlockPool;
  readonly #device: KvPool;

  constructor(slot: number, pool: BlockPool, device: KvPool) {
    this.slot = slot;
    this.#pool = pool;
    this.#device = device;
    this.#blocks = new Uint32Array(device.spec.maxBlocksPerSlot);
  }

  /** Blocks in the table. */
  get length(): number {
    return this.#length;
  }

  at(index: number): number | undefined {
    return index < this.#length ? this.#blocks[index] : undefined;
  }

  /** Appends so many fresh blocks and tells the device. Entries already there stay as they are. */
  grow(count: number): void {
    if (count === 0) return;
    const first = this.#length;
    for (let i = 0; i < count; i++) this.#blocks[first + i] = this.#pool.allocate();
    this.#length += count;
    this.#device.setBlocks(this.slot, first, this.#blocks.subarray(first, this.#length));
  }

  /** Gives every block back. Only after the last step that names the slot has retired. */
  clear(): void {
    for (let i = 0; i < this.#length; i++) this.#pool.release(this.#blocks[i]!);
    this.#length = 0;
  }
}
