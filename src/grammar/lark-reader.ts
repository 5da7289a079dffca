/** The signs of a grammar in Lark's notation: lines, texts, patterns, values. */

import { SourceReader } from './source-reader.js';
import type { TokenNames } from './token-names.js';

/** Space and comments within a line, and over lines. A comment begins with two slashes or a number sign. */
const INLINE = /(?:[ \t\f]|\/\/[^\n]*|#[^\n]*)*/y;
const LINES = /(?:[ \t\f\r\n]|\/\/[^\n]*|#[^\n]*)*/y;
const LINE_END = /\r?\n|$/y;
const PATTERN = /\/(?!\/)((?:\\.|[^/\\\n])*)\/([a-z]*)/y;
const ESCAPES: Readonly<Record<string, string>> = {
  n: '\n',
  r: '\r',
  t: '\t',
  f: '\f',
  '"': '"',
  '\\': '\\',
};
const HEX_DIGITS: Readonly<Record<string, number>> = { x: 2, u: 4, U: 8 };

export class LarkReader extends SourceReader {
  /** Groups that are open: within one a line may end. */
  protected depth = 0;

  constructor(source: string, names: TokenNames) {
    super(source, names, 'Write it as Lark has it: start: "yes" | "no".');
  }

  protected skipLines(): void {
    this.match(LINES);
  }

  /** Space; over the end of a line within a group, or where the next line begins with another alternative. */
  protected skip(): void {
    this.match(INLINE);
    if (this.next !== '\n' && this.next !== '\r') return;
    const end = this.at;
    this.match(LINES);
    if (this.depth < 2 && !this.source.startsWith('|', this.at)) this.at = end;
  }

  protected endOfLine(): void {
    this.match(INLINE);
    if (this.match(LINE_END) === null) throw this.wrong('Something stands here that a rule cannot have');
  }

  /** `"…"`, and `"…"i` for a text in any case. */
  protected quoted(): { value: string; anyCase: boolean } {
    const begin = this.at++;
    let value = '';
    while (!this.take('"')) {
      const point = this.source.codePointAt(this.at);
      if (point === undefined || point === 0x0a) throw this.wrong('A text is not closed', begin);
      value += point === 0x5c ? this.#escape() : String.fromCodePoint(this.codePoint(point, this.at));
      if (point !== 0x5c) this.at += point > 0xffff ? 2 : 1;
    }
    if (value === '')
      throw this.wrong('A text is empty: leave it out, or write [ … ] around what may be missing', begin);
    return { value, anyCase: this.take('i') };
  }

  /** As in Python, a backslash before any other character stands for itself. */
  #escape(): string {
    const begin = this.at++;
    const kind = this.next ?? '';
    const plain = Object.hasOwn(ESCAPES, kind) ? ESCAPES[kind] : undefined;
    if (plain !== undefined) {
      this.at++;
      return plain;
    }
    if (!Object.hasOwn(HEX_DIGITS, kind)) return '\\';
    const digits = HEX_DIGITS[kind]!;
    const hex = this.source.slice(this.at + 1, this.at + 1 + digits);
    if (hex.length < digits || !/^[0-9A-Fa-f]+$/.test(hex))
      throw this.wrong('There is no such escape', begin);
    this.at += 1 + digits;
    return String.fromCodePoint(this.codePoint(Number.parseInt(hex, 16), begin));
  }

  /** `/…/`, with flags behind it. */
  protected pattern(): { pattern: string; anyCase: boolean; dotAll: boolean } {
    const begin = this.at;
    const [, pattern, flags = ''] = this.match(PATTERN) ?? [];
    if (pattern === undefined) throw this.wrong('A pattern is not closed', begin);
    for (const flag of flags)
      if (!'imsu'.includes(flag)) throw this.wrong(`Patterns take no flag "${flag}"`, begin);
    return { pattern, anyCase: flags.includes('i'), dotAll: flags.includes('s') };
  }

  /** `%json` and a value behind it. */
  protected json(): { value: unknown } {
    const begin = this.at;
    if (!this.take('%json')) throw this.wrong('Within a rule %json {…} is taken', begin);
    this.match(LINES);
    const from = this.at;
    let depth = 0;
    for (let inText = false; !this.isAtEnd; this.at++) {
      if (inText) {
        if (this.next === '\\') this.at++;
        else if (this.next === '"') inText = false;
      } else if (this.next === '"') inText = true;
      else if (this.next === '{') depth++;
      else if (this.next === '}' && --depth === 0) break;
      if (depth === 0) break;
    }
    const source = this.source.slice(from, this.at + 1);
    this.at++;
    try {
      return { value: JSON.parse(source) as unknown };
    } catch {
      throw this.wrong('Behind %json stands a schema, as JSON: %json {"type": "number"}', begin);
    }
  }
}
