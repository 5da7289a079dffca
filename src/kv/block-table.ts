/**
 * The block table of one state slot: which blocks hold positions 0, blockTokens, 2 · blockTokens, … of the
 * sequence that has the slot. Made once for each slot; a sequence borrows it.
 *
 * Where the pool has float-start blocks, a sequence starts in those, and may set blocks of the main pool aside for the
 * time when it is converted. All blocks that the device sees in a table are of one kind.
 *
 * Blocks that no layer reads any more may be given back: the table goes on to count them, and its first entries mean nothing.
 */

import type { KvPool } from '../device/kv.js';
import type { BlockPool } from './block-pool.js';

/** What `convert` is told: float-start block `from[i]` goes to block `to[i]`. `floatStart`: all that the table had. */
export interface Conversion {
  readonly from: Uint32Array;
  readonly to: Uint32Array;
  readonly floatStart: Uint32Array;
}

export class BlockTable {
  readonly slot: number;
  #length = 0;
  #front = 0;
  #floatStart: boolean;
  readonly #blocks: Uint32Array;
  /** Blocks of the main pool that the device does not see yet. */
  readonly #reserved: Uint32Array;
  #reservedCount = 0;
  readonly #pool: BlockPool;
  readonly #floatStartPool: BlockPool | null;
  readonly #device: KvPool;

  constructor(slot: number, pool: BlockPool, device: KvPool, floatStartPool: BlockPool | null = null) {
    this.slot = slot;
    this.#pool = pool;
    this.#floatStartPool = floatStartPool;
    this.#floatStart = floatStartPool !== null;
    this.#device = device;
    this.#blocks = new Uint32Array(device.spec.maxBlocksPerSlot);
    this.#reserved = new Uint32Array(floatStartPool === null ? 0 : device.spec.maxBlocksPerSlot);
  }

  /** Blocks in the table, those that were given back included. */
  get length(): number {
    return this.#length;
  }

  /** Blocks at its beginning that were given back, or that it never had. */
  get front(): number {
    return this.#front;
  }

  /** The blocks in the table, or those that `grow` would put into an empty one, are float-start. */
  get floatStart(): boolean {
    return this.#floatStart;
  }

  /** Blocks of the main pool set aside. */
  get reserved(): number {
    return this.#reservedCount;
  }

  /** Id of a block as the device knows it. */
  at(index: number): number | undefined {
    return index < this.#length ? this.#blocks[index] : undefined;
  }

  /** Id of a block as its pool knows it. */
  poolId(index: number): number {
    const id = this.#blocks[index]!;
    return this.#floatStart ? this.#floatStartIndex(id) : id;
  }

  /**
   * Puts blocks that the caller owns, of one kind and by the ids of their pool, into an empty table and tells the
   * device. They are the table's from here on. `front`: blocks before them, that no layer will read.
   */
  adopt(blocks: readonly number[], floatStart: boolean, front = 0): void {
    this.#floatStart = floatStart;
    this.#front = front;
    this.#length = front + blocks.length;
    for (let i = 0; i < blocks.length; i++)
      this.#blocks[front + i] = floatStart ? this.#floatStartId(blocks[i]!) : blocks[i]!;
    // Any block of the pool will do: devices tell by the first one which kind it is.
    this.#blocks.fill(blocks[0] ?? 0, 0, front);
    this.#device.setBlocks(this.slot, 0, this.#blocks.subarray(0, this.#length));
  }

  /**
   * Takes another block with the same content, by the id of its pool, in place of one it has. The device is not told:
   * for a table that is about to be cleared.
   */
  exchange(index: number, block: number): void {
    const pool = this.#floatStart ? this.#floatStartPool! : this.#pool;
    pool.retain(block);
    pool.release(this.poolId(index));
    this.#blocks[index] = this.#floatStart ? this.#floatStartId(block) : block;
  }

  /** Appends so many fresh blocks and tells the device. Entries already there stay as they are. */
  grow(count: number): void {
    if (count === 0) return;
    const first = this.#length;
    for (let i = 0; i < count; i++)
      this.#blocks[first + i] = this.#floatStart
        ? this.#floatStartId(this.#floatStartPool!.allocate())
        : this.#pool.allocate();
    this.#length += count;
    this.#device.setBlocks(this.slot, first, this.#blocks.subarray(first, this.#length));
  }

  /**
   * Gives back the blocks before number `front`, the first one first. Only when no step under way reads them; the device is
   * not told, as it never reads them again.
   */
  giveBack(front: number): void {
    for (; this.#front < Math.min(front, this.#length); this.#front++)
      this.#pool.release(this.poolId(this.#front));
  }

  /** Sets so many more blocks of the main pool aside. */
  reserve(count: number): void {
    for (let i = 0; i < count; i++) this.#reserved[this.#reservedCount++] = this.#pool.allocate();
  }

  /**
   * Puts what was set aside, at least as many blocks as there are, in place of the float-start ones and tells the device.
   * The caller has the device convert them, and gives the float-start ones back with `releaseFloatStart` when it has. Only while no
   * step under way names the slot.
   *
   * The first blocks need no conversion if there are others that hold the same, converted: `known`, which the caller owns
   * and the table takes over.
   */
  mature(known: readonly number[] = []): Conversion {
    const floatStart = this.#blocks.slice(0, this.#length);
    const from = floatStart.subarray(known.length);
    const to = this.#reserved.slice(known.length, this.#length);
    for (let i = 0; i < known.length; i++) {
      this.#pool.release(this.#reserved[i]!);
      this.#reserved[i] = known[i]!;
    }
    this.#blocks.set(this.#reserved.subarray(0, this.#reservedCount));
    this.#length = this.#reservedCount;
    this.#reservedCount = 0;
    this.#floatStart = false;
    this.#device.setBlocks(this.slot, 0, this.#blocks.subarray(0, this.#length));
    return { from, to, floatStart };
  }

  /** Gives float-start blocks back that `mature` took out of the table. */
  releaseFloatStart({ floatStart }: Conversion): void {
    for (let i = floatStart.length - 1; i >= 0; i--)
      this.#floatStartPool!.release(this.#floatStartIndex(floatStart[i]!));
  }

  /**
   * Gives every block back, the last first: a cache that keeps some wants the end of a sequence to be the first to go.
   * Only after the last step that names the slot has retired.
   */
  clear(): void {
    const pool = this.#floatStart ? this.#floatStartPool! : this.#pool;
    for (let i = this.#length - 1; i >= this.#front; i--) pool.release(this.poolId(i));
    for (let i = 0; i < this.#reservedCount; i++) this.#pool.release(this.#reserved[i]!);
    this.#length = 0;
    this.#front = 0;
    this.#reservedCount = 0;
    this.#floatStart = this.#floatStartPool !== null;
  }

  /** To the device float-start blocks follow the others. */
  #floatStartId(index: number): number {
    return this.#device.spec.blocks + index;
  }

  #floatStartIndex(id: number): number {
    return id - this.#device.spec.blocks;
  }
}
