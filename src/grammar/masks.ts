/**
 * Which tokens may come next, as bits by id. What a place in a rule allows by itself is found once for all answers and, where the rule
 * calls no others, for all grammars that have it; of tokens that go beyond the end of the rule only what is behind that end is looked
 * at again.
 */

import { type Behind, behindEnds, type End } from './behind.js';
import { ByteCache } from './byte-cache.js';
import { type CountedProfile, type IdsByCount, idsWithin, NODE, profileOf } from './counted-profile.js';
import { type Matcher, NOWHERE, type ParserState, type Place } from './matcher.js';
import { type GrammarTables, NO_END, STATE } from './tables.js';
import { PLAIN_LENGTH, type TokenSet } from './token-set.js';
import type { TokenTrie } from './token-trie.js';

/** What a place in a rule allows, whatever is above it. */
interface Local {
  /** Ids; null where they are so many that bits are smaller. */
  readonly ids: Int32Array | null;
  readonly bits: Uint32Array | null;
  /** What tokens have behind an end of the rule, of those whose counts are within bounds; null where none has anything. */
  readonly behind: Behind | null;
  /** Nodes at which the rule may be over and below which there is much: walked where they are. */
  readonly below: readonly End[];
  readonly low: number;
  readonly high: number;
  /** Of those that have something behind an end: tokens that may not come after all. */
  readonly except: ReadonlySet<number> | null;
}

/** Bytes of masks that are kept. */
const MASK_BYTES = 64 * 2 ** 20;
const LOCAL_BYTES = 64 * 2 ** 20;
const PROFILE_BYTES = 16 * 2 ** 20;
const BITS_BYTES = 4 * 2 ** 20;

export class GrammarMasks {
  readonly #tokens: TokenSet;
  readonly #trie: TokenTrie;
  readonly #endIds: readonly number[];
  readonly #words: number;
  readonly #vocabSize: number;
  readonly #masks = new ByteCache<ParserState, Uint32Array>(MASK_BYTES);
  readonly #locals = new ByteCache<string, Local>(LOCAL_BYTES);
  /** By depth: the state that the bytes so far lead to, and where its bytes lead. */
  readonly #path: Int32Array;
  readonly #nexts: Int32Array[] = [];
  /** What a walk has found. */
  readonly #ends: End[] = [];
  #ids: Int32Array;
  #count = 0;
  #plainBits: Uint32Array | null = null;
  readonly #withRest = new WeakMap<GrammarTables, Uint8Array>();
  /** By key of a rule that counts: what tokens are to it. */
  readonly #profiles: ByteCache<string, { readonly profile: CountedProfile | null }>;
  /** By what it is of, and how many characters or items: bits of the tokens that have no more. */
  readonly #upTo = new ByteCache<string, Uint32Array>(BITS_BYTES);

  /** `endIds`: those that end an answer. `vocabSize`: ids that the model has. */
  constructor(tokens: TokenSet, endIds: readonly number[], vocabSize: number) {
    this.#tokens = tokens;
    this.#trie = tokens.trie;
    this.#endIds = endIds.filter((id) => id < vocabSize);
    this.#words = Math.ceil(vocabSize / 32);
    this.#vocabSize = vocabSize;
    this.#path = new Int32Array(tokens.trie.longest + 2);
    this.#ids = new Int32Array(vocabSize);
    this.#profiles = new ByteCache(PROFILE_BYTES);
    const { key, profile } = tokens.strings;
    this.#profiles.set(key, { profile }, bytesOfProfile(profile));
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
      if (local.behind !== null || local.below.length > 0) this.#beyond(matcher, place, local, bits);
      for (let e = tokenAt[place.state]!; e < tokenAt[place.state + 1]!; e++) this.#set(bits, [tokenId[e]!]);
    }
    if (state.done) this.#set(bits, this.#endIds);
    this.#masks.set(state, bits, bits.byteLength + STATE_BYTES);
    return bits;
  }

  #set(bits: Uint32Array, ids: ArrayLike<number>): void {
    for (let i = 0; i < ids.length; i++) {
      const id = ids[i]!;
      if (id < this.#vocabSize) bits[id >> 5]! |= 1 << (id & 31);
    }
  }

  #local(matcher: Matcher, place: Place): Local {
    const key = this.#keyOf(matcher.tables, place);
    const known = this.#locals.get(key);
    if (known !== undefined) return known;
    const local =
      this.#counted(matcher.tables, place) ??
      this.#nearString(matcher, place) ??
      this.#walked(matcher, place);
    const bytes =
      local.behind === null ? 0 : NODE_BYTES * local.behind.trie.byte.length + 8 * local.behind.tokens.length;
    this.#locals.set(key, local, 4 * (local.ids?.length ?? this.#words) + bytes + 2 * key.length);
    return local;
  }

  /** At the beginning of an item that is counted: picked from what tokens are to the rule. */
  #counted(tables: GrammarTables, { state, count }: Place): Local | null {
    const { ruleOf, loopKeys, min, max, item } = tables;
    const rule = ruleOf[state]!;
    const key = loopKeys[rule]!;
    if (max[rule]! < 0 || state !== item[rule]! || key === '') return null;
    let known = this.#profiles.get(key);
    if (known === undefined) {
      const profile = profileOf(tables, rule, this.#trie);
      known = { profile };
      this.#profiles.set(key, known, profile === null ? key.length : bytesOfProfile(profile));
    }
    const { profile } = known;
    if (profile === null) return null;
    const low = Math.max(0, min[rule]! - count);
    const high = max[rule] === NO_END ? NO_END : max[rule]! - count;
    return {
      ids: idsWithin(profile.closing, low, high),
      bits: this.#bitsUpTo(key, profile.inside, high),
      behind: profile.behind,
      below: [],
      low,
      high,
      except: null,
    };
  }

  /**
   * In a string of which only a few texts may not be: what any string allows, but for them. Looked at is only what may yet become one of
   * them. Null where the place is no such thing.
   */
  #nearString(matcher: Matcher, place: Place): Local | null {
    if (this.#restRules(matcher.tables)[matcher.tables.ruleOf[place.state]!] !== 1) return null;
    const trie = this.#trie;
    const { byte, depth, skip, id, same } = trie;
    const { profile, key } = this.#tokens.strings;
    const { nodes } = profile;
    const { states } = matcher;
    const path = this.#path;
    const nexts = this.#nexts;
    const from = matcher.within(place);
    path[0] = from.index;
    nexts[0] = from.next;
    const except = new Set<number>();
    const below: End[] = [];
    const closing: number[] = [];
    let some = false;
    for (let node = 0; node < byte.length; ) {
      const d = depth[node]!;
      let next = nexts[d]![byte[node]!]!;
      if (next === 0) next = matcher.stepIndex(path[d]!, byte[node]!);
      const kind = nodes[node]!;
      const behind = skip[node]!;
      if (next === NOWHERE) {
        if (kind !== NODE.NOWHERE && behind - node > MAX_EXCEPT) return null;
        if (kind !== NODE.NOWHERE)
          for (let below = node; below < behind; below++)
            for (let one = id[below]!; one >= 0; one = same[one]!) except.add(one);
        if (except.size > MAX_EXCEPT) return null;
        node = behind;
        continue;
      }
      const reached = states[next]!;
      const isAny = this.#isAnyString(matcher.tables, reached, key);
      const isEnd = reached.left && reached.places.length === 0;
      if (isEnd && kind === NODE.NOWHERE && below.length < MAX_BELOW) {
        // Over before the first character: the rest of it is looked at where it is.
        below.push({ trie, node, count: 0 });
        for (let one = id[node]!; one >= 0; one = same[one]!) closing.push(one);
        node = behind;
        continue;
      }
      if (isAny ? kind !== NODE.ITEMS : isEnd ? kind !== NODE.END : reached.left || !isWithin(kind))
        return null;
      if (isAny || isEnd) {
        some ||= isAny;
        node = behind;
        continue;
      }
      path[d + 1] = next;
      nexts[d + 1] = reached.next;
      node++;
    }
    if (!some) return null;
    const bits = this.#bitsUpTo(key, profile.inside, NO_END).slice();
    this.#set(bits, profile.closing.ids);
    for (const one of except) if (one < this.#vocabSize) bits[one >> 5]! &= ~(1 << (one & 31));
    this.#set(bits, closing);
    return { ids: null, bits, behind: profile.behind, below, low: 0, high: NO_END, except };
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
  #isAnyString(
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

  #bitsUpTo(of: string, by: IdsByCount, most: number): Uint32Array {
    const limit = Math.min(most, by.at.length - 2);
    const key = `${of}:${limit}`;
    let bits = this.#upTo.get(key);
    if (bits === undefined) {
      const last = by.at.length - 2;
      const few = idsWithin(by, 0, limit);
      if (2 * few.length <= by.ids.length || limit === last) {
        bits = new Uint32Array(this.#words);
        this.#set(bits, few);
      } else {
        bits = this.#bitsUpTo(of, by, last).slice();
        for (const id of idsWithin(by, limit + 1, last))
          if (id < this.#vocabSize) bits[id >> 5]! &= ~(1 << (id & 31));
      }
      this.#upTo.set(key, bits, bits.byteLength);
    }
    return bits;
  }

  #walked(matcher: Matcher, place: Place): Local {
    const ends = this.#ends;
    this.#count = 0;
    ends.length = 0;
    const { plain, rest } = this.#tokens;
    const state = matcher.within(place);
    let bits: Uint32Array | null = null;
    if (this.#takesPlain(matcher, state)) {
      bits = this.#plainBits ??= this.#bitsOf(plain);
      this.#walk(rest, matcher, state, ends, 0, rest.byte.length, 0);
    } else this.#walk(this.#trie, matcher, state, ends, 0, this.#trie.byte.length, 0);
    let ids: Int32Array | null = this.#ids.slice(0, this.#count);
    if (ids.length > this.#words) {
      bits = bits === null ? new Uint32Array(this.#words) : bits.slice();
      this.#set(bits, ids);
      ids = null;
    }
    const isLarge = ({ trie, node }: End): boolean => trie.skip[node]! - node > LARGE;
    const below = ends.filter(isLarge).slice(0, MAX_BELOW);
    const others = ends.filter((end) => !below.includes(end));
    const behind = others.length === 0 ? null : behindEnds(others);
    return { ids, bits, behind, below, low: 0, high: NO_END, except: null };
  }

  #bitsOf(ids: Int32Array): Uint32Array {
    const bits = new Uint32Array(this.#words);
    this.#set(bits, ids);
    return bits;
  }

  /** Whether any plain token may come. */
  #takesPlain({ tables }: Matcher, { places }: ParserState): boolean {
    const { plain, ruleOf, loopKeys, item, max } = tables;
    for (const { state, count } of places) {
      if (plain[state]! >= PLAIN_LENGTH) return true;
      const rule = ruleOf[state]!;
      if (max[rule]! < 0 || state !== item[rule]! || loopKeys[rule] !== this.#tokens.strings.key) continue;
      if (max[rule] === NO_END || max[rule]! - count >= PLAIN_LENGTH) return true;
    }
    return false;
  }

  /** The same for places that allow the same by themselves. */
  #keyOf(tables: GrammarTables, { state, count }: Place): string {
    const { key, ruleKeys, loopKeys, ruleOf, start, min, max, item, tail } = tables;
    const rule = ruleOf[state]!;
    const inLoop = max[rule]! >= 0 && state >= item[rule]!;
    const shared = inLoop ? loopKeys[rule]! : ruleKeys[rule]!;
    const name = shared === '' ? `${key}/${rule}${inLoop ? '+' : ''}` : shared;
    const most = max[rule]!;
    const at = state - (inLoop ? item : start)[rule]!;
    // In the tail nothing is counted any more.
    if (most < 0 || state >= tail[rule]!) return `${name}:${at}`;
    // A token has no more items than bytes: what is further away does not matter.
    const far = this.#trie.longest + 1;
    const missing = Math.max(0, Math.min(min[rule]! - count, far));
    const left = most === NO_END ? far : Math.min(most - count, far);
    return `${name}:${at}:${missing}:${left}`;
  }

  /** What may follow where a rule is over in the middle of a token. */
  #beyond(
    matcher: Matcher,
    place: Place,
    { behind, below, low, high, except }: Local,
    bits: Uint32Array,
  ): void {
    const after = matcher.after(place);
    if (after === null) return;
    this.#count = 0;
    for (const { trie, node } of below)
      this.#walk(trie, matcher, after, null, node + 1, trie.skip[node]!, trie.depth[node]! + 1);
    this.#set(bits, this.#ids.subarray(0, this.#count));
    if (behind === null) return;
    const { trie, tokens, counts } = behind;
    this.#count = 0;
    this.#walk(trie, matcher, after, null, 0, trie.byte.length, 0);
    for (let i = 0; i < this.#count; i++) {
      const id = this.#ids[i]!;
      const token = tokens[id]!;
      if (except?.has(token) === true) continue;
      if (counts[id]! >= low && counts[id]! <= high && token < this.#vocabSize)
        bits[token >> 5]! |= 1 << (token & 31);
    }
  }

  /**
   * Adds ids of the nodes from `from` to `to` that can be reached, and nodes where the rule that is watched may be over. `base`: how
   * deep it begins, in `state`.
   */
  #walk(
    trie: TokenTrie,
    matcher: Matcher,
    state: ParserState,
    ends: End[] | null,
    from: number,
    to: number,
    base: number,
  ): void {
    const { byte, depth, skip, id, same } = trie;
    const { states } = matcher;
    const path = this.#path;
    const nexts = this.#nexts;
    const isWhole = trie === this.#trie;
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
      for (let one = id[node]!; one >= 0; one = same[one]!) this.#add(one);
      const behind = skip[node]!;
      const reached = states[next]!;
      if (behind === ++node) continue;
      if (ends !== null && reached.left) ends.push({ trie, node: node - 1, count: 0 });
      if (reached.places.length === 0) {
        node = behind;
        continue;
      }
      if (isWhole && behind - node > WORTH && this.#takesPlain(matcher, reached)) {
        const { plain, plainAt, rest, restAt } = this.#tokens;
        this.#addAll(plain.subarray(plainAt[node]!, plainAt[behind]!));
        this.#walk(rest, matcher, reached, ends, restAt[node]!, restAt[behind]!, d + 1);
        node = behind;
        continue;
      }
      path[d + 1] = next;
      nexts[d + 1] = reached.next;
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

/** Whether a string may begin so, and is not over. */
const isWithin = (kind: number): boolean => kind === NODE.ITEMS || kind === NODE.WITHIN;

/** Tokens that a string may not have, though another may. */
const MAX_EXCEPT = 4096;
/** Nodes below the end of a rule that are walked where they are. */
const LARGE = 512;
const MAX_BELOW = 32;
/** Nodes below one for which it is asked whether they need be walked. */
const WORTH = 16;
/** What a mask keeps alive beside itself, about. */
const STATE_BYTES = 2048;
/** Of a tree, about. */
const NODE_BYTES = 16;

const bytesOfProfile = ({ inside, closing, behind }: CountedProfile): number =>
  4 * (inside.ids.length + closing.ids.length) +
  (behind === null ? 0 : NODE_BYTES * behind.trie.byte.length + 6 * behind.tokens.length);
