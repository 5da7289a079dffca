/**
 * Tokens that a grammar leaves no choice about, as the tokenizer writes them: they need not be drawn. A run ends before the first
 * token that what follows could make a longer one of, so its tokens are those of the whole text, however that goes on.
 */

import { type ForcedText, forcedTexts } from './forced-text.js';
import type { GrammarTables } from './tables.js';
import type { TokenTrie } from './token-trie.js';

/** Plain data over shared memory. */
export interface ForcedRuns {
  /** `[states]`: where in `ids` the tokens that come from there begin; −1 where none are known. */
  readonly at: Int32Array;
  /** Tokens of all runs; −1 behind the last of each. */
  readonly ids: Int32Array;
}

/** The ids that a tokenizer writes a text with as it goes on, and the bytes of an id; null where it cannot write it so. */
export interface RunSpeller {
  spell(text: string): ArrayLike<number> | null;
  bytesOf(id: number): Uint8Array;
}

/** One token is drawn as fast as it is taken. */
const FEWEST = 2;
/** Bytes that are written in tokens for one grammar: what comes later is drawn. */
const MAX_SPELLED = 65_536;

export function forcedRuns(tables: GrammarTables, trie: TokenTrie, speller: RunSpeller): ForcedRuns {
  const at = new Int32Array(new SharedArrayBuffer(4 * tables.ruleOf.length)).fill(-1);
  const ids: number[] = [];
  const spelling = new Spelling(trie, speller);
  for (const text of forcedTexts(tables)) {
    const { bytes, states } = wholeCharacters(text);
    // Fewer bytes are no two tokens and one to keep back.
    if (bytes.length <= FEWEST) continue;
    const kept = spelling.kept(bytes);
    if (kept.length < FEWEST) continue;
    let offset = 0;
    const first = ids.length;
    for (let i = 0; i <= kept.length - FEWEST; i++) {
      const state = states[offset]!;
      if (state >= 0 && at[state] === -1) at[state] = first + i;
      offset += speller.bytesOf(kept[i]!).length;
    }
    ids.push(...kept, -1);
  }
  const shared = new Int32Array(new SharedArrayBuffer(4 * ids.length));
  shared.set(ids);
  return { at, ids: shared };
}

/** The ids that come from a state; null where none are known. */
export function runFrom({ at, ids }: ForcedRuns, state: number): Int32Array | null {
  const from = at[state]!;
  return from < 0 ? null : ids.subarray(from, ids.indexOf(-1, from));
}

class Spelling {
  readonly #trie: TokenTrie;
  readonly #speller: RunSpeller;
  readonly #known = new Map<string, readonly number[]>();
  #spelled = 0;

  constructor(trie: TokenTrie, speller: RunSpeller) {
    this.#trie = trie;
    this.#speller = speller;
  }

  /** The tokens that a text begins with, whatever comes behind it. */
  kept(bytes: Uint8Array): readonly number[] {
    // By bytes: what is no UTF-8 would be all one text.
    const key = bytes.join();
    let kept = this.#known.get(key);
    if (kept === undefined) {
      kept = this.#find(bytes);
      this.#known.set(key, kept);
    }
    return kept;
  }

  /**
   * With what follows, a token begins at the end of the text, or somewhere before it and goes beyond. Up to there the text is written
   * as it would be by itself; what all these have in common stands.
   */
  #find(bytes: Uint8Array): readonly number[] {
    const whole = this.#spell(bytes);
    if (whole === null) return [];
    let kept = whole.length;
    const { longest } = this.#trie;
    for (let from = bytes.length - 1; kept > 0 && from > bytes.length - longest && from >= 0; from--) {
      if (!goesBeyond(this.#trie, bytes, from)) continue;
      let start = from;
      while (start > 0 && isWithinCharacter(bytes[start]!)) start--;
      const part = this.#spell(bytes.subarray(0, start));
      if (part === null) return [];
      // The first bytes of a character may be one token with what is before them.
      const certain = start === from ? part.length : part.length - 1;
      let common = 0;
      while (common < Math.min(kept, certain) && part[common] === whole[common]) common++;
      kept = common;
    }
    return Array.from(whole).slice(0, kept);
  }

  #spell(bytes: Uint8Array): ArrayLike<number> | null {
    if (bytes.length === 0) return [];
    this.#spelled += bytes.length;
    return this.#spelled > MAX_SPELLED ? null : this.#speller.spell(textOf(bytes));
  }
}

/** Whether a token begins with all bytes from `from` on, and is longer. */
function goesBeyond({ byte, skip }: TokenTrie, bytes: Uint8Array, from: number): boolean {
  let node = 0;
  let end = byte.length;
  for (let i = from; i < bytes.length; i++) {
    while (node < end && byte[node] !== bytes[i]) node = skip[node]!;
    if (node === end) return false;
    end = skip[node]!;
    node++;
  }
  return node < end;
}

/** Without what of a character of several bytes is at either end. */
function wholeCharacters({ bytes, states }: ForcedText): ForcedText {
  let from = 0;
  while (from < bytes.length && isWithinCharacter(bytes[from]!)) from++;
  let to = bytes.length;
  let last = to - 1;
  while (last > from && isWithinCharacter(bytes[last]!)) last--;
  if (last >= from && last + lengthOf(bytes[last]!) > to) to = last;
  return { bytes: bytes.subarray(from, to), states: states.subarray(from, to) };
}

const isWithinCharacter = (byte: number): boolean => (byte & 0xc0) === 0x80;
const lengthOf = (first: number): number => (first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4);
const textOf = (bytes: Uint8Array): string => new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);
