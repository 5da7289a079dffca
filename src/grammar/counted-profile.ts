/**
 * What tokens are to a rule that counts, at the beginning of an item: how many items each begins, and where the rule is over in it.
 * Found once for a tokenizer and a rule, whatever its bounds: what a place with bounds allows is picked from it.
 */

import { type Behind, behindEnds, type End } from './behind.js';
import { type GrammarTables, STATE } from './tables.js';
import type { TokenTrie } from './token-trie.js';

/** Token ids by a count that each has: those with `n` are from `at[n]` to `at[n + 1]`. */
export interface IdsByCount {
  readonly ids: Int32Array;
  readonly at: Int32Array;
}

export interface CountedProfile {
  /** Tokens that stay in the items, by how many they begin. */
  readonly inside: IdsByCount;
  /** Tokens that end with the rule, or in its tail, by the items before it. */
  readonly closing: IdsByCount;
  /** What tokens have behind the end of the rule; `counts`: the items before it. */
  readonly behind: Behind | null;
  /** By node of the tokens: what it is to the rule, as {@link NODE}. Below an end nothing is said. */
  readonly nodes: Uint8Array;
}

/** What a token's beginning is to a rule that counts. */
export const NODE = {
  NOWHERE: 0,
  /** Within an item. */
  WITHIN: 1,
  /** Items and nothing else. */
  ITEMS: 2,
  /** In the tail. */
  TAIL: 3,
  /** The rule is over. */
  END: 4,
} as const;

/**
 * Null where the rule is not simple: it calls others, or what has been read does not tell where an item ends. `trie` may be large: this
 * walks all of it that the items allow.
 */
export function profileOf(tables: GrammarTables, rule: number, trie: TokenTrie): CountedProfile | null {
  const automata = simpleAutomata(tables, rule);
  if (automata === null) return null;
  const { next, finals, stuck, item, tail, base } = automata;
  const { byte, depth, skip, id, same } = trie;
  const inside: number[] = [];
  const insideCounts: number[] = [];
  const closing: number[] = [];
  const closingCounts: number[] = [];
  const ends: End[] = [];
  const states = new Int32Array(trie.longest + 2);
  const counts = new Int32Array(trie.longest + 2);
  const nodes = new Uint8Array(new SharedArrayBuffer(byte.length));
  states[0] = item;
  for (let node = 0; node < byte.length; ) {
    const d = depth[node]!;
    const value = byte[node]!;
    let state = states[d]!;
    let count = counts[d]!;
    let to = next[(state - base) * 256 + value]!;
    if (to < 0 && state === item && count > 0) to = next[(tail - base) * 256 + value]!;
    if (to < 0) {
      node = skip[node]!;
      continue;
    }
    state = to;
    const isTail = state >= tail;
    if (!isTail && finals[state - base] === 1) {
      count++;
      state = item;
    }
    const isOver = isTail && finals[state - base] === 1;
    nodes[node] = isOver ? NODE.END : isTail ? NODE.TAIL : state === item ? NODE.ITEMS : NODE.WITHIN;
    const begun = isTail || state === item ? count : count + 1;
    for (let one = id[node]!; one >= 0; one = same[one]!) {
      (isTail ? closing : inside).push(one);
      (isTail ? closingCounts : insideCounts).push(begun);
    }
    if (isOver) {
      if (skip[node]! > node + 1) ends.push({ trie, node, count });
      if (stuck[state - base] === 1) {
        node = skip[node]!;
        continue;
      }
    }
    states[d + 1] = state;
    counts[d + 1] = count;
    node++;
  }
  return {
    inside: byCount(inside, insideCounts),
    closing: byCount(closing, closingCounts),
    behind: ends.length === 0 ? null : behindEnds(ends),
    nodes,
  };
}

interface SimpleAutomata {
  /** `[states][256]` from `base` on: where a byte leads, −1 for nowhere. */
  readonly next: Int32Array;
  /** By state from `base` on: whether the item or the tail may be over, and whether nothing leads out. */
  readonly finals: Uint8Array;
  readonly stuck: Uint8Array;
  readonly item: number;
  readonly tail: number;
  readonly base: number;
}

function simpleAutomata(tables: GrammarTables, rule: number): SimpleAutomata | null {
  const { byteAt, byteLow, byteHigh, byteTo, callAt, tokenAt, flags, ruleOf } = tables;
  const item = tables.item[rule]!;
  const tail = tables.tail[rule]!;
  let end = tail;
  while (end < ruleOf.length && ruleOf[end] === rule) end++;
  const size = end - item;
  const next = new Int32Array(size * 256).fill(-1);
  const finals = new Uint8Array(size);
  const stuck = new Uint8Array(size);
  for (let state = item; state < end; state++) {
    if (callAt[state] !== callAt[state + 1] || tokenAt[state] !== tokenAt[state + 1]) return null;
    const at = state - item;
    stuck[at] = byteAt[state] === byteAt[state + 1] ? 1 : 0;
    finals[at] = (flags[state]! & (STATE.ITEM_END | STATE.FINAL)) !== 0 ? 1 : 0;
    // An item that may go on behind its end, or begin again without one.
    if (state < tail && finals[at] === 1 && stuck[at] === 0) return null;
    for (let e = byteAt[state]!; e < byteAt[state + 1]!; e++) {
      if (byteTo[e] === item) return null;
      next.fill(byteTo[e]!, at * 256 + byteLow[e]!, at * 256 + byteHigh[e]! + 1);
    }
  }
  if (finals[0] === 1 || finals[tail - item] === 1) return null;
  for (let value = 0; value < 256; value++)
    if (next[value]! >= 0 && next[(tail - item) * 256 + value]! >= 0) return null;
  return { next, finals, stuck, item, tail, base: item };
}

function byCount(ids: readonly number[], counts: readonly number[]): IdsByCount {
  const most = counts.reduce((a, b) => Math.max(a, b), 0);
  const at = new Int32Array(new SharedArrayBuffer(4 * (most + 2)));
  for (const count of counts) at[count + 1]!++;
  for (let n = 0; n <= most; n++) at[n + 1]! += at[n]!;
  const sorted = new Int32Array(new SharedArrayBuffer(4 * ids.length));
  const places = Int32Array.from(at);
  ids.forEach((id, i) => {
    sorted[places[counts[i]!]!++] = id;
  });
  return { ids: sorted, at };
}

/** Those with `low` to `high`, both included. */
export function idsWithin({ ids, at }: IdsByCount, low: number, high: number): Int32Array {
  const last = at.length - 1;
  return ids.subarray(at[Math.min(low, last)]!, at[Math.min(high + 1, last)]!);
}
