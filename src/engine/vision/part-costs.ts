/** What each part of a large tower's step takes, so that a slice is cut by time: launches of many rows take very different times. */

/** Sizes of steps that are kept, the one used last at the end. */
const KEPT_SIZES = 8;

export class PartCosts {
  readonly #parts: number;
  /** By rows: milliseconds of each part, NaN for one that has not been seen. */
  readonly #sizes = new Map<number, Float64Array>();

  constructor(parts: number) {
    this.#parts = parts;
  }

  /**
   * Where a slice ends that begins with the part `from` and takes `ms` at most, but for its first part. What is not known yet is a slice
   * of `unknown` parts.
   */
  end(rows: number, from: number, ms: number, unknown: number): number {
    const costs = this.#of(rows);
    if (Number.isNaN(costs[from]!)) return Math.min(this.#parts, from + unknown);
    let sum = costs[from]!;
    let to = from + 1;
    // NaN compares to nothing.
    while (to < this.#parts && sum + costs[to]! <= ms) sum += costs[to++]!;
    return to;
  }

  /** A slice took from `least` to `most` milliseconds: what is known of it is moved no further than there. */
  learn(rows: number, from: number, to: number, least: number, most: number): void {
    const costs = this.#of(rows);
    const slice = costs.subarray(from, to);
    const known = slice.reduce((sum, ms) => sum + ms, 0);
    if (Number.isNaN(known) || known === 0) {
      slice.fill((least + most) / 2 / slice.length);
      return;
    }
    const scale = Math.min(Math.max(known, least), most) / known;
    for (let i = 0; i < slice.length; i++) slice[i]! *= scale;
  }

  #of(rows: number): Float64Array {
    const costs = this.#sizes.get(rows) ?? new Float64Array(this.#parts).fill(Number.NaN);
    this.#sizes.delete(rows);
    this.#sizes.set(rows, costs);
    for (const old of this.#sizes.keys()) {
      if (this.#sizes.size <= KEPT_SIZES) break;
      this.#sizes.delete(old);
    }
    return costs;
  }
}
