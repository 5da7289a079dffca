/** Expressions of tokenizer definitions: written for Oniguruma, run as JavaScript's. */
import * as library from '@huggingface/tokenizers';
import { isJsonObject, type JsonObject } from '../json-file.js';

// The library's declaration of this class does not resolve under Node's rules.
const { ReplaceNormalizer: Replace } = library as unknown as {
  ReplaceNormalizer: new (config: JsonObject) => { readonly pattern: RegExp };
};

/**
 * Compiles the `pattern` of a Split or Replace step: `{ String }` or `{ Regex }`.
 *
 * The library translates Oniguruma's dialect. Before it, what it takes for something weaker is spelt out: possessive
 * quantifiers and atomic groups (which never give back), `(?i)` at the front, `\R`, and the letters that differ from
 * `s` and `k` by case alone and are not ASCII.
 *
 * @throws Error for a pattern that JavaScript cannot run
 */
export function compilePattern(pattern: unknown): RegExp {
  if (!isJsonObject(pattern)) throw new Error('a step has no pattern');
  if (typeof pattern.String === 'string') {
    return new RegExp(pattern.String.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&'), 'gu');
  }
  if (typeof pattern.Regex !== 'string') throw new Error('a pattern is neither a String nor a Regex');
  const source = new Spelling(pattern.Regex).whole();
  return translated(source);
}

function translated(source: string): RegExp {
  return new Replace({ type: 'Replace', pattern: { Regex: source }, content: '' }).pattern;
}

/** Letters beyond ASCII that are equal to a letter of ASCII but for their case. */
const FOLDED: Readonly<Record<string, string>> = { s: '\u017f', k: '\u212a' };

/** Walks through an expression atom by atom and writes it in terms that the library translates rightly. */
class Spelling {
  readonly #source: string;
  #at = 0;
  #atomics = 0;

  constructor(source: string) {
    // The library knows flags of groups only.
    this.#source = source.startsWith('(?i)') ? `(?i:${source.slice(4)})` : source;
  }

  whole(): string {
    let out = this.#alternatives(false);
    // A bracket that closes nothing is for the library to refuse.
    while (this.#at < this.#source.length) out += this.#source[this.#at++] + this.#alternatives(false);
    return out;
  }

  /** Up to the end, or to the `)` that closes the group at hand. */
  #alternatives(folds: boolean): string {
    let out = '';
    while (this.#at < this.#source.length && this.#source[this.#at] !== ')') {
      const atom = this.#atom(folds);
      out += this.#quantified(atom);
    }
    return out;
  }

  #atom(folds: boolean): string {
    const rest = this.#source.slice(this.#at, this.#at + 3);
    if (rest[0] === '\\') return this.#escape();
    if (rest[0] === '[') return folds ? foldedClass(this.#characterClass()) : this.#characterClass();
    if (rest[0] === '(') return this.#group(folds);
    const character = String.fromCodePoint(this.#source.codePointAt(this.#at)!);
    this.#at += character.length;
    if (!folds || !/\p{L}/u.test(character)) return character;
    const cases = new Set([character, character.toLowerCase(), character.toUpperCase()]);
    cases.add(FOLDED[character.toLowerCase()] ?? character);
    const single = [...cases].filter((letter) => [...letter].length === 1);
    return single.length === 1 ? character : `[${single.join('')}]`;
  }

  #escape(): string {
    const braced = /^\\[pPxuk](?:\{[^}]*\}|<[^>]*>)/.exec(this.#source.slice(this.#at, this.#at + 64));
    const length =
      braced?.[0].length ?? 1 + String.fromCodePoint(this.#source.codePointAt(this.#at + 1) ?? 32).length;
    const text = this.#source.slice(this.#at, this.#at + length);
    this.#at += text.length;
    return text === '\\R' ? '(?:\\r\\n|[\\n-\\r\\x85\\u2028\\u2029])' : text;
  }

  /** A class, with those inside it. */
  #characterClass(): string {
    const start = this.#at++;
    if (this.#source[this.#at] === '^') this.#at++;
    if (this.#source[this.#at] === ']') this.#at++;
    while (this.#at < this.#source.length && this.#source[this.#at] !== ']') {
      if (this.#source[this.#at] === '\\') this.#at += 2;
      else if (this.#source[this.#at] === '[') this.#characterClass();
      else this.#at++;
    }
    this.#at++;
    return this.#source.slice(start, this.#at);
  }

  #group(folds: boolean): string {
    const opening = /^\((?:\?(?:<[=!]|<[A-Za-z_]\w*>|[:=!>]|i:))?/.exec(
      this.#source.slice(this.#at, this.#at + 64),
    )![0];
    this.#at += opening.length;
    const inner = this.#alternatives(folds || opening === '(?i:');
    // An unclosed group stays one, for the library to refuse.
    const close = this.#source[this.#at++] ?? '';
    return opening === '(?>' ? this.#atomic(inner) : opening + inner + close;
  }

  /** The atom with what repeats it; `++`, `*+`, `?+` make it possessive, and `{1,2}+` repeats it again. */
  #quantified(atom: string): string {
    const match = /^(?:[*+?]|\{\d+(?:,\d*)?\}|\{,\d+\})/.exec(this.#source.slice(this.#at, this.#at + 24));
    if (match === null) return atom;
    const quantifier = match[0];
    this.#at += quantifier.length;
    if (quantifier.length > 1 || this.#source[this.#at] !== '+') return atom + quantifier;
    this.#at++;
    return this.#atomic(atom + quantifier);
  }

  /** What is looked ahead for is not tried again: its text is taken as it was found. */
  #atomic(inner: string): string {
    const name = `atomic${this.#atomics++}`;
    return `(?:(?=(?<${name}>${inner}))\\k<${name}>)`;
  }
}

/** A class that has `s` or `k` has the letters that are one with them but for their case, too. */
function foldedClass(source: string): string {
  if (source.includes('&&') || source.includes('[', 1)) return source;
  const positive = new RegExp(translated(source.replace(/^\[\^/, '[')).source, 'iu');
  const letters = Object.entries(FOLDED).filter(([letter]) => positive.test(letter));
  return `${source.slice(0, -1)}${letters.map(([, folded]) => folded).join('')}]`;
}

/** A span of a text, and whether it is one that an expression found. */
type Span = readonly [start: number, end: number, found: boolean];

/**
 * Cuts a text into what an expression finds and what lies between. As in Oniguruma's own walk an empty find is left
 * out where the last find ended.
 */
function spans(expression: RegExp, text: string): Span[] {
  const all: Span[] = [];
  let from = 0;
  eachFind(expression, text, (start, end) => {
    if (start > from) all.push([from, start, false]);
    all.push([start, end, true]);
    from = end;
  });
  if (from < text.length) all.push([from, text.length, false]);
  return all;
}

/** The text with every find replaced by `content` as it is. */
export function replaceAll(expression: RegExp, text: string, content: string): string {
  let out = '';
  let from = 0;
  eachFind(expression, text, (start, end) => {
    out += text.slice(from, start) + content;
    from = end;
  });
  return from === 0 && out === '' ? text : out + text.slice(from);
}

/** @param expression with the flags `g` and `u` */
function eachFind(expression: RegExp, text: string, visit: (start: number, end: number) => void): void {
  // Of an empty text Oniguruma's caller asks nothing.
  if (text === '') return;
  expression.lastIndex = 0;
  let last = -1;
  for (let match = expression.exec(text); match !== null; match = expression.exec(text)) {
    const start = match.index;
    const end = start + match[0].length;
    if (end === start) {
      expression.lastIndex = end + (text.codePointAt(end)! > 0xffff ? 2 : 1);
      if (start === last) continue;
    }
    last = end;
    visit(start, end);
    if (expression.lastIndex > text.length) break;
  }
  expression.lastIndex = 0;
}

const BEHAVIORS = ['Removed', 'Isolated', 'MergedWithPrevious', 'MergedWithNext', 'Contiguous'] as const;
/** What becomes of what a split finds: it is dropped, stands alone, or goes with what lies before or after it. */
export type SplitBehavior = (typeof BEHAVIORS)[number];

/** @throws Error for a name that is none */
export function splitBehavior(name: unknown, fallback?: SplitBehavior): SplitBehavior {
  if (name === undefined && fallback !== undefined) return fallback;
  const found = BEHAVIORS.find((behavior) => behavior === name);
  if (found === undefined) throw new Error(`the behavior ${JSON.stringify(name)} of a split is not known`);
  return found;
}

/** Cuts a text at what an expression finds (at what lies between, if `invert`), and adds the pieces to `pieces`. */
export function splitInto(
  pieces: string[],
  text: string,
  expression: RegExp,
  behavior: SplitBehavior,
  invert = false,
): void {
  const add = (start: number, end: number): void => {
    if (end > start) pieces.push(text.slice(start, end));
  };
  if (behavior === 'Isolated') {
    let from = 0;
    eachFind(expression, text, (start, end) => {
      add(from, start);
      add(start, end);
      from = end;
    });
    add(from, text.length);
    return;
  }
  const all = spans(expression, text);
  if (behavior === 'Removed') {
    for (const [start, end, found] of all) if (found === invert) add(start, end);
    return;
  }
  // From here on a piece is joined to the one before it (or after it), by whether each of them is a delimiter.
  const backwards = behavior === 'MergedWithNext';
  const joined: [number, number][] = [];
  let lastFound = false;
  for (let i = 0; i < all.length; i++) {
    const [start, end, rawFound] = all[backwards ? all.length - 1 - i : i]!;
    const found = rawFound !== invert;
    const joins = behavior === 'Contiguous' ? found === lastFound : found && !lastFound;
    const last = joined.at(-1);
    if (!joins || last === undefined) joined.push([start, end]);
    else if (backwards) last[0] = start;
    else last[1] = end;
    lastFound = found;
  }
  if (backwards) joined.reverse();
  for (const [start, end] of joined) add(start, end);
}
