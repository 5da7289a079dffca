/** Walks a tree of tokens with a matcher: which ids may come from a state, and where the rule that is watched may be over. */

import type { End } from './behind.js';
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
      if (isWhole && behind - node > WORTH && takesPlain(matcher, next, this.#tokens.strings.key)) {
        const { plain, plainAt, rest, restAt } = this.#tokens;
        this.#addAll(plain.subarray(plainAt[node]!, plainAt[behind]!));
        const reached = matcher.states[next]!;
        this.walk(rest, matcher, reached, ends, restAt[node]!, restAt[behind]!, d + 1);
        table = matcher.table;
        marks = matcher.marks;
        node = behind;
        continue;
      }
      path[d + 1] = next;
    }
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

/** Nodes below one for which it is asked whether they need be walked. */
const WORTH = 16;

/** Whether any plain token may come. `key`: of the rule of strings. */
export function takesPlain(matcher: Matcher, index: number, key: string): boolean {
  const { marks } = matcher;
  if ((marks[index]! & MARK.PLAIN_ASKED) === 0) {
    const found = isPlain(matcher, matcher.states[index]!, key);
    marks[index]! |= MARK.PLAIN_ASKED | (found ? MARK.PLAIN : 0);
  }
  return (marks[index]! & MARK.PLAIN) !== 0;
}

function isPlain({ tables }: Matcher, { places }: ParserState, key: string): boolean {
  const { plain, ruleOf, loopKeys, item, max } = tables;
  for (const { state, count } of places) {
    if (plain[state]! >= PLAIN_LENGTH) return true;
    const rule = ruleOf[state]!;
    if (max[rule]! < 0 || state !== item[rule]! || loopKeys[rule] !== key) continue;
    if (max[rule] === NO_END || max[rule]! - count >= PLAIN_LENGTH) return true;
  }
  return false;
}
