/** The heap after collection, and what counts as flat. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect } from 'vitest';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** Bytes in use once everything unreachable is gone. */
export function heapUsed(): number {
  collect();
  collect();
  return process.memoryUsage().heapUsed;
}

/**
 * Samples taken after equal windows of work must not show a leak of `leak` bytes a window. A leak adds to every window;
 * the compiler of the JavaScript engine keeps some 100 kB now and then, in one window or another, but not in each. So
 * the window that grew least tells.
 */
export function expectFlat(heaps: readonly number[], leak: number): void {
  expect(heaps.length).toBeGreaterThanOrEqual(4);
  const growth = heaps.slice(1).map((later, i) => later - heaps[i]!);
  expect(Math.min(...growth), `grew by ${growth}`).toBeLessThan(leak);
  expect(heaps.at(-1)! - heaps[0]!, `grew by ${growth}`).toBeLessThan(2_000_000);
}
