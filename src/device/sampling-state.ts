/**
 * The state of a row as it follows from its tokens: what a device fills its arrays with when it syncs a slot, and
 * what carrying the state on token by token must arrive at. On the host, once for a history; linear in its length.
 */

import type { DryBreakers, RowSpec } from './sampling.js';

/**
 * Counts of a history, into arrays `[vocab]` that are zero. `seen`: occurrences among the last `window` tokens
 * (0: all), prompt included. `generated`: occurrences after the prompt. Null: not wanted.
 */
export function countTokens(
  history: Int32Array,
  promptLength: number,
  window: number,
  seen: Uint32Array | null,
  generated: Uint32Array | null,
): void {
  const first = window === 0 ? 0 : Math.max(0, history.length - window);
  for (let i = Math.min(first, promptLength); i < history.length; i++) {
    const id = history[i]!;
    if (seen !== null && i >= first && id < seen.length) seen[id] = seen[id]! + 1;
    if (generated !== null && i >= promptLength && id < generated.length) generated[id] = generated[id]! + 1;
  }
}

/**
 * `out[d]` = L(d) of sampling.ts for `1 ≤ d < min(n, window)`, 0 elsewhere: how far the history and the history
 * without its last d tokens end alike. The Z-function of the reversed history (Gusfield 1997, §1.4).
 */
export function matchLengths(history: Int32Array, window: number, out: Uint32Array): void {
  out.fill(0);
  const n = history.length;
  const last = n - 1;
  const end = window === 0 ? n : Math.min(n, window);
  let left = 0;
  let right = 0;
  for (let d = 1; d < end; d++) {
    let length = d < right ? Math.min(right - d, out[d - left]!) : 0;
    while (d + length < n && history[last - length] === history[last - d - length]) length++;
    out[d] = length;
    if (d + length > right) {
      left = d;
      right = d + length;
    }
  }
}

/** R of sampling.ts, not yet cut to the window: tokens after the last breaker, all of them if there was none. */
export function tokensSinceBreaker(history: Int32Array, breakers: DryBreakers): number {
  const ids = new Set(breakers.ids);
  for (let end = history.length; end > 0; end--) {
    if (ids.has(history[end - 1]!) || breakers.sequences.some((sequence) => endsWith(history, end, sequence)))
      return history.length - end;
  }
  return history.length;
}

/** Whether the first `end` tokens of the history end with the sequence. */
export function endsWith(history: Int32Array, end: number, sequence: Uint32Array): boolean {
  if (sequence.length > end) return false;
  for (let i = 0; i < sequence.length; i++)
    if (history[end - sequence.length + i] !== sequence[i]) return false;
  return true;
}

/** How a history relates to the tokens that a state was last synced to. */
const HISTORY_CHANGES = ['equal', 'continued', 'other'] as const;
export type HistoryChange = (typeof HISTORY_CHANGES)[number];

/** The tokens that a slot's state was last synced to, on the host: what `sync` compares with. */
export class SyncedTokens {
  #tokens: Int32Array;
  #length = 0;

  /** Room is made once, so that steps make nothing. */
  constructor(maxContext: number) {
    this.#tokens = new Int32Array(maxContext + 1);
  }

  get length(): number {
    return this.#length;
  }

  compare(history: Int32Array): HistoryChange {
    if (history.length < this.#length) return 'other';
    for (let i = 0; i < this.#length; i++) if (this.#tokens[i] !== history[i]) return 'other';
    return history.length === this.#length ? 'equal' : 'continued';
  }

  set(history: Int32Array): void {
    this.#tokens.set(history);
    this.#length = history.length;
  }

  /** A token that a retired step drew at a position. Later ones, if there were any, are gone. */
  put(position: number, id: number): void {
    if (position >= this.#tokens.length) return;
    this.#tokens[position] = id;
    this.#length = position + 1;
  }
}

/** Whether two specs ask for the same state; μ aside. */
export function equalSpecs(a: RowSpec, b: RowSpec): boolean {
  return (
    a.features === b.features &&
    a.repetitionWindow === b.repetitionWindow &&
    a.dryWindow === b.dryWindow &&
    equalArrays(a.biasIds, b.biasIds) &&
    equalArrays(a.biasValues, b.biasValues) &&
    equalArrays(a.withheld, b.withheld) &&
    equalLists(a.banned, b.banned) &&
    equalArrays(a.breakers.ids, b.breakers.ids) &&
    equalLists(a.breakers.sequences, b.breakers.sequences)
  );
}

function equalLists(a: readonly Uint32Array[], b: readonly Uint32Array[]): boolean {
  return a === b || (a.length === b.length && a.every((list, i) => equalArrays(list, b[i]!)));
}

function equalArrays(a: Uint32Array | Float32Array, b: Uint32Array | Float32Array): boolean {
  if (a === b) return true;
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}
