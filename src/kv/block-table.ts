/**
 * The block table of one state slot: which blocks hold positions 0, blockTokens, 2 · blockTokens, … of the
 * sequence that has the slot. Made once for each slot; a sequence borrows it.
 *
 * Where the pool has young blocks, a sequence starts in those, and may set blocks of the main pool aside for the
 * time when it is converted. All blocks that the device sees in a table are of one kind.
 */

import type { KvPool } from '../device/kv.js';
import type { BlockPool } from './block-pool.js';

/** What `convert` is told: young block `from[i]` goes to block `to[i]`. */
export interface Conversion {
  readonly from: Uint32Array;
  readonly to: Uint32Array;
}

export class BlockTable {
  readonly slot: number;
  #length = 0;
  #young: boolean;
  readonly #blocks: Uint32Array;
  /** Blocks of the main pool that the device does not see yet. */
  readonly #reserved: Uint32Array;
  #reservedCount = 0;
  readonly #pool: BlockPool;
  readonly #youngPool: BlockPool | null;
  readonly #device: KvPool;

  constructor(slot: number, pool: BlockPool, device: KvPool, youngPool: BlockPool | null = null) {
    this.slot = slot;
    this.#pool = pool;
    this.#youngPool = youngPool;
    this.#young = youngPool !== null;
    this.#device = device;
    this.#blocks = new Uint32Array(device.spec.maxBlocksPerSlot);
    this.#reserved = new Uint32Array(youngPool === null ? 0 : device.spec.maxBlocksPerSlot);
  }

  /** Blocks in the table. */
  get length(): number {
    return this.#length;
  }

  /** The blocks in the table, or those that `grow` would put into an empty one, are young. */
  get young(): boolean {
    return this.#young;
  }

  /** Blocks of the main pool set aside. */
  get reserved(): number {
    return this.#reservedCount;
  }

  /** Id of a block as the device knows it. */
  at(index: number): number | undefined {
    return index < this.#length ? this.#blocks[index] : undefined;
  }

  /** Appends so many fresh blocks and tells the device. Entries already there stay as they are. */
  grow(count: number): void {
    if (count === 0) return;
    const first = this.#length;
    for (let i = 0; i < count; i++)
      this.#blocks[first + i] = this.#young
        ? this.#youngId(this.#youngPool!.allocate())
        : this.#pool.allocate();
    this.#length += count;
    this.#device.setBlocks(this.slot, first, this.#blocks.subarray(first, this.#length));
  }

  /** Sets so many more blocks of the main pool aside. */
  reserve(count: number): void {
    for (let i = 0; i < count; i++) this.#reserved[this.#reservedCount++] = this.#pool.allocate();
  }

  /**
   * Puts what was set aside, at least as many blocks as there are, in place of the young ones and tells the device.
   * The caller has the device convert them, and gives the young ones back with `releaseYoung` when it has. Only while no
   * step under way names the slot.
   */
  mature(): Conversion {
    const from = this.#blocks.slice(0, this.#length);
    const to = this.#reserved.slice(0, this.#length);
    this.#blocks.set(this.#reserved.subarray(0, this.#reservedCount));
    this.#length = this.#reservedCount;
    this.#reservedCount = 0;
    this.#young = false;
    this.#device.setBlocks(this.slot, 0, this.#blocks.subarray(0, this.#length));
    return { from, to };
  }

  /** Gives young blocks back that `mature` took out of the table. */
  releaseYoung({ from }: Conversion): void {
    for (const id of from) this.#youngPool!.release(this.#youngIndex(id));
  }

  /** Gives every block back. Only after the last step that names the slot has retired. */
  clear(): void {
    for (let i = 0; i < this.#length; i++) {
      const id = this.#blocks[i]!;
      if (this.#young) this.#youngPool!.release(this.#youngIndex(id));
      else this.#pool.release(id);
    }
    for (let i = 0; i < this.#reservedCount; i++) this.#pool.release(this.#reserved[i]!);
    this.#length = 0;
    this.#reservedCount = 0;
    this.#young = this.#youngPool !== null;
  }

  /** To the device young blocks follow the others. */
  #youngId(index: number): number {
    return this.#device.spec.blocks + index;
  }

  #youngIndex(id: number): number {
    return id - this.#device.spec.blocks;
  }
}
