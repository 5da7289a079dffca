/** Walks a tree of tokens with a matcher: which ids may come from a state, and where the rule that is watched may be over. */

import type { End } from './behind.js';
import { kindsAround } from './byte-classes.js';
import { MARK, type Matcher, NOWHERE, type ParserState } from './matcher.js';
import { NO_END } from './tables.js';
import { PLAIN_LENGTH, type TokenSet } from './token-set.js';
import type { TokenTrie } from './token-trie.js';

export class TrieWalk {
  readonly #tokens: TokenSet;
  /** By depth: the state that the bytes so far lead to. */
  readonly #path: Int32Array;
  #ids: Int32Array;
  #count = 0;

  constructor(tokens: TokenSet, vocabSize: number) {
    this.#tokens = tokens;
    this.#path = new Int32Array(tokens.trie.longest + 2);
    this.#ids = new Int32Array(vocabSize);
  }

  /** How many ids have been found since {@link clear}. */
  get count(): number {
    return this.#count;
  }

  /** They stand until the next walk. */
  get ids(): Int32Array {
    return this.#ids.subarray(0, this.#count);
  }

  clear(): void {
    this.#count = 0;
  }

  /**
   * Adds ids of the nodes from `from` to `to` that can be reached, and to `ends` nodes at which the rule that is watched may be over.
   * `base`: how deep it begins, in `state`.
   */
  walk(
    trie: TokenTrie,
    matcher: Matcher,
    state: ParserState,
    ends: End[] | null,
    from = 0,
    to = trie.byte.length,
    base = 0,
  ): void {
    const { byte, depth, skip, id, same } = trie;
    const path = this.#path;
    const isWhole = trie === this.#tokens.trie;
    let { table, marks } = matcher;
    path[base] = state.index;
    for (let node = from; node < to; ) {
      const d = depth[node]!;
      const at = path[d]!;
      if (
        isWhole &&
        byte[node]! >= FIRST_LONG &&
        skip[node]! - node > WORTH &&
        this.#skipLong(matcher, at, node, ends)
      ) {
        table = matcher.table;
        marks = matcher.marks;
        node = skip[node]!;
        continue;
      }
      let next = table[(at << 8) | byte[node]!]!;
      if (next === 0) {
        next = matcher.stepIndex(at, byte[node]!);
        table = matcher.table;
        marks = matcher.marks;
      }
      const behind = skip[node]!;
      if (next === NOWHERE) {
        node = behind;
        continue;
      }
      for (let one = id[node]!; one >= 0; one = same[one]!) this.#add(one);
      if (behind === ++node) continue;
      const mark = marks[next]!;
      if (ends !== null && (mark & MARK.LEFT) !== 0) ends.push({ trie, node: node - 1, count: 0 });
      if ((mark & MARK.STUCK) !== 0) {
        node = behind;
        continue;
      }
      if (isWhole && behind - node > WORTH && this.#skip(matcher, next, node, ends)) {
        table = matcher.table;
        marks = matcher.marks;
        node = behind;
        continue;
      }
      table = matcher.table;
      marks = matcher.marks;
      path[d + 1] = next;
    }
  }

  /** The same for a node at which a character of several bytes begins, and all that is below it. */
  #skipLong(matcher: Matcher, at: number, node: number, ends: End[] | null): boolean {
    const { trie, plain, plainAt, rest, restAt, below } = this.#tokens;
    if ((below.classes[node]! & ~roundsOf(matcher, at)) !== 0) return false;
    const behind = trie.skip[node]!;
    this.#addAll(plain.subarray(plainAt[node]!, plainAt[behind]!));
    const [from, to] = [restAt[node]!, restAt[behind]!];
    if (from < to) this.walk(rest, matcher, matcher.states[at]!, ends, from, to, trie.depth[node]!);
    return true;
  }

  /** Adds what is below the node before `node`, which led to `next`, if that need not be walked; false if it has to be. */
  #skip(matcher: Matcher, next: number, node: number, ends: End[] | null): boolean {
    const { trie, plain, plainAt, rest, restAt, below, strings } = this.#tokens;
    const behind = trie.skip[node - 1]!;
    const [from, to] = [restAt[node]!, restAt[behind]!];
    const longest = Math.min(PLAIN_LENGTH, below.bytes[node - 1]!);
    const isPlain = plainDepth(matcher, next, strings.key) >= longest;
    // Or they are of characters that all lead to where it is already.
    if (!isPlain && (below.classes[node - 1]! & ~roundsOf(matcher, next)) !== 0) return false;
    this.#addAll(plain.subarray(plainAt[node]!, plainAt[behind]!));
    if (from < to) this.walk(rest, matcher, matcher.states[next]!, ends, from, to, trie.depth[node - 1]! + 1);
    return true;
  }

  #add(id: number): void {
    if (this.#count === this.#ids.length) this.#grow(1);
    this.#ids[this.#count++] = id;
  }

  #addAll(ids: Int32Array): void {
    if (this.#count + ids.length > this.#ids.length) this.#grow(ids.length);
    this.#ids.set(ids, this.#count);
    this.#count += ids.length;
  }

  #grow(by: number): void {
    const larger = new Int32Array(2 * this.#ids.length + by);
    larger.set(this.#ids);
    this.#ids = larger;
  }
}

/** Kinds of characters that lead from a state to itself. */
function roundsOf(matcher: Matcher, index: number): number {
  const known = matcher.rounds[index]!;
  if (known >= 0) return known;
  const classes = kindsAround(index, (state, byte) => {
    const known = matcher.table[(state << 8) | byte]!;
    const to = known === 0 ? matcher.stepIndex(state, byte) : known;
    return to === NOWHERE ? -1 : to;
  });
  matcher.rounds[index] = classes;
  return classes;
}

/** From this byte on characters of several bytes begin. */
const FIRST_LONG = 0xc2;
/** Nodes below one for which it is asked whether they need be walked. */
const WORTH = 16;

/** Whether any plain token may come. `key`: of the rule of strings. */
export const takesPlain = (matcher: Matcher, index: number, key: string): boolean =>
  plainDepth(matcher, index, key) >= PLAIN_LENGTH;

/** How many plain characters may come, whatever they are; at most `PLAIN_LENGTH`. */
function plainDepth(matcher: Matcher, index: number, key: string): number {
  const known = matcher.plain[index]!;
  if (known >= 0) return known;
  const { plain, ruleOf, loopKeys, item, max } = matcher.tables;
  let most = 0;
  for (const { state, count } of matcher.states[index]!.places) {
    most = Math.max(most, plain[state]!);
    const rule = ruleOf[state]!;
    if (max[rule]! < 0 || state !== item[rule]! || loopKeys[rule] !== key) continue;
    most = Math.max(most, max[rule] === NO_END ? PLAIN_LENGTH : max[rule]! - count);
  }
  matcher.plain[index] = Math.min(most, PLAIN_LENGTH);
  return matcher.plain[index]!;
}
