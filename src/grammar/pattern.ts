/**
 * Reads regular expressions, in the syntax of ECMA-262 as far as it describes regular languages. What is not regular (look
 * ahead, back references) or not the same everywhere (word boundaries, flags) is refused by name.
 */

import { KvantError } from '../errors.js';
import { ANY_CODE_POINT, type CodePointRange, invertRanges, joinRanges } from './code-points.js';
import { anyCase } from './letter-case.js';
import { type Budget, MAX_DEPTH, tooLarge } from './limits.js';
import { PROPERTY_WORK, propertyRanges } from './unicode-properties.js';

export type PatternNode =
  | { readonly kind: 'set'; readonly ranges: readonly CodePointRange[] }
  | { readonly kind: 'sequence' | 'choice'; readonly items: readonly PatternNode[] }
  | { readonly kind: 'repeat'; readonly item: PatternNode; readonly min: number; readonly max: number | null }
  | { readonly kind: 'begin' | 'end' };

export interface PatternOptions {
  /** Letters stand for themselves in either case. */
  readonly anyCase?: boolean;
  /** `.` is any character, a line's end too. */
  readonly dotAll?: boolean;
  /** The pattern describes a part of a text: anchors, and quantifiers that take as little as they can, are refused. */
  readonly part?: boolean;
}

/** Errors: `invalid-pattern`, `grammar-too-large`. */
export function parsePattern(pattern: string, budget: Budget, options: PatternOptions = {}): PatternNode {
  return new PatternParser(pattern, budget, options).parse();
}

const point = (character: string): readonly CodePointRange[] => {
  const code = character.codePointAt(0)!;
  return [[code, code]];
};

const DIGITS: readonly CodePointRange[] = [[0x30, 0x39]];
const WORD: readonly CodePointRange[] = [
  [0x30, 0x39],
  [0x41, 0x5a],
  [0x5f, 0x5f],
  [0x61, 0x7a],
];
/** White space and line terminators. */
const SPACE: readonly CodePointRange[] = [
  [0x09, 0x0d],
  [0x20, 0x20],
  [0xa0, 0xa0],
  [0x1680, 0x1680],
  [0x2000, 0x200a],
  [0x2028, 0x2029],
  [0x202f, 0x202f],
  [0x205f, 0x205f],
  [0x3000, 0x3000],
  [0xfeff, 0xfeff],
];
const LINE_ENDS: readonly CodePointRange[] = [
  [0x0a, 0x0a],
  [0x0d, 0x0d],
  [0x2028, 0x2029],
];
const CLASSES: Readonly<Record<string, readonly CodePointRange[]>> = {
  d: DIGITS,
  D: invertRanges(DIGITS),
  w: WORD,
  W: invertRanges(WORD),
  s: SPACE,
  S: invertRanges(SPACE),
};
const CONTROLS: Readonly<Record<string, number>> = { t: 9, n: 10, v: 11, f: 12, r: 13, 0: 0 };

class PatternParser {
  readonly #characters: readonly string[];
  readonly #budget: Budget;
  readonly #options: PatternOptions;
  #at = 0;
  #depth = 0;

  constructor(pattern: string, budget: Budget, options: PatternOptions) {
    this.#characters = [...pattern];
    this.#budget = budget;
    this.#options = options;
  }

  parse(): PatternNode {
    const node = this.#choice();
    if (this.#at < this.#characters.length) throw this.#invalid('a ")" without a "("');
    return node;
  }

  get #next(): string | undefined {
    return this.#characters[this.#at];
  }

  #take(text: string): boolean {
    const letters = [...text];
    if (!letters.every((letter, i) => this.#characters[this.#at + i] === letter)) return false;
    this.#at += letters.length;
    return true;
  }

  #choice(): PatternNode {
    const items = [this.#sequence()];
    while (this.#take('|')) items.push(this.#sequence());
    return items.length === 1 ? items[0]! : { kind: 'choice', items };
  }

  #sequence(): PatternNode {
    const items: PatternNode[] = [];
    while (this.#next !== undefined && this.#next !== '|' && this.#next !== ')')
      items.push(this.#quantified());
    return items.length === 1 ? items[0]! : { kind: 'sequence', items };
  }

  #quantified(): PatternNode {
    const item = this.#atom();
    const bounds = this.#quantifier();
    if (bounds === null) return item;
    if (item.kind === 'begin' || item.kind === 'end') throw this.#invalid('a quantifier behind an anchor');
    // Lazy or greedy, it is the same words where the pattern is all there is.
    if (this.#take('?') && this.#options.part) throw this.#unsupported('lazy quantifiers here');
    if (this.#next === '+' || this.#next === '*' || this.#next === '?' || this.#bounds(false) !== null)
      throw this.#invalid('two quantifiers in a row');
    return { kind: 'repeat', item, ...bounds };
  }

  #quantifier(): { min: number; max: number | null } | null {
    if (this.#take('*')) return { min: 0, max: null };
    if (this.#take('+')) return { min: 1, max: null };
    if (this.#take('?')) return { min: 0, max: 1 };
    return this.#bounds(true);
  }

  /** `{2}`, `{2,}` or `{2,5}`; null where a brace stands for itself. */
  #bounds(take: boolean): { min: number; max: number | null } | null {
    if (this.#next !== '{') return null;
    const least = this.#digits(this.#at + 1);
    let end = this.#at + 1 + least.length;
    const open = this.#characters[end] === ',';
    const most = open ? this.#digits(++end) : '';
    end += most.length;
    if (least === '' || this.#characters[end] !== '}') return null;
    if (take) this.#at = end + 1;
    const min = count(least);
    const max = most !== '' ? count(most) : open ? null : min;
    if (max !== null && max < min) throw this.#invalid('a quantifier whose numbers are out of order');
    return { min, max };
  }

  #digits(from: number): string {
    let end = from;
    while (/^[0-9]$/.test(this.#characters[end] ?? '')) end++;
    return this.#characters.slice(from, end).join('');
  }

  #atom(): PatternNode {
    const character = this.#characters[this.#at++]!;
    switch (character) {
      case '^':
      case '$':
        if (this.#options.part) throw this.#unsupported('anchors here');
        return { kind: character === '^' ? 'begin' : 'end' };
      case '.':
        return { kind: 'set', ranges: this.#options.dotAll ? ANY_CODE_POINT : invertRanges(LINE_ENDS) };
      case '(':
        return this.#group();
      case '[':
        return { kind: 'set', ranges: this.#class() };
      case '\\':
        return { kind: 'set', ranges: this.#cased(this.#escape(false)) };
      case '*':
      case '+':
      case '?':
        throw this.#invalid('a quantifier with nothing before it');
      case '{':
        this.#at--;
        if (this.#bounds(false) !== null) throw this.#invalid('a quantifier with nothing before it');
        this.#at++;
        return { kind: 'set', ranges: this.#cased(point(character)) };
      default:
        return { kind: 'set', ranges: this.#cased(this.#text(point(character))) };
    }
  }

  #group(): PatternNode {
    if (++this.#depth > MAX_DEPTH) throw tooLarge(`nests groups more than ${MAX_DEPTH} deep`);
    if (this.#take('?')) {
      if (this.#next === '=' || this.#next === '!')
        throw this.#unsupported('look-ahead but at the beginning of all, as in ^(?!a)b');
      if (this.#take('<=') || this.#take('<!')) throw this.#unsupported('look-behind');
      if (this.#take('<') || this.#take('P<')) {
        while (this.#next !== undefined && this.#next !== '>') this.#at++;
        if (!this.#take('>')) throw this.#invalid('a group whose name does not end');
      } else if (!this.#take(':')) throw this.#unsupported('flags and other kinds of groups');
    }
    const node = this.#choice();
    if (!this.#take(')')) throw this.#invalid('a "(" without a ")"');
    this.#depth--;
    return node;
  }

  #class(): readonly CodePointRange[] {
    const inverted = this.#take('^');
    const ranges: CodePointRange[] = [];
    while (!this.#take(']')) {
      this.#refuseOtherClasses();
      const low = this.#classAtom();
      this.#budget.spend(2 * low.length);
      if (this.#next === '-' && this.#characters[this.#at + 1] !== ']') {
        this.#at++;
        const high = this.#classAtom();
        const first = single(low);
        const last = single(high);
        if (first === null || last === null) throw this.#invalid('a range between sets of characters');
        if (last < first) throw this.#invalid('a range whose ends are out of order');
        ranges.push([first, last]);
      } else ranges.push(...low);
    }
    if (inverted) return invertRanges([...this.#cased(ranges)]);
    return this.#cased(this.#text(joinRanges(ranges)));
  }

  /** What other languages have within classes, and JavaScript reads as characters. */
  #refuseOtherClasses(): void {
    if (this.#next !== '[' && this.#next !== '&') return;
    const found = /^(\[:\^?[a-z]+:\]|&&)/.exec(this.#characters.slice(this.#at, this.#at + 14).join(''));
    if (found !== null)
      throw this.#unsupported(`${found[0]} within classes, which is not the same everywhere`);
  }

  #cased(ranges: readonly CodePointRange[]): readonly CodePointRange[] {
    return this.#options.anyCase ? anyCase(ranges, this.#budget) : ranges;
  }

  #classAtom(): readonly CodePointRange[] {
    const character = this.#characters[this.#at++];
    if (character === undefined) throw this.#invalid('a "[" without a "]"');
    return character === '\\' ? this.#escape(true) : point(character);
  }

  #escape(inClass: boolean): readonly CodePointRange[] {
    const character = this.#characters[this.#at++];
    if (character === undefined) throw this.#invalid('a "\\" at the end');
    if (Object.hasOwn(CLASSES, character)) return CLASSES[character]!;
    if (character === '0' && /[0-9]/.test(this.#next ?? '')) throw this.#unsupported('octal escapes');
    if (Object.hasOwn(CONTROLS, character)) return [[CONTROLS[character]!, CONTROLS[character]!]];
    switch (character) {
      case 'b':
        if (inClass) return [[8, 8]];
        throw this.#unsupported('word boundaries');
      case 'B':
        throw this.#unsupported('word boundaries');
      case 'c': {
        const letter = this.#characters[this.#at++] ?? '';
        if (!/^[A-Za-z]$/.test(letter)) throw this.#invalid('a "\\c" without a letter');
        return [[letter.charCodeAt(0) % 32, letter.charCodeAt(0) % 32]];
      }
      case 'x':
        return this.#code(this.#hex(2));
      case 'u':
        return this.#code(this.#unicode());
      case 'p':
      case 'P':
        return this.#property(character === 'P');
    }
    if (/^[0-9k]$/.test(character)) throw this.#unsupported('back references');
    if (/^[A-Za-z]$/.test(character)) throw this.#invalid(`the escape "\\${character}"`);
    return this.#text(point(character));
  }

  #code(code: number): readonly CodePointRange[] {
    return this.#text([[code, code]]);
  }

  #hex(digits: number): number {
    const found = this.#characters.slice(this.#at, this.#at + digits).join('');
    if (found.length !== digits || !/^[0-9A-Fa-f]+$/.test(found))
      throw this.#invalid(`an escape without ${digits} hexadecimal digits`);
    this.#at += digits;
    return Number.parseInt(found, 16);
  }

  #unicode(): number {
    if (this.#take('{')) {
      const from = this.#at;
      while (this.#next !== undefined && this.#next !== '}') this.#at++;
      const digits = this.#characters.slice(from, this.#at).join('');
      if (!this.#take('}') || !/^[0-9A-Fa-f]{1,8}$/.test(digits) || Number.parseInt(digits, 16) > 0x10ffff)
        throw this.#invalid('an escape "\\u{…}" that is no code point');
      return Number.parseInt(digits, 16);
    }
    const high = this.#hex(4);
    if (high < 0xd800 || high > 0xdbff || !this.#take('\\u')) return high;
    const low = this.#hex(4);
    if (low < 0xdc00 || low > 0xdfff) throw this.#invalid('half a surrogate pair');
    return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
  }

  #property(inverted: boolean): readonly CodePointRange[] {
    const from = this.#at;
    if (!this.#take('{')) throw this.#invalid('a "\\p" without a "{"');
    while (this.#next !== undefined && this.#next !== '}') this.#at++;
    const name = this.#characters.slice(from + 1, this.#at).join('');
    if (!this.#take('}')) throw this.#invalid('a "\\p{" without a "}"');
    this.#budget.spendOnce(`\\p{${name}}`, PROPERTY_WORK);
    const ranges = propertyRanges(name);
    if (ranges === null) throw this.#invalid(`the property "${name}"`);
    return inverted ? invertRanges(ranges) : ranges;
  }

  /** Errors: `invalid-pattern` for half a surrogate pair, which no text holds. */
  #text(ranges: readonly CodePointRange[]): readonly CodePointRange[] {
    const code = single(ranges);
    if (code !== null && code >= 0xd800 && code <= 0xdfff) throw this.#invalid('half a surrogate pair');
    return ranges;
  }

  #invalid(what: string): KvantError {
    return new KvantError('invalid-pattern', `The pattern has ${what}, near character ${this.#at}.`, {
      kind: 'invalid-request',
      fix: 'Write it as in JavaScript.',
    });
  }

  #unsupported(what: string): KvantError {
    return new KvantError('invalid-pattern', `Patterns take no ${what} (near character ${this.#at}).`, {
      kind: 'invalid-request',
      fix: 'Write the pattern with characters, classes, groups, alternatives, quantifiers, ^ and $.',
    });
  }
}

function single(ranges: readonly CodePointRange[]): number | null {
  const [first] = ranges;
  return ranges.length === 1 && first![0] === first![1] ? first![0] : null;
}

/** What is more than can be counted is as good as without an end. */
const count = (digits: string): number => Math.min(Number(digits), Number.MAX_SAFE_INTEGER);
