/**
 * Who owns which block of the KV pool: a free list and a reference count for each block. Plain book-keeping on
 * the host; the bytes are the device's.
 */

import { KvantError } from '../errors.js';

export class BlockPool {
  readonly size: number;
  /** A stack of free blocks: the last given back is the first given out, so that it is still warm. */
  readonly #free: Uint32Array;
  #freeCount: number;
  readonly #references: Uint32Array;

  constructor(blocks: number) {
    this.size = blocks;
    this.#free = new Uint32Array(blocks);
    for (let i = 0; i < blocks; i++) this.#free[i] = blocks - 1 - i;
    this.#freeCount = blocks;
    this.#references = new Uint32Array(blocks);
  }

  get free(): number {
    return this.#freeCount;
  }

  get used(): number {
    return this.size - this.#freeCount;
  }

  /** A block with one reference. The caller has made sure that there is one (see the scheduler). */
  allocate(): number {
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
  }

  /** One owner less; the last one frees the block. */
  release(block: number): void {
    this.#expectOwned(block);
    this.#references[block]! -= 1;
    if (this.#references[block] === 0) this.#free[this.#freeCount++] = block;
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

  #expectOwned(block: number): void {
    if ((this.#references[block] ?? 0) === 0)
      throw broken(`Block ${block} has no owner.`, 'It was released twice, or was never allocated.');
  }
}

function broken(message: string, fix: string): KvantError {
  return new KvantError('block-pool-broken', message, { kind: 'internal', where: 'block pool', fix });
}
