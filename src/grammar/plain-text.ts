/**
 * How many plain characters a state takes, whatever they are: in the inside of strings, names and most patterns any do. Tokens of that
 * many need not be walked. Plain are all characters that stand for themselves in a JSON string.
 */

import type { Budget } from './limits.js';
import type { GrammarTables } from './tables.js';

/** Any number of them. */
export const PLAIN_NO_END = 255;

type Bytes = readonly [low: number, high: number];

const ASCII: readonly Bytes[] = [
  [0x20, 0x21],
  [0x23, 0x5b],
  [0x5d, 0x7f],
];
const CONTINUATION: Bytes = [0x80, 0xbf];
/** First bytes of longer characters, and what may come behind them. */
const LONGER: readonly (readonly Bytes[])[] = [
  [[0xc2, 0xdf], CONTINUATION],
  [[0xe0, 0xe0], [0xa0, 0xbf], CONTINUATION],
  [[0xe1, 0xec], CONTINUATION, CONTINUATION],
  [[0xed, 0xed], [0x80, 0x9f], CONTINUATION],
  [[0xee, 0xef], CONTINUATION, CONTINUATION],
  [[0xf0, 0xf0], [0x90, 0xbf], CONTINUATION, CONTINUATION],
  [[0xf1, 0xf3], CONTINUATION, CONTINUATION, CONTINUATION],
  [[0xf4, 0xf4], [0x80, 0x8f], CONTINUATION, CONTINUATION],
];

/** How many characters of a text are plain; −1 where something else is in it, or half a character. */
export function plainLength(data: Uint8Array, from: number, to: number): number {
  let count = 0;
  for (let i = from; i < to; count++) {
    const byte = data[i]!;
    if (byte < 0x80) {
      if (byte < 0x20 || byte === 0x22 || byte === 0x5c) return -1;
      i++;
      continue;
    }
    const rest = LONGER.find(([first]) => byte >= first![0] && byte <= first![1]);
    if (rest === undefined || i + rest.length > to) return -1;
    for (let k = 1; k < rest.length; k++) {
      const [low, high] = rest[k]!;
      if (data[i + k]! < low || data[i + k]! > high) return -1;
    }
    i += rest.length;
  }
  return count;
}

/** What may come behind the first byte of a character of several; null for a byte that begins none. */
export const restOfCharacter = (first: number): readonly Bytes[] | null =>
  LONGER_RESTS.find(({ low, high }) => first >= low && first <= high)?.rest ?? null;

const LONGER_RESTS = LONGER.map(([first, ...rest]) => ({ low: first![0], high: first![1], rest }));

/** Bytes that come one behind the other. Chains of the same bytes have the same number. */
interface Rest {
  readonly bytes: Bytes;
  readonly rest: Rest | null;
  readonly number: number;
}

const numbers = new Map<string, number>();
const chainOf = (all: readonly Bytes[]): Rest | null => {
  const [bytes, ...others] = all;
  if (bytes === undefined) return null;
  const key = all.join(';');
  const number = numbers.get(key) ?? numbers.size;
  numbers.set(key, number);
  return { bytes, rest: chainOf(others), number };
};
const LONGER_CHAINS = LONGER.map(chainOf);
const RESTS = numbers.size;

type Edges = Pick<GrammarTables, 'byteAt' | 'byteLow' | 'byteHigh' | 'byteTo'>;

/** By state: how many plain characters it takes, up to {@link PLAIN_NO_END}. */
export function plainDepths(edges: Edges, budget: Budget): Uint8Array {
  const size = edges.byteAt.length - 1;
  const before: number[][] = [];
  const depths = new Uint8Array(new SharedArrayBuffer(size)).fill(PLAIN_NO_END);
  const known = new Map<number, readonly number[] | null>();
  const fails: number[] = [];
  for (let state = 0; state < size; state++) {
    const targets = afterCharacter(edges, state, known);
    if (targets === null) {
      depths[state] = 0;
      fails.push(state);
    } else
      for (const target of targets) {
        before[target] ??= [];
        before[target].push(state);
      }
    budget.spend(targets === null ? 1 : targets.length);
  }
  // As far as the nearest state that does not take all of them.
  for (const state of fails) {
    const depth = Math.min(depths[state]! + 1, PLAIN_NO_END - 1);
    for (const from of before[state] ?? []) {
      if (depths[from] !== PLAIN_NO_END) continue;
      depths[from] = depth;
      fails.push(from);
    }
  }
  return depths;
}

/** States that plain characters lead to; null where one of them leads nowhere. */
function afterCharacter(
  edges: Edges,
  state: number,
  known: Map<number, readonly number[] | null>,
): readonly number[] | null {
  const targets = new Set<number>();
  for (const range of ASCII) {
    const to = covered(edges, state, range);
    if (to === null) return null;
    for (const target of to) targets.add(target);
  }
  const follow = (from: number, rest: Rest | null): readonly number[] | null => {
    if (rest === null) return [from];
    const key = from * RESTS + rest.number;
    const done = known.get(key);
    if (done !== undefined) return done;
    const to = covered(edges, from, rest.bytes);
    const found = new Set<number>();
    let all = to !== null;
    for (const next of to ?? []) {
      const further = follow(next, rest.rest);
      if (further === null) {
        all = false;
        break;
      }
      for (const target of further) found.add(target);
    }
    const result = all ? [...found] : null;
    known.set(key, result);
    return result;
  };
  for (const rest of LONGER_CHAINS) {
    const to = follow(state, rest);
    if (to === null) return null;
    for (const target of to) targets.add(target);
  }
  return [...targets];
}

/** Where all bytes of a range lead; null where one leads nowhere. */
function covered(
  { byteAt, byteLow, byteHigh, byteTo }: Edges,
  state: number,
  [low, high]: Bytes,
): number[] | null {
  const to: number[] = [];
  let at = low;
  for (let e = byteAt[state]!; e < byteAt[state + 1]! && at <= high; e++) {
    if (byteHigh[e]! < at) continue;
    if (byteLow[e]! > at) return null;
    to.push(byteTo[e]!);
    at = byteHigh[e]! + 1;
  }
  return at > high ? to : null;
}
