/**
 * Which tokens may come next, as bits by id. What a place in a rule allows by itself is found once for all answers and, where the rule
 * calls no others, for all grammars that have it; of tokens that go beyond the end of the rule only what is behind that end is looked
 * at again.
 */

import { ByteCache } from './byte-cache.js';
import { type Matcher, NOWHERE, type ParserState, type Place } from './matcher.js';
import { type GrammarTables, NO_END } from './tables.js';
import { buildTokenTrie, type TokenTrie } from './token-trie.js';

/** What a place in a rule allows, whatever is above it. */
interface Local {
  /** Ids; null where they are so many that bits are smaller. */
  readonly ids: Int32Array | null;
  readonly bits: Uint32Array | null;
  /** What tokens have behind an end of the rule; null where none has anything. */
  readonly behind: Behind | null;
}

/** The ends of tokens as a tree of their own: many tokens end alike, and are looked at once. */
interface Behind {
  readonly trie: TokenTrie;
  /** By id in that tree: the token. */
  readonly tokens: Int32Array;
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
      if (local.behind !== null) this.#beyond(matcher, place, local.behind, bits);
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
    this.#walk(this.#trie, matcher, matcher.within(place), ends);
    const many = ids.length > this.#words;
    const bits = many ? new Uint32Array(this.#words) : null;
    if (bits !== null) this.#set(bits, ids);
    const behind = ends.length === 0 ? null : behindEnds(this.#trie, ends);
    const local = { ids: many ? null : Int32Array.from(ids), bits, behind };
    const bytes = behind === null ? 0 : NODE_BYTES * behind.trie.byte.length + 8 * behind.tokens.length;
    this.#locals.set(key, local, 4 * Math.min(ids.length, this.#words) + bytes + 2 * key.length);
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
  #beyond(matcher: Matcher, place: Place, { trie, tokens }: Behind, bits: Uint32Array): void {
    const after = matcher.after(place);
    if (after === null) return;
    const { ids } = this.#found;
    ids.length = 0;
    this.#walk(trie, matcher, after, null);
    for (const id of ids) this.#set(bits, [tokens[id]!]);
  }

  /** Adds ids of the nodes that can be reached, and nodes where the rule that is watched may be over. */
  #walk(trie: TokenTrie, matcher: Matcher, state: ParserState, ends: number[] | null): void {
    const { byte, depth, skip, id, same } = trie;
    const to = byte.length;
    const { states } = matcher;
    const path = this.#path;
    const nexts = this.#nexts;
    const { ids } = this.#found;
    path[0] = state.index;
    nexts[0] = state.next;
    for (let node = 0; node < to; ) {
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
/** Of a tree, about. */
const NODE_BYTES = 16;

function behindEnds({ byte, depth, skip, id, same }: TokenTrie, ends: readonly number[]): Behind {
  const data: number[] = [];
  const offsets = [0];
  const tokens: number[] = [];
  const path: number[] = [];
  for (const end of ends) {
    const base = depth[end]! + 1;
    for (let node = end + 1; node < skip[end]!; node++) {
      const length = depth[node]! - base + 1;
      path[length - 1] = byte[node]!;
      for (let one = id[node]!; one >= 0; one = same[one]!) {
        for (let i = 0; i < length; i++) data.push(path[i]!);
        offsets.push(data.length);
        tokens.push(one);
      }
    }
  }
  const spelling = {
    data: Uint8Array.from(data),
    offsets: Uint32Array.from(offsets),
    usable: () => true,
    size: tokens.length,
  };
  return { trie: buildTokenTrie(spelling), tokens: Int32Array.from(tokens) };
}
