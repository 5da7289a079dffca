/** Holds what a device drew against the float64 reference. */
import { expect } from 'vitest';
import type { Outcome, RowParams } from './sampling-reference.js';
import type { Sampled } from './sampling-run.js';

/** True if its token could be compared. */
export function check(got: Sampled, want: Outcome, row: RowParams, what: string): boolean {
  if (want.token < 0) {
    expect(got.token, what).toBe(-1);
    expect(
      got.words.every((word) => word === 0),
      what,
    ).toBe(true);
    return true;
  }
  const clear = want.margin > 1e-4;
  if (clear) expect(got.token, what).toBe(want.token);
  else expect(want.kept.has(got.token) || want.margin < 1e-4, what).toBe(true);
  if (got.token !== want.token) return false;
  const wanted = want.logprobs;
  if (wanted !== null) {
    const { record } = got;
    close(record!.logprob, wanted.chosen, what);
    expect(record!.rank, what).toBe(wanted.rank);
    expect(record!.logprobs.length, what).toBe(wanted.values.length);
    wanted.values.forEach((value, i) => {
      close(record!.logprobs[i]!, value, `${what}, alternative ${i}`);
    });
    if (exactOrder(row)) expect([...record!.ids], what).toEqual(wanted.ids);
  }
  if (row.mirostat !== undefined) expect(Math.abs(got.record!.mu - want.mu), what).toBeLessThan(1e-4);
  return clear;
}

/** Rounding may swap neighbours of processed logits; raw ones are what they are. */
function exactOrder(row: RowParams): boolean {
  return !row.processed;
}

function close(got: number, want: number, what: string): void {
  if (want === Number.NEGATIVE_INFINITY) expect(got, what).toBe(want);
  else
    expect(Math.abs(got - want), `${what}: ${got} for ${want}`).toBeLessThanOrEqual(
      1e-5 * Math.max(1, Math.abs(want)),
    );
}
