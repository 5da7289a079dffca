/**
 * Which tokens may come next, as bits by id. What a place in a rule allows by itself is found once for all answers and, where the rule
 * calls no others, for all grammars that have it; of tokens that go beyond the end of the rule only what is behind that end is looked
 * at again.
 */

import { ByteCache } from './byte-cache.js';
import { type Matcher, NOWHERE, type ParserState, type Place } from './matcher.js';
import { type GrammarTables, NO_END } from './tables.js';
import type { TokenTrie } from './token-trie.js';

/** What a place in a rule allows, whatever is above it. */
interface Local {
  /** Ids; null where they are so many that bits are smaller. */
  readonly ids: Int32Array | null;
  readonly bits: Uint32Array | null;
  /** Nodes of the trie at which the rule may be over and below which there are more tokens. */
  readonly ends: Int32Array;
}

/** Bytes of masks that are kept. */
const MASK_BYTES = 64 * 2 ** 20;
const LOCAL_BYTES = 64 * 2 ** 20;

export class GrammarMasks {
  readonly #trie: TokenTrie;
  readonly #endIds: readonly number[];
  readonly #words: number;
  readonly #vocabSize: number;
  readonly #masks = new ByteCache<ParserState, Uint32Array>(MASK_BYTES);
  readonly #locals = new ByteCache<string, Local>(LOCAL_BYTES);
  /** By depth: the state that the bytes so far lead to, and where its bytes lead. */
  readonly #path: Int32Array;
  readonly #nexts: Int32Array[] = [];
  readonly #found: { readonly ids: number[]; readonly ends: number[] } = { ids: [], ends: [] };

  /** `endIds`: those that end an answer. `vocabSize`: ids that the model has. */
  constructor(trie: TokenTrie, endIds: readonly number[], vocabSize: number) {
    this.#trie = trie;
    this.#endIds = endIds.filter((id) => id < vocabSize);
    this.#words = Math.ceil(vocabSize / 32);
    this.#vocabSize = vocabSize;
    this.#path = new Int32Array(trie.longest + 2);
  }

  /** `[ceil(vocab / 32)]`: a set bit allows its id. It is kept: do not write to it. */
  mask(matcher: Matcher, state: ParserState): Uint32Array {
    const known = this.#masks.get(state);
    if (known !== undefined) return known;
    matcher.makeRoom();
    const bits = new Uint32Array(this.#words);
    const { tokenAt, tokenId } = matcher.tables;
    for (const place of state.places) {
      const local = this.#local(matcher, place);
      if (local.bits !== null) for (let i = 0; i < bits.length; i++) bits[i]! |= local.bits[i]!;
      if (local.ids !== null) this.#set(bits, local.ids);
      if (local.ends.length > 0) this.#beyond(matcher, place, local.ends, bits);
      for (let e = tokenAt[place.state]!; e < tokenAt[place.state + 1]!; e++) this.#set(bits, [tokenId[e]!]);
    }
    if (state.done) this.#set(bits, this.#endIds);
    this.#masks.set(state, bits, bits.byteLength + STATE_BYTES);
    return bits;
  }

  #set(bits: Uint32Array, ids: Iterable<number>): void {
    for (const id of ids) if (id < this.#vocabSize) bits[id >> 5]! |= 1 << (id & 31);
  }

  #local(matcher: Matcher, place: Place): Local {
    const key = this.#keyOf(matcher.tables, place);
    const known = this.#locals.get(key);
    if (known !== undefined) return known;
    const { ids, ends } = this.#found;
    ids.length = 0;
    ends.length = 0;
    const { byte } = this.#trie;
    this.#walk(matcher, matcher.within(place), 0, byte.length, 0, ends);
    const many = ids.length > this.#words;
    const bits = many ? new Uint32Array(this.#words) : null;
    if (bits !== null) this.#set(bits, ids);
    const local = { ids: many ? null : Int32Array.from(ids), bits, ends: Int32Array.from(ends) };
    this.#locals.set(key, local, 4 * (Math.min(ids.length, this.#words) + ends.length) + 2 * key.length);
    return local;
  }

  /** The same for places that allow the same by themselves. */
  #keyOf({ key, ruleKeys, ruleOf, start, min, max }: GrammarTables, { state, count }: Place): string {
    const rule = ruleOf[state]!;
    const shared = ruleKeys[rule]!;
    const name = shared === '' ? `${key}/${rule}` : shared;
    const most = max[rule]!;
    const at = state - start[rule]!;
    if (most < 0) return `${name}:${at}`;
    // A token has no more items than bytes: what is further away does not matter.
    const far = this.#trie.longest + 1;
    const missing = Math.max(0, Math.min(min[rule]! - count, far));
    const left = most === NO_END ? far : Math.min(most - count, far);
    return `${name}:${at}:${missing}:${left}`;
  }

  /** What may follow where a rule is over in the middle of a token. */
  #beyond(matcher: Matcher, place: Place, ends: Int32Array, bits: Uint32Array): void {
    const after = matcher.after(place);
    if (after === null) return;
    const { skip, depth } = this.#trie;
    const { ids } = this.#found;
    ids.length = 0;
    for (const node of ends) this.#walk(matcher, after, node + 1, skip[node]!, depth[node]! + 1, null);
    this.#set(bits, ids);
  }

  /** Adds ids of the nodes that can be reached, and nodes where the rule that is watched may be over. */
  #walk(
    matcher: Matcher,
    state: ParserState,
    from: number,
    to: number,
    base: number,
    ends: number[] | null,
  ): void {
    const { byte, depth, skip, id, same } = this.#trie;
    const { states } = matcher;
    const path = this.#path;
    const nexts = this.#nexts;
    const { ids } = this.#found;
    path[base] = state.index;
    nexts[base] = state.next;
    for (let node = from; node < to; ) {
      const d = depth[node]!;
      const value = byte[node]!;
      let next = nexts[d]![value]!;
      if (next === 0) next = matcher.stepIndex(path[d]!, value);
      if (next === NOWHERE) {
        node = skip[node]!;
        continue;
      }
      for (let one = id[node]!; one >= 0; one = same[one]!) ids.push(one);
      const reached = states[next]!;
      if (ends !== null && reached.left && skip[node]! > node + 1) ends.push(node);
      if (reached.places.length === 0) {
        node = skip[node]!;
        continue;
      }
      path[d + 1] = next;
      nexts[d + 1] = reached.next;
      node++;
    }
  }
}

/** What a mask keeps alive beside itself, about. */
const STATE_BYTES = 2048;
