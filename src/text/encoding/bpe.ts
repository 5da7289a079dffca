import type { JsonObject } from '../json-file.js';
import { BrokenDefinition } from './broken-definition.js';
import { byteTokenIds, type Model, spellBytes } from './model.js';
import { PairTable } from './pair-table.js';
import { WordCache } from './word-cache.js';

/** Up to this many symbols the lowest rank is looked for among all; beyond, a heap keeps them in order. */
const FEW = 64;

/** A merge of two symbols: the lower the rank, the earlier. */
interface Merges {
  /** (left id, right id) → rank */
  readonly ranks: PairTable;
  /** rank → the id that the two become */
  readonly results: Int32Array;
}

/**
 * Byte-pair encoding: a piece is spelt in characters, then the pair of the lowest rank is merged until none is left,
 * of equal ones the leftmost first.
 */
export class BpeModel implements Model {
  readonly #vocab: ReadonlyMap<string, number>;
  readonly #merges: Merges;
  readonly #unknown: number | undefined;
  readonly #fuseUnknown: boolean;
  readonly #prefix: string;
  readonly #suffix: string;
  readonly #byteIds: Int32Array | undefined;
  readonly #wholeWords: boolean;
  readonly #cache = new WordCache();

  /**
   * @param model `vocab`, `merges` ("a b" or ["a", "b"]) and options, as tokenizer.json has them
   * @param vocab the vocabulary by text
   * @throws Error for a merge of, or into, what the vocabulary lacks
   */
  constructor(model: JsonObject, vocab: ReadonlyMap<string, number>) {
    this.#vocab = vocab;
    this.#fuseUnknown = model.fuse_unk === true;
    this.#prefix = textOf(model.continuing_subword_prefix);
    this.#suffix = textOf(model.end_of_word_suffix);
    this.#byteIds = model.byte_fallback === true ? byteTokenIds(vocab) : undefined;
    this.#wholeWords = model.ignore_merges === true;
    const unknown = textOf(model.unk_token);
    this.#unknown = vocab.get(unknown);
    this.#merges = readMerges(Array.isArray(model.merges) ? model.merges : [], vocab, this.#prefix);
  }

  encode(piece: string, ids: number[]): void {
    let found = this.#cache.get(piece);
    if (found === undefined) {
      const whole = this.#wholeWords ? this.#vocab.get(piece) : undefined;
      found = whole === undefined ? this.#merge(this.#spell(piece)) : [whole];
      this.#cache.put(piece, found);
    }
    for (let i = 0; i < found.length; i++) ids.push(found[i]!);
  }

  #spell(piece: string): number[] {
    const symbols: number[] = [];
    let unknownHeld = false;
    for (let at = 0; at < piece.length; ) {
      const code = piece.codePointAt(at)!;
      const end = at + (code > 0xffff ? 2 : 1);
      let text = piece.slice(at, end);
      if (at > 0) text = this.#prefix + text;
      if (end === piece.length) text += this.#suffix;
      at = end;
      const id = this.#vocab.get(text);
      if (id !== undefined) {
        if (unknownHeld) symbols.push(this.#unknown!);
        unknownHeld = false;
        symbols.push(id);
        continue;
      }
      const bytes = this.#byteIds && spellBytes(text, this.#byteIds);
      if (bytes !== undefined) {
        symbols.push(...bytes);
      } else if (this.#unknown !== undefined) {
        if (unknownHeld && !this.#fuseUnknown) symbols.push(this.#unknown);
        unknownHeld = true;
      }
    }
    if (unknownHeld) symbols.push(this.#unknown!);
    return symbols;
  }

  #merge(symbols: number[]): number[] {
    if (symbols.length < 2) return symbols;
    return symbols.length <= FEW ? mergeFew(symbols, this.#merges) : mergeMany(symbols, this.#merges);
  }
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function readMerges(list: readonly unknown[], vocab: ReadonlyMap<string, number>, prefix: string): Merges {
  const ranks = new PairTable(list.length);
  const results = new Int32Array(list.length);
  const idOf = (token: string): number => {
    const id = vocab.get(token);
    if (id === undefined)
      throw new BrokenDefinition(`a merge needs ${JSON.stringify(token)}, which the vocabulary lacks`);
    return id;
  };
  let rank = 0;
  for (const merge of list) {
    // Files of merges begin with a line of their version, which some conversions kept.
    if (typeof merge === 'string' && merge.startsWith('#version')) continue;
    const [left, right] = Array.isArray(merge) ? merge.map(String) : String(merge).split(' ');
    if (left === undefined || right === undefined) {
      throw new BrokenDefinition(`the merge ${JSON.stringify(merge)} is not of two tokens`);
    }
    ranks.set(idOf(left), idOf(right), rank);
    results[rank++] = idOf(left + right.slice(prefix.length));
  }
  return { ranks, results };
}

const NONE = 0x7fffffff;

/** Looks through all pairs for each merge: quickest for words. */
function mergeFew(symbols: number[], { ranks, results }: Merges): number[] {
  let length = symbols.length;
  const pairRank = (i: number): number => {
    const rank = ranks.get(symbols[i]!, symbols[i + 1]!);
    return rank < 0 ? NONE : rank;
  };
  const pairs: number[] = [];
  for (let i = 0; i + 1 < length; i++) pairs.push(pairRank(i));
  for (;;) {
    let best = NONE;
    let at = -1;
    for (let i = 0; i + 1 < length; i++) {
      if (pairs[i]! < best) {
        best = pairs[i]!;
        at = i;
      }
    }
    if (at < 0) break;
    symbols[at] = results[best]!;
    length--;
    for (let i = at + 1; i < length; i++) {
      symbols[i] = symbols[i + 1]!;
      pairs[i] = pairs[i + 1]!;
    }
    if (at > 0) pairs[at - 1] = pairRank(at - 1);
    if (at + 1 < length) pairs[at] = pairRank(at);
  }
  symbols.length = length;
  return symbols;
}

/** A heap of pairs by rank, then by place; a pair that has changed since it was put in is passed over. */
function mergeMany(symbols: number[], { ranks, results }: Merges): number[] {
  const count = symbols.length;
  const ids = Int32Array.from(symbols);
  const next = Int32Array.from({ length: count }, (_, i) => (i + 1 < count ? i + 1 : -1));
  const previous = Int32Array.from({ length: count }, (_, i) => i - 1);
  const heap = new MinHeap();
  const add = (at: number): void => {
    if (at < 0 || next[at]! < 0) return;
    const rank = ranks.get(ids[at]!, ids[next[at]!]!);
    // Rank and place in one number: exact up to 2^53.
    if (rank >= 0) heap.push(rank * count + at);
  };
  for (let i = 0; i + 1 < count; i++) add(i);
  for (let top = heap.pop(); top !== undefined; top = heap.pop()) {
    const at = top % count;
    const rank = (top - at) / count;
    const right = next[at]!;
    if (ids[at]! < 0 || right < 0 || ranks.get(ids[at]!, ids[right]!) !== rank) continue;
    ids[at] = results[rank]!;
    ids[right] = -1;
    next[at] = next[right]!;
    if (next[at]! >= 0) previous[next[at]!] = at;
    add(previous[at]!);
    add(at);
  }
  const merged: number[] = [];
  for (let i = 0; i < count; i++) if (ids[i]! >= 0) merged.push(ids[i]!);
  return merged;
}

class MinHeap {
  readonly #items: number[] = [];

  push(item: number): void {
    const items = this.#items;
    let at = items.length;
    items.push(item);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (items[parent]! <= item) break;
      items[at] = items[parent]!;
      at = parent;
    }
    items[at] = item;
  }

  pop(): number | undefined {
    const items = this.#items;
    const top = items[0];
    const item = items.pop();
    if (item === undefined || items.length === 0) return top;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= items.length) break;
      if (child + 1 < items.length && items[child + 1]! < items[child]!) child++;
      if (items[child]! >= item) break;
      items[at] = items[child]!;
      at = child;
    }
    items[at] = item;
    return top;
  }
}
