/**
 * Which tokens may come next, as bits by id. What a place in a rule allows by itself is found once for all answers and, where the rule
 * calls no others, for all grammars that have it; of tokens that go beyond the end of the rule only what is behind that end is looked
 * at again.
 *
 * Measured: docs/lab/2026-11-25-grammar-masks.md.
 */

import { type Behind, behindEnds, type End } from './behind.js';
import { ByteCache } from './byte-cache.js';
import { type CountedProfile, type IdsByCount, idsWithin, profileOf } from './counted-profile.js';
import type { Matcher, ParserState, Place } from './matcher.js';
import { NearStrings } from './near-string.js';
import { type GrammarTables, NO_END } from './tables.js';
import type { TokenSet } from './token-set.js';
import type { TokenTrie } from './token-trie.js';
import { TrieWalk, takesPlain } from './trie-walk.js';

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
  /** States whose mask has been asked for. */
  readonly #seen = new WeakSet<ParserState>();
  readonly #locals = new ByteCache<string, Local>(LOCAL_BYTES);
  readonly #walk: TrieWalk;
  readonly #near: NearStrings;
  #plainBits: Uint32Array | null = null;
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
    this.#walk = new TrieWalk(tokens, vocabSize);
    this.#near = new NearStrings(tokens, MAX_BELOW);
    this.#profiles = new ByteCache(PROFILE_BYTES);
    const { key, profile } = tokens.strings;
    this.#profiles.set(key, { profile }, bytesOfProfile(profile));
  }

  /**
   * `[ceil(vocab / 32)]`: a set bit allows its id. Do not write to it. It is kept where it is asked for a second time: most are asked for
   * once, and what is kept for a while has to be collected. `room`: of as many words, for one that is not kept.
   */
  mask(matcher: Matcher, state: ParserState, room?: Uint32Array): Uint32Array {
    const known = this.#masks.get(state);
    if (known !== undefined) return known;
    matcher.makeRoom();
    const again = this.#seen.has(state);
    const bits = again || room === undefined ? new Uint32Array(this.#words) : room.fill(0);
    const { tokenAt, tokenId } = matcher.tables;
    for (const place of state.places) {
      const local = this.#local(matcher, place);
      if (local.bits !== null) for (let i = 0; i < bits.length; i++) bits[i]! |= local.bits[i]!;
      if (local.ids !== null) this.#set(bits, local.ids);
      if (local.behind !== null || local.below.length > 0) this.#beyond(matcher, place, local, bits);
      for (let e = tokenAt[place.state]!; e < tokenAt[place.state + 1]!; e++) this.#set(bits, [tokenId[e]!]);
    }
    if (state.done) this.#set(bits, this.#endIds);
    if (again) this.#masks.set(state, bits, bits.byteLength + STATE_BYTES);
    else this.#seen.add(state);
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

  /** What any string allows, but for some texts. */
  #nearString(matcher: Matcher, place: Place): Local | null {
    const difference = this.#near.differenceAt(matcher, place);
    if (difference === null) return null;
    const { except, closing, below } = difference;
    const { key, profile } = this.#tokens.strings;
    const bits = this.#bitsUpTo(key, profile.inside, NO_END).slice();
    this.#set(bits, profile.closing.ids);
    for (const one of except) if (one < this.#vocabSize) bits[one >> 5]! &= ~(1 << (one & 31));
    this.#set(bits, closing);
    return { ids: null, bits, behind: profile.behind, below, low: 0, high: NO_END, except };
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
    const walk = this.#walk;
    walk.clear();
    const found: End[] = [];
    const { plain, rest, strings } = this.#tokens;
    const state = matcher.within(place);
    let bits: Uint32Array | null = null;
    if (takesPlain(matcher, state.index, strings.key)) {
      bits = this.#plainBits ??= this.#bitsOf(plain);
      walk.walk(rest, matcher, state, found);
    } else walk.walk(this.#tokens.trie, matcher, state, found);
    const isLarge = ({ trie, node }: End): boolean => trie.skip[node]! - node > LARGE;
    const below = found.filter(isLarge).slice(0, MAX_BELOW);
    const others = found.filter((end) => !below.includes(end));
    let own = bits;
    if (walk.count > this.#words || others.length > 0) {
      own = bits === null ? new Uint32Array(this.#words) : bits.slice();
      this.#set(own, walk.ids);
    }
    let ids: Int32Array | null = null;
    if (walk.count > this.#words) bits = own;
    else ids = walk.ids.slice();
    // What the rule itself goes on with may come, whatever is behind its end.
    const behind =
      others.length === 0
        ? null
        : behindEnds(others, (id) => id < this.#vocabSize && (own![id >> 5]! & (1 << (id & 31))) !== 0);
    return { ids, bits, behind, below, low: 0, high: NO_END, except: null };
  }

  #bitsOf(ids: Int32Array): Uint32Array {
    const bits = new Uint32Array(this.#words);
    this.#set(bits, ids);
    return bits;
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
    const walk = this.#walk;
    walk.clear();
    for (const { trie, node } of below)
      walk.walk(trie, matcher, after, null, node + 1, trie.skip[node]!, trie.depth[node]! + 1);
    this.#set(bits, walk.ids);
    if (behind === null) return;
    const { trie, tokens, counts } = behind;
    walk.clear();
    walk.walk(trie, matcher, after, null);
    const { ids } = walk;
    for (let i = 0; i < ids.length; i++) {
      const id = ids[i]!;
      const token = tokens[id]!;
      if (except?.has(token) === true) continue;
      if (counts[id]! >= low && counts[id]! <= high && token < this.#vocabSize)
        bits[token >> 5]! |= 1 << (token & 31);
    }
  }
}

/** Nodes below the end of a rule that are walked where they are. */
const LARGE = 512;
const MAX_BELOW = 32;
/** What a mask keeps alive beside itself, about. */
const STATE_BYTES = 2048;
/** Of a tree, about. */
const NODE_BYTES = 16;

const bytesOfProfile = ({ inside, closing, behind }: CountedProfile): number =>
  4 * (inside.ids.length + closing.ids.length) +
  (behind === null ? 0 : NODE_BYTES * behind.trie.byte.length + 6 * behind.tokens.length);
