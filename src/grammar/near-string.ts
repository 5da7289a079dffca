/**
 * Places in a string of which only a few texts may not be: names that stand elsewhere. They allow what any string does, but for those.
 * Looked at is only what may yet become one of them.
 */

import type { End } from './behind.js';
import { NODE } from './counted-profile.js';
import { MARK, type Matcher, NOWHERE, type ParserState, type Place } from './matcher.js';
import { restOfCharacter } from './plain-text.js';
import { type GrammarTables, NO_END, STATE } from './tables.js';
import type { TokenSet } from './token-set.js';

/** How the tokens that may come differ from those of any string. */
export interface Difference {
  /** Tokens that may not come, though any string has them. */
  readonly except: ReadonlySet<number>;
  /** Tokens that may, though it has not: they close the string before its first character. */
  readonly closing: readonly number[];
  /** Nodes at which it is over so. */
  readonly below: readonly End[];
}

/** Tokens that a string may not have, though another may. */
const MAX_EXCEPT = 4096;

export class NearStrings {
  readonly #tokens: TokenSet;
  readonly #maxBelow: number;
  /** By depth: the state that the bytes so far lead to. */
  readonly #path: Int32Array;
  readonly #withRest = new WeakMap<GrammarTables, Uint8Array>();

  /** `maxBelow`: nodes of which a difference may speak. */
  constructor(tokens: TokenSet, maxBelow: number) {
    this.#tokens = tokens;
    this.#maxBelow = maxBelow;
    this.#path = new Int32Array(tokens.trie.longest + 2);
  }

  /** Null where the place is no such thing. */
  differenceAt(matcher: Matcher, place: Place): Difference | null {
    if (this.#restRules(matcher.tables)[matcher.tables.ruleOf[place.state]!] !== 1) return null;
    const { trie, strings } = this.#tokens;
    const { byte, depth, skip, id, same } = trie;
    const { nodes } = strings.profile;
    const path = this.#path;
    path[0] = matcher.within(place).index;
    const except = new Set<number>();
    const below: End[] = [];
    const closing: number[] = [];
    let some = false;
    for (let node = 0; node < byte.length; ) {
      const d = depth[node]!;
      const value = byte[node]!;
      let next = matcher.table[(path[d]! << 8) | value]!;
      if (next === 0) next = matcher.stepIndex(path[d]!, value);
      const kind = nodes[node]!;
      const behind = skip[node]!;
      if (next === NOWHERE) {
        if (kind !== NODE.NOWHERE && behind - node > MAX_EXCEPT) return null;
        if (kind !== NODE.NOWHERE)
          for (let inner = node; inner < behind; inner++)
            for (let one = id[inner]!; one >= 0; one = same[one]!) except.add(one);
        if (except.size > MAX_EXCEPT) return null;
        node = behind;
        continue;
      }
      if (this.#isAny(matcher, next)) {
        if (kind !== NODE.ITEMS) return null;
        some = true;
        node = behind;
        continue;
      }
      const mark = matcher.marks[next]!;
      if ((mark & MARK.LEFT) !== 0 && (mark & MARK.STUCK) !== 0) {
        if (kind === NODE.NOWHERE && below.length < this.#maxBelow) {
          // Over before the first character: the rest of it is looked at where it is.
          below.push({ trie, node, count: 0 });
          for (let one = id[node]!; one >= 0; one = same[one]!) closing.push(one);
        } else if (kind !== NODE.END) return null;
        node = behind;
        continue;
      }
      if ((mark & MARK.LEFT) !== 0 || !isWithin(kind)) return null;
      if (kind === NODE.WITHIN && value >= 0x80 && this.#isBegun(matcher, next, value)) {
        // Any character that begins so, and any string behind it.
        some = true;
        node = behind;
        continue;
      }
      path[d + 1] = next;
      node++;
    }
    return some ? { except, closing, below } : null;
  }

  /** By rule: whether it goes on as any string somewhere. */
  #restRules(tables: GrammarTables): Uint8Array {
    let rules = this.#withRest.get(tables);
    if (rules === undefined) {
      const { start, ruleOf, loopKeys, flags, callAt, callRule } = tables;
      const { key } = this.#tokens.strings;
      rules = new Uint8Array(start.length);
      // Behind the opening quote, which is no part of it.
      const isRest = (rule: number): boolean =>
        loopKeys[rule] === key && (flags[start[rule]!]! & STATE.HEAD_END) !== 0;
      for (let state = 0; state < ruleOf.length; state++)
        for (let e = callAt[state]!; e < callAt[state + 1]!; e++)
          if (isRest(callRule[e]!)) rules[ruleOf[state]!] = 1;
      this.#withRest.set(tables, rules);
    }
    return rules;
  }

  /** Whether any string may follow, and its closing quote, and nothing else. */
  #isAny(matcher: Matcher, index: number): boolean {
    const { marks } = matcher;
    if ((marks[index]! & MARK.ANY_ASKED) === 0) {
      const found = isAnyString(matcher.tables, matcher.states[index]!, this.#tokens.strings.key);
      marks[index]! |= MARK.ANY_ASKED | (found ? MARK.ANY : 0);
    }
    return (marks[index]! & MARK.ANY) !== 0;
  }

  /** Behind the first byte of a longer character: whether all its other bytes may come and nothing else, and any string behind them. */
  #isBegun(matcher: Matcher, index: number, first: number): boolean {
    const rest = restOfCharacter(first);
    return rest !== null && this.#leadsToAny(matcher, index, rest, 0);
  }

  #leadsToAny(
    matcher: Matcher,
    index: number,
    rest: readonly (readonly [low: number, high: number])[],
    at: number,
  ): boolean {
    if (at === rest.length) return this.#isAny(matcher, index);
    const { places } = matcher.states[index]!;
    const { byteAt, byteLow, byteHigh, callAt, tokenAt } = matcher.tables;
    const [place] = places;
    if (place === undefined || places.length > 1) return false;
    const { state } = place;
    if (callAt[state] !== callAt[state + 1] || tokenAt[state] !== tokenAt[state + 1]) return false;
    const [low, high] = rest[at]!;
    let expected = low;
    for (let e = byteAt[state]!; e < byteAt[state + 1]!; e++) {
      if (byteLow[e] !== expected) return false;
      const known = matcher.table[(index << 8) | expected]!;
      const next = known === 0 ? matcher.stepIndex(index, expected) : known;
      if (next === NOWHERE || !this.#leadsToAny(matcher, next, rest, at + 1)) return false;
      expected = byteHigh[e]! + 1;
    }
    return expected === high + 1;
  }
}

/** Whether a string may begin so, and is not over. */
const isWithin = (kind: number): boolean => kind === NODE.ITEMS || kind === NODE.WITHIN;

function isAnyString(
  { ruleOf, loopKeys, item, tail, min, max }: GrammarTables,
  { places, left }: ParserState,
  key: string,
): boolean {
  const [place] = places;
  if (place === undefined || places.length > 2 || left) return false;
  const rule = ruleOf[place.state]!;
  if (loopKeys[rule] !== key || max[rule] !== NO_END || place.count < min[rule]!) return false;
  // Between two characters: one more, or the tail.
  const isEdge = (state: number): boolean => state === item[rule] || state === tail[rule];
  return places.some(({ state }) => state === item[rule]) && places.every(({ state }) => isEdge(state));
}
