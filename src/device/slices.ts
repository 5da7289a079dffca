/** What devices have in common that run a step in parts. */

import { KvantError } from '../errors.js';
import type { StepSlice } from './device.js';

/** Where a part of `launches` begins, or ends. */
export function cutOf(launches: number, at: number, of: number): number {
  return Math.floor((launches * at) / of);
}

/** Errors: `invalid-step`. */
export function checkSlice({ from, to, of }: StepSlice, samples: boolean): void {
  if (!samples && Number.isSafeInteger(from) && 0 <= from && from < to && to <= of) return;
  throw new KvantError(
    'invalid-step',
    samples ? 'A step that draws is not run in slices.' : `A slice from ${from} to ${to} of ${of}.`,
    { where: 'submit', fix: 'This is a fault of the caller: slices are of steps without a draw, in order.' },
  );
}
