import { CLASSES } from './character-sets.js';
import { PairTable } from './pair-table.js';

/** What a match of an added token asks of the text around it. */
export interface AddedToken {
  readonly id: number;
  /** Letters, digits and `_` may stand neither right before it nor right after. */
  readonly singleWord: boolean;
  /** It takes the white space before it with it. */
  readonly lstrip: boolean;
  readonly rstrip: boolean;
}

const WORD = new RegExp(`^[${CLASSES.word}]$`, 'u');
const SPACE = new RegExp(`^[${CLASSES.space}]$`, 'u');

/** Finds added tokens in a text: from the left, at each place the longest. */
export class AddedTokenMatcher {
  readonly #tokens: readonly AddedToken[];
  /** (node, UTF-16 unit) → node; the root is 0. */
  readonly #trie: PairTable;
  /** The index of the token that ends at a node, or -1. */
  readonly #ends: Int32Array;
  /** Units that a token begins with. */
  readonly #fronts = new Set<number>();

  /** @param patterns the text to look for and its token; an empty one is never found, of equal ones the last counts */
  constructor(patterns: readonly (readonly [string, AddedToken])[]) {
    const units = patterns.reduce((sum, [pattern]) => sum + pattern.length, 0);
    this.#tokens = patterns.map(([, token]) => token);
    this.#trie = new PairTable(units);
    this.#ends = new Int32Array(units + 1).fill(-1);
    let nodes = 1;
    patterns.forEach(([pattern], index) => {
      let node = 0;
      for (let i = 0; i < pattern.length; i++) {
        const unit = pattern.charCodeAt(i);
        if (i === 0) this.#fronts.add(unit);
        let child = this.#trie.get(node, unit);
        if (child < 0) {
          child = nodes++;
          this.#trie.set(node, unit, child);
        }
        node = child;
      }
      if (node > 0) this.#ends[node] = index;
    });
  }

  /** Calls back for all parts of the text in order: a token, or a text that is not empty. */
  split(
    text: string,
    onText: (start: number, end: number) => void,
    onToken: (token: AddedToken) => void,
  ): void {
    let from = 0;
    for (let at = this.#next(text, 0); at >= 0; ) {
      const [token, length] = this.#longest(text, at);
      if (token === undefined) {
        at = this.#next(text, at + 1);
        continue;
      }
      let start = at;
      let end = at + length;
      at = this.#next(text, end);
      if (
        token.singleWord &&
        (WORD.test(characterBefore(text, start)) || WORD.test(characterAt(text, end)))
      ) {
        continue;
      }
      if (token.lstrip) while (start > from && SPACE.test(text[start - 1]!)) start--;
      if (token.rstrip) while (end < text.length && SPACE.test(text[end]!)) end++;
      if (start > from) onText(from, start);
      onToken(token);
      from = end;
    }
    if (from < text.length) onText(from, text.length);
  }

  /** The next place where a token may begin, -1 for none. */
  #next(text: string, from: number): number {
    if (this.#fronts.size === 0) return -1;
    for (let at = from; at < text.length; at++) if (this.#fronts.has(text.charCodeAt(at))) return at;
    return -1;
  }

  #longest(text: string, start: number): readonly [AddedToken | undefined, number] {
    let found = -1;
    let length = 0;
    let node = 0;
    for (let at = start; at < text.length; ) {
      node = this.#trie.get(node, text.charCodeAt(at++));
      if (node < 0) break;
      if (this.#ends[node]! >= 0) {
        found = this.#ends[node]!;
        length = at - start;
      }
    }
    return [this.#tokens[found], length];
  }
}

function characterAt(text: string, at: number): string {
  const code = text.codePointAt(at);
  return code === undefined ? '' : String.fromCodePoint(code);
}

function characterBefore(text: string, end: number): string {
  if (end === 0) return '';
  const low = text.charCodeAt(end - 1);
  const pair = low >= 0xdc00 && low < 0xe000 && end > 1;
  return pair ? text.slice(end - 2, end) : text[end - 1]!;
}
