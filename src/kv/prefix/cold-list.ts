/** Blocks in the order in which they were used last: a list through arrays, so that nothing is made when one moves. */

const NONE = -1;

export class ColdList {
  readonly #warmer: Int32Array;
  readonly #colder: Int32Array;
  readonly #listed: Uint8Array;
  #coldest = NONE;
  #warmest = NONE;
  #count = 0;

  /** Takes blocks `0 … blocks − 1`. */
  constructor(blocks: number) {
    this.#warmer = new Int32Array(blocks);
    this.#colder = new Int32Array(blocks);
    this.#listed = new Uint8Array(blocks);
  }

  get count(): number {
    return this.#count;
  }

  /** The one that was put in first, −1 for none. */
  get coldest(): number {
    return this.#coldest;
  }

  has(block: number): boolean {
    return this.#listed[block] === 1;
  }

  /** Puts a block that is not in the list at its warm end. */
  push(block: number): void {
    this.#colder[block] = this.#warmest;
    this.#warmer[block] = NONE;
    if (this.#warmest === NONE) this.#coldest = block;
    else this.#warmer[this.#warmest] = block;
    this.#warmest = block;
    this.#listed[block] = 1;
    this.#count++;
  }

  /** Takes out a block that is in the list. */
  remove(block: number): void {
    const colder = this.#colder[block]!;
    const warmer = this.#warmer[block]!;
    if (colder === NONE) this.#coldest = warmer;
    else this.#warmer[colder] = warmer;
    if (warmer === NONE) this.#warmest = colder;
    else this.#colder[warmer] = colder;
    this.#listed[block] = 0;
    this.#count--;
  }
}
