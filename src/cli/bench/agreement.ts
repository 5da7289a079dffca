/** Measurements that one reading cannot be trusted with: they are repeated until two agree. */

/** Readings of one thing may differ by so much and still agree. */
const WITHIN = 1.05;
const MOST_READINGS = 6;

/**
 * The larger of the first two readings, in any order, that differ by no more than 5 %. A GPU that idled reads too low, a clock that
 * started late too high: either stands alone.
 *
 * @returns null if no two of six agree, or a reading is no number above 0
 */
export async function agreedReading(read: () => Promise<number>): Promise<number | null> {
  const readings: number[] = [];
  while (readings.length < MOST_READINGS) {
    const one = await read();
    if (!(one > 0 && Number.isFinite(one))) return null;
    const like = readings.find((other) => Math.max(one, other) <= WITHIN * Math.min(one, other));
    if (like !== undefined) return Math.max(one, like);
    readings.push(one);
  }
  return null;
}

export interface RateOfSize {
  readonly operationsPerSecond: number;
  readonly size: number;
}

/** From one size to the next, which is eight times the work, a rate may grow by so much. */
const STEEPEST = 8;

/**
 * The best of the rates of growing sizes, each checked against the one before: what is more than eight times its neighbour would have
 * taken less time for eight times the work, so one of the two is wrong, and neither is used.
 */
export function bestRate(rates: readonly RateOfSize[]): RateOfSize | null {
  const wrong = new Set<RateOfSize>();
  for (const [i, one] of rates.entries()) {
    const before = rates[i - 1];
    if (before !== undefined && one.operationsPerSecond > STEEPEST * before.operationsPerSecond) {
      wrong.add(one);
      wrong.add(before);
    }
  }
  let best: RateOfSize | null = null;
  for (const one of rates)
    if (!wrong.has(one) && one.operationsPerSecond > (best?.operationsPerSecond ?? 0)) best = one;
  return best;
}
