import type { JsonObject } from '../json-file.js';
import { BrokenDefinition } from './broken-definition.js';
import { byteTokenIds, type Model, spellBytes } from './model.js';
import { PairTable } from './pair-table.js';
import { WordCache } from './word-cache.js';

/** How much worse than the worst piece of the vocabulary an unknown character is. */
const UNKNOWN_PENALTY = 10;

/**
 * Unigram: of all ways to write a text in pieces of the vocabulary the one of the highest score in all. Unknown
 * characters next to each other count as one.
 */
export class UnigramModel implements Model {
  readonly #vocab: ReadonlyMap<string, number>;
  readonly #scores: Float64Array;
  readonly #unknown: number | undefined;
  readonly #unknownScore: number;
  readonly #byteIds: Int32Array | undefined;
  /** (node, UTF-16 unit) → node; the root is 0. */
  readonly #trie: PairTable;
  /** The id of the piece that ends at a node, or -1. */
  readonly #pieces: Int32Array;
  readonly #cache = new WordCache();

  /**
   * @param model `vocab` as a list of [piece, score], `unk_id`, `byte_fallback`
   * @throws Error for an `unk_id` beyond the vocabulary
   */
  constructor(model: JsonObject) {
    const list = model.vocab as readonly (readonly [string, number])[];
    const vocab = new Map<string, number>();
    for (const [id, [piece]] of list.entries()) vocab.set(piece, id);
    this.#vocab = vocab;
    this.#scores = Float64Array.from(list, ([, score]) => score);
    this.#unknown = typeof model.unk_id === 'number' ? model.unk_id : undefined;
    if (this.#unknown !== undefined && !(this.#unknown < list.length)) {
      throw new BrokenDefinition('unk_id is beyond the vocabulary');
    }
    this.#unknownScore = this.#scores.reduce((a, b) => Math.min(a, b), Infinity) - UNKNOWN_PENALTY;
    this.#byteIds = model.byte_fallback === true ? byteTokenIds(vocab) : undefined;

    const units = list.reduce((sum, [piece]) => sum + piece.length, 0);
    this.#trie = new PairTable(units);
    this.#pieces = new Int32Array(units + 1).fill(-1);
    let nodes = 1;
    for (const [piece, id] of vocab) {
      let node = 0;
      for (let i = 0; i < piece.length; i++) {
        const unit = piece.charCodeAt(i);
        let child = this.#trie.get(node, unit);
        if (child < 0) {
          child = nodes++;
          this.#trie.set(node, unit, child);
        }
        node = child;
      }
      if (node > 0) this.#pieces[node] = id;
    }
  }

  encode(piece: string, ids: number[]): void {
    let found = this.#cache.get(piece);
    if (found === undefined) {
      found = this.#best(piece);
      this.#cache.put(piece, found);
    }
    for (let i = 0; i < found.length; i++) ids.push(found[i]!);
  }

  #best(text: string): number[] {
    const length = text.length;
    const scores = new Float64Array(length + 1);
    /** Where the best piece that ends here starts, -1 where none ends. */
    const starts = new Int32Array(length + 1).fill(-1);
    const ends = new Int32Array(length + 1);
    const offer = (end: number, start: number, score: number, id: number): void => {
      if (starts[end]! >= 0 && score <= scores[end]!) return;
      scores[end] = score;
      starts[end] = start;
      ends[end] = id;
    };
    for (let start = 0; start < length; ) {
      const width = text.codePointAt(start)! > 0xffff ? 2 : 1;
      const before = scores[start]!;
      let single = false;
      let node = 0;
      for (let end = start; end < length; ) {
        node = this.#trie.get(node, text.charCodeAt(end++));
        if (node < 0) break;
        const id = this.#pieces[node]!;
        if (id < 0) continue;
        offer(end, start, this.#scores[id]! + before, id);
        if (end - start === width) single = true;
      }
      if (!single) {
        if (this.#unknown === undefined) throw new Error('the model has no token for unknown characters');
        offer(start + width, start, this.#unknownScore + before, this.#unknown);
      }
      start += width;
    }

    // From the end back to the start; a run of unknown characters is looked up as one.
    const ids: number[] = [];
    let unknownEnd = -1;
    for (let end = length; end > 0; end = starts[end]!) {
      const unknown = ends[end] === this.#unknown;
      if (unknown && unknownEnd < 0) unknownEnd = end;
      if (unknownEnd >= 0 && !unknown) {
        this.#pushUnknown(text.slice(end, unknownEnd), ids);
        unknownEnd = -1;
      }
      if (!unknown) ids.push(ends[end]!);
    }
    if (unknownEnd >= 0) this.#pushUnknown(text.slice(0, unknownEnd), ids);
    return ids.reverse();
  }

  /** Adds the ids of an unknown run, last first. */
  #pushUnknown(run: string, ids: number[]): void {
    const id = this.#vocab.get(run);
    const bytes = id === undefined && this.#byteIds ? spellBytes(run, this.#byteIds) : undefined;
    if (bytes === undefined) ids.push(id ?? this.#unknown!);
    else for (let i = bytes.length - 1; i >= 0; i--) ids.push(bytes[i]!);
  }
}
