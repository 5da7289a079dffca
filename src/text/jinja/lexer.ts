import { TemplateSyntaxError } from './errors.js';
import { escapeCode } from './quote.js';
import { strip, WHITESPACE_CLASS } from './text.js';

export type TokenType =
  | 'data'
  | 'block_begin'
  | 'block_end'
  | 'variable_begin'
  | 'variable_end'
  | 'name'
  | 'string'
  | 'integer'
  | 'float'
  | 'operator'
  | 'eof';

export interface Token {
  readonly type: TokenType;
  readonly text: string;
  /** What a number or a string stands for. */
  readonly value: bigint | number | string;
  readonly line: number;
}

const S = `[${WHITESPACE_CLASS}]`;
/** What ends the text before it: a raw block, or the front of a tag with its sign. */
const FRONT = new RegExp(`\\{%([-+]?)${S}*raw${S}*(?:-%\\}${S}*|%\\})|(\\{\\{|\\{%|\\{#)([-+]?)`, 'g');
const RAW_END = new RegExp(`\\{%([-+]?)${S}*endraw${S}*(?:\\+%\\}|-%\\}${S}*|%\\}\\n?)`, 'g');
const COMMENT_END = new RegExp(`\\+#\\}|-#\\}${S}*|#\\}\\n?`, 'g');
const BLOCK_END = new RegExp(`\\+%\\}|-%\\}${S}*|%\\}\\n?`, 'y');
const VARIABLE_END = new RegExp(`-\\}\\}${S}*|\\}\\}`, 'y');

const SPACE = new RegExp(`${S}+`, 'y');
const FLOAT = /(?<!\.)(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?e[+-]?(?:\d+_)*\d+|\.(?:\d+_)*\d+)/iy;
const INTEGER = /0b(?:_?[01])+|0o(?:_?[0-7])+|0x(?:_?[\da-f])+|[1-9](?:_?\d)*|0(?:_?0)*/iy;
const NAME = /[\p{L}\p{M}\p{N}\p{Pc}]+/uy;
const IDENTIFIER = /^[\p{XID_Start}_]\p{XID_Continue}*$/u;
const STRING = /'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*"/sy;
const OPERATOR = /\/\/|\*\*|==|!=|>=|<=|[-+/*%~[\](){}><=.:|,;]/y;

const CLOSERS: Readonly<Record<string, string>> = { '{': '}', '(': ')', '[': ']' };

/**
 * The tokens of a template, as Jinja reads them with `trim_blocks` and `lstrip_blocks`: a tag's own line leaves
 * nothing behind.
 *
 * @throws TemplateSyntaxError
 */
export function tokenize(template: string): Token[] {
  return new Lexer(template).tokens();
}

class Lexer {
  readonly #source: string;
  readonly #tokens: Token[] = [];
  #at = 0;
  #line = 1;
  /** The last token ended at the end of a line, or none came yet. */
  #lineStarting = true;

  constructor(template: string) {
    const source = template.replace(/\r\n?/g, '\n');
    // One line end at the end of the template is not part of it.
    this.#source = source.endsWith('\n') ? source.slice(0, -1) : source;
  }

  tokens(): Token[] {
    while (this.#at < this.#source.length) this.#root();
    this.#push('eof', '');
    return this.#tokens;
  }

  #push(type: TokenType, text: string, value: Token['value'] = text): void {
    this.#tokens.push({ type, text, value, line: this.#line });
  }

  #advance(to: number): void {
    const passed = this.#source.slice(this.#at, to);
    this.#line += passed.split('\n').length - 1;
    this.#lineStarting = passed.endsWith('\n');
    this.#at = to;
  }

  #fail(message: string): never {
    throw new TemplateSyntaxError(message, this.#line);
  }

  /** The next match from here on. */
  #find(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.#at;
    return pattern.exec(this.#source);
  }

  /** Text up to the next tag, and the tag. */
  #root(): void {
    const front = this.#find(FRONT);
    if (front === null) {
      this.#data(this.#source.slice(this.#at));
      this.#advance(this.#source.length);
      return;
    }
    const [whole, rawSign, opening, sign] = front;
    const text = this.#source.slice(this.#at, front.index);
    this.#data(this.#stripped(text, opening === undefined ? rawSign! : sign!, opening === '{{'));
    this.#advance(front.index + whole.length);
    if (opening === undefined) this.#raw();
    else if (opening === '{#') this.#comment();
    else this.#tag(opening === '{{' ? 'variable' : 'block');
  }

  #data(text: string): void {
    if (text !== '') this.#push('data', text);
  }

  /** The text before a tag: a `-` takes all white space off it, a tag alone in front of its line that line's. */
  #stripped(text: string, sign: string, variable: boolean): string {
    if (sign === '-') return strip(text, undefined, 'right');
    if (sign === '+' || variable) return text;
    const line = text.lastIndexOf('\n') + 1;
    if (line === 0 && !this.#lineStarting) return text;
    const rest = text.slice(line);
    return rest !== '' && strip(rest) === '' ? text.slice(0, line) : text;
  }

  #raw(): void {
    const end = this.#find(RAW_END);
    if (end === null) {
      // Jinja misses it only where something follows.
      if (this.#at < this.#source.length) this.#fail('Missing end of raw directive');
      return;
    }
    this.#data(this.#stripped(this.#source.slice(this.#at, end.index), end[1]!, false));
    this.#advance(end.index + end[0].length);
  }

  #comment(): void {
    const end = this.#find(COMMENT_END);
    if (end === null) {
      if (this.#at < this.#source.length) this.#fail('Missing end of comment tag');
      return;
    }
    this.#advance(end.index + end[0].length);
  }

  #tag(kind: 'variable' | 'block'): void {
    this.#push(`${kind}_begin`, '');
    const open: string[] = [];
    const ending = kind === 'variable' ? VARIABLE_END : BLOCK_END;
    for (;;) {
      const end = open.length === 0 ? this.#find(ending) : null;
      if (end !== null) {
        this.#push(`${kind}_end`, '');
        this.#advance(end.index + end[0].length);
        return;
      }
      if (this.#at >= this.#source.length) return;
      this.#expressionToken(open);
    }
  }

  #expressionToken(open: string[]): void {
    const space = this.#find(SPACE);
    if (space !== null) {
      this.#advance(this.#at + space[0].length);
      return;
    }
    const text = this.#readToken(open);
    this.#advance(this.#at + text.length);
  }

  /** Pushes the token that begins here, and returns its text. */
  #readToken(open: string[]): string {
    const take = (pattern: RegExp): string | undefined => this.#find(pattern)?.[0];
    const float = take(FLOAT);
    if (float !== undefined) {
      this.#push('float', float, Number(float.replaceAll('_', '')));
      return float;
    }
    const integer = take(INTEGER);
    if (integer !== undefined) {
      this.#push('integer', integer, BigInt(integer.replaceAll('_', '').toLowerCase()));
      return integer;
    }
    const name = take(NAME);
    if (name !== undefined) {
      if (!IDENTIFIER.test(name)) this.#fail('Invalid character in identifier');
      this.#push('name', name);
      return name;
    }
    const string = take(STRING);
    if (string !== undefined) {
      this.#push('string', string, this.#unescape(string.slice(1, -1)));
      return string;
    }
    const operator = take(OPERATOR);
    if (operator === undefined) this.#fail(`unexpected char ${JSON.stringify(this.#source[this.#at])}`);
    this.#balance(operator, open);
    this.#push('operator', operator);
    return operator;
  }

  #balance(operator: string, open: string[]): void {
    const closer = CLOSERS[operator];
    if (closer !== undefined) open.push(closer);
    else if (operator === '}' || operator === ')' || operator === ']') {
      const expected = open.pop();
      if (expected === undefined) this.#fail(`unexpected '${operator}'`);
      if (expected !== operator) this.#fail(`unexpected '${operator}', expected '${expected}'`);
    }
  }

  /** The escapes of Python's strings; what is none stays as it is, with its backslash. */
  #unescape(text: string): string {
    return text.replace(
      /\\(?:([0-7]{1,3})|x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|([xuUN])|(\n)|(.))/gsu,
      (
        whole,
        octal?: string,
        byte?: string,
        short?: string,
        long?: string,
        broken?: string,
        line?: string,
        other?: string,
      ) => {
        if (broken !== undefined) this.#fail(`a string holds the broken or unsupported escape ${whole}`);
        if (line !== undefined) return '';
        const hex = byte ?? short ?? long;
        const code =
          octal !== undefined ? Number.parseInt(octal, 8) : hex !== undefined ? Number.parseInt(hex, 16) : -1;
        if (code > 0x10ffff) this.#fail('a string holds a character beyond Unicode');
        if (code >= 0) return String.fromCodePoint(code);
        const known = ESCAPED[other!];
        if (known !== undefined) return known;
        // Jinja spells what is not ASCII as an escape first, whose backslash this one then escapes.
        return other! > '\x7f' ? escapeCode(other!) : whole;
      },
    );
  }
}

const ESCAPED: Readonly<Record<string, string>> = {
  '\\': '\\',
  "'": "'",
  '"': '"',
  a: '\x07',
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
  v: '\v',
};
