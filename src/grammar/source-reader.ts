/** Reads the text of a grammar from left to right, and says where it is wrong. */

import { KvantError } from '../errors.js';
import { shown } from '../printable.js';
import type { Expression } from './expression.js';
import type { TokenNames } from './token-names.js';

const TOKEN = /<(?:\[(\d{1,9})\]|[^<>\s[][^<>\n]*)>/y;

export class SourceReader {
  readonly source: string;
  readonly names: TokenNames;
  readonly #fix: string;
  at = 0;

  /** `fix`: how a grammar in this notation looks. */
  constructor(source: string, names: TokenNames, fix: string) {
    this.source = source;
    this.names = names;
    this.#fix = fix;
  }

  get next(): string | undefined {
    return this.source[this.at];
  }

  get isAtEnd(): boolean {
    return this.at >= this.source.length;
  }

  take(sign: string): boolean {
    if (!this.source.startsWith(sign, this.at)) return false;
    this.at += sign.length;
    return true;
  }

  /** `pattern`: sticky. */
  sees(pattern: RegExp): boolean {
    pattern.lastIndex = this.at;
    return pattern.test(this.source);
  }

  /** `pattern`: sticky. */
  match(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.source);
    if (found !== null) this.at += found[0].length;
    return found;
  }

  /** A single token: its text, brackets included, or its id in `<[…]>`. */
  token(): Extract<Expression, { kind: 'token' }> {
    const begin = this.at;
    const [all, digits] = this.match(TOKEN) ?? [];
    if (all === undefined) throw this.wrong('A token is written <text> or <[id]>');
    const id = digits === undefined ? this.names.idOf(all) : Number(digits);
    if (id === undefined || id >= this.names.size)
      throw this.wrong(`The model has no token ${shown(all)}`, begin);
    return { kind: 'token', id };
  }

  /** Errors: `invalid-grammar` for what is half of a surrogate pair or no code point at all. */
  codePoint(point: number, begin: number): number {
    if (point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
      throw this.wrong('This is no character', begin);
    return point;
  }

  wrong(what: string, at = this.at): KvantError {
    const lines = this.source.slice(0, at).split('\n');
    return new KvantError(
      'invalid-grammar',
      `${what} (line ${lines.length}, column ${lines.at(-1)!.length + 1} of the grammar).`,
      { kind: 'invalid-request', where: 'grammar', fix: this.#fix },
    );
  }
}
