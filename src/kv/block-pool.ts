/**
 * Who owns which block of the KV pool: a free list and a reference count for each block. Plain book-keeping on
 * the host; the bytes are the device's.
 *
 * One owner is special: a keeper (the prefix cache) keeps blocks for nobody in particular. A block that it alone owns is
 * cold: as good as free. Cold blocks are in the order in which they lost their last other owner, and the coldest one
 * is evicted when a block is wanted and none is free, or when there are more of them than the keeper may have.
 */

import { KvantError } from '../errors.js';
import { ColdList } from './prefix/cold-list.js';

export interface Keeper {
  /** Most cold blocks. */
  readonly limit: number;
  /** Forgets a cold block: it is free behind this call. */
  evict(block: number): void;
}

export class BlockPool {
  readonly size: number;
  /** A stack of free blocks: the last given back is the first given out, so that it is still warm. */
  readonly #free: Uint32Array;
  #freeCount: number;
  readonly #references: Uint32Array;
  // Null while nobody keeps blocks.
  #keeper: Keeper | null = null;
  #kept: Uint8Array | null = null;
  #cold: ColdList | null = null;

  constructor(blocks: number) {
    this.size = blocks;
    this.#free = new Uint32Array(blocks);
    for (let i = 0; i < blocks; i++) this.#free[i] = blocks - 1 - i;
    this.#freeCount = blocks;
    this.#references = new Uint32Array(blocks);
  }

  /** Names the keeper, once, before any block is given out. */
  set keeper(keeper: Keeper) {
    this.#keeper = keeper;
    this.#kept = new Uint8Array(this.size);
    this.#cold = new ColdList(this.size);
  }

  get free(): number {
    return this.#freeCount;
  }

  get used(): number {
    return this.size - this.#freeCount;
  }

  /** Blocks that only the keeper owns. */
  get cold(): number {
    return this.#cold === null ? 0 : this.#cold.count;
  }

  /** Blocks that can be had: free ones, and cold ones. */
  get available(): number {
    return this.#freeCount + this.cold;
  }

  /** Blocks that somebody besides the keeper owns. */
  get held(): number {
    return this.size - this.available;
  }

  /** A block with one reference. The caller has made sure that there is one (see the scheduler). */
  allocate(): number {
    if (this.#freeCount === 0) this.#evict();
    if (this.#freeCount === 0)
      throw broken('No block is free.', 'The scheduler promised a block it did not have.');
    const block = this.#free[--this.#freeCount]!;
    this.#references[block] = 1;
    return block;
  }

  /** One more owner. */
  retain(block: number): void {
    this.#expectOwned(block);
    this.#references[block]! += 1;
    if (this.#cold?.has(block)) this.#cold.remove(block);
  }

  /** One owner less; the last one frees the block. */
  release(block: number): void {
    this.#expectOwned(block);
    this.#references[block]! -= 1;
    const left = this.#references[block]!;
    if (left === 0) this.#free[this.#freeCount++] = block;
    else if (left === 1 && this.#kept?.[block] === 1) {
      this.#cold!.push(block);
      if (this.#cold!.count > this.#keeper!.limit) this.#evict();
    }
  }

  /** The keeper becomes an owner of a block that somebody owns. */
  keep(block: number): void {
    this.retain(block);
    this.#kept![block] = 1;
  }

  /** The keeper is no longer an owner. */
  unkeep(block: number): void {
    this.#kept![block] = 0;
    if (this.#cold!.has(block)) this.#cold!.remove(block);
    this.release(block);
  }

  kept(block: number): boolean {
    return this.#kept?.[block] === 1;
  }

  references(block: number): number {
    return this.#references[block] ?? 0;
  }

  /** Throws unless exactly these many blocks are in use and the free list agrees with the counts. */
  check(expectedUsed: number): void {
    let owned = 0;
    for (const count of this.#references) if (count > 0) owned++;
    const distinct = new Set(this.#free.subarray(0, this.#freeCount)).size;
    if (owned !== this.used || distinct !== this.#freeCount || this.used !== expectedUsed) {
      throw broken(
        `The block pool has ${this.used} blocks in use, ${owned} with owners, ${distinct} free of ${this.size}; ${expectedUsed} should be in use.`,
        'A sequence kept or returned a block twice.',
      );
    }
  }

  /** Frees the coldest block, if there is one. */
  #evict(): void {
    const block = this.#cold?.coldest ?? -1;
    if (block < 0) return;
    this.#keeper!.evict(block);
    this.unkeep(block);
  }

  #expectOwned(block: number): void {
    if ((this.#references[block] ?? 0) === 0)
      throw broken(`Block ${block} has no owner.`, 'It was released twice, or was never allocated.');
  }
}

function broken(message: string, fix: string): KvantError {
  return new KvantError('block-pool-broken', message, { kind: 'internal', where: 'block pool', fix });
}
