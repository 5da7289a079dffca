/** Two lists of numbers as bits: NaN equals NaN, and 0 is not −0. Long lists too, where `toEqual` takes minutes. */
import { expect } from 'vitest';

export function expectSameBits(a: Float32Array, b: Float32Array): void {
  expect(a.length).toBe(b.length);
  const left = new Uint32Array(a.slice().buffer);
  const right = new Uint32Array(b.slice().buffer);
  for (let i = 0; i < left.length; i++)
    if (left[i] !== right[i]) expect.fail(`${a[i]} is not ${b[i]} at ${i}`);
}
