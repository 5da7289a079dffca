/** From a pair of integers to an integer, all of them at least 0: open addressing over one typed array. */
export class PairTable {
  /** Three numbers a slot: the pair, the first one plus one so that 0 is free, and the value. */
  #slots: Int32Array;
  #mask: number;
  #size = 0;

  /** @param expected how many pairs there will be; more are taken too */
  constructor(expected: number) {
    let slots = 16;
    while (slots < 2 * expected) slots *= 2;
    this.#slots = new Int32Array(3 * slots);
    this.#mask = slots - 1;
  }

  /** The value of a pair, -1 where it has none. */
  get(a: number, b: number): number {
    const slots = this.#slots;
    for (let slot = hash(a, b) & this.#mask; ; slot = (slot + 1) & this.#mask) {
      const first = slots[3 * slot]!;
      if (first === 0) return -1;
      if (first === a + 1 && slots[3 * slot + 1] === b) return slots[3 * slot + 2]!;
    }
  }

  set(a: number, b: number, value: number): void {
    if (2 * this.#size > this.#mask) this.#grow();
    const slots = this.#slots;
    let slot = hash(a, b) & this.#mask;
    while (slots[3 * slot] !== 0 && (slots[3 * slot] !== a + 1 || slots[3 * slot + 1] !== b)) {
      slot = (slot + 1) & this.#mask;
    }
    if (slots[3 * slot] === 0) this.#size++;
    slots[3 * slot] = a + 1;
    slots[3 * slot + 1] = b;
    slots[3 * slot + 2] = value;
  }

  #grow(): void {
    const old = this.#slots;
    this.#slots = new Int32Array(2 * old.length);
    this.#mask = 2 * this.#mask + 1;
    this.#size = 0;
    for (let i = 0; i < old.length; i += 3) if (old[i] !== 0) this.set(old[i]! - 1, old[i + 1]!, old[i + 2]!);
  }
}

function hash(a: number, b: number): number {
  let mixed = Math.imul(a, 0x9e3779b1) ^ Math.imul(b, 0x85ebca6b);
  mixed ^= mixed >>> 15;
  mixed = Math.imul(mixed, 0x2c1b3c6d);
  return mixed ^ (mixed >>> 13);
}
