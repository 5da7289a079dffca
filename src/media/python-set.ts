/** The order in which CPython goes through a set, for references whose choice between equals depends on it. */

export type Pair = readonly [number, number];

// Of the hash of tuples, xxHash with one accumulator.
const PRIME_1 = 11_400_714_785_074_694_791n;
const PRIME_2 = 14_029_467_366_897_019_727n;
const PRIME_5 = 2_870_177_450_012_600_261n;
const SLOTS = 8n;

const wrapped = (x: bigint): bigint => BigInt.asUintN(64, x);

/** Of a tuple of two whole numbers from 0 on. */
function hash(pair: Pair): bigint {
  let sum = PRIME_5;
  for (const number of pair) {
    const mixed = wrapped(sum + BigInt(number) * PRIME_2);
    sum = wrapped(((mixed << 31n) | (mixed >> 33n)) * PRIME_1);
  }
  return wrapped(sum + (2n ^ PRIME_5 ^ 3_527_539n));
}

/**
 * The distinct of at most four pairs of whole numbers from 0 on, in the order of `list(set(pairs))`.
 *
 * @example setOrder([[1, 2], [1, 2]]) // [[1, 2]]
 */
export function setOrder(pairs: readonly Pair[]): readonly Pair[] {
  const slots: (Pair | undefined)[] = [];
  for (const pair of pairs) {
    let perturb = hash(pair);
    let at = perturb % SLOTS;
    const taken = (): Pair | undefined => slots[Number(at)];
    while (taken() !== undefined && taken()!.join() !== pair.join()) {
      perturb >>= 5n;
      at = (at * 5n + 1n + perturb) % SLOTS;
    }
    slots[Number(at)] = pair;
  }
  return slots.filter((pair) => pair !== undefined);
}
