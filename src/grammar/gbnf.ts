/**
 * Grammars in the notation of llama.cpp (GBNF), and the EBNF that vLLM and SGLang take, which is nearly the same: rules `name ::= …`,
 * texts in double quotes, classes in brackets, `.`, groups, `|`, and `* + ? {n,m}` behind an item; single tokens by their text or id,
 * `<think>` and `<[1000]>`, and anything but one, `!<think>*`. Comments begin with `#`. The answer is what the rule `root` says.
 */

import { shown } from '../printable.js';
import { ANY_CODE_POINT, type CodePointRange, invertRanges, joinRanges } from './code-points.js';
import { type Expression, type Grammar, oneOf, repeat, rule, sequence, set, text } from './expression.js';
import { checkSource, MAX_DEPTH, tooLarge } from './limits.js';
import { SourceReader } from './source-reader.js';
import { NO_TOKENS, type TokenNames } from './token-names.js';

const ROOT = 'root';
/** What rules are called beside those of others, such as a tool format's. */
const named = (name: string): string => `grammar/${name}`;

/** Errors: `invalid-grammar` with line and column, `grammar-too-large`. */
export function gbnfGrammar(source: string, names: TokenNames = NO_TOKENS): Grammar {
  checkSource(source);
  return new GbnfParser(source, names).grammar();
}

const NAME = /[A-Za-z0-9_-]+/y;
const SPACE = /(?:[ \t\r\n]|#[^\n]*)*/y;
/** Where a rule's alternatives go on only within parentheses: the next rule begins with its name and a sign. */
const RULE_BEGIN = /[A-Za-z0-9_-]+[ \t]*::=/y;
const COUNTS = /\{[ \t]*(\d+)[ \t]*(,)?[ \t]*(\d+)?[ \t]*\}/y;
const ESCAPES: Readonly<Record<string, string>> = {
  n: '\n',
  r: '\r',
  t: '\t',
  '"': '"',
  "'": "'",
  '\\': '\\',
  '[': '[',
  ']': ']',
  '-': '-',
  '^': '^',
  '/': '/',
};
const HEX_DIGITS: Readonly<Record<string, number>> = { x: 2, u: 4, U: 8 };

class GbnfParser extends SourceReader {
  readonly #used = new Map<string, number>();
  #depth = 0;

  constructor(source: string, names: TokenNames) {
    super(source, names, 'Write it as llama.cpp has it (GBNF): root ::= "yes" | "no".');
  }

  grammar(): Grammar {
    const rules = new Map<string, Expression>();
    this.#skip();
    while (!this.isAtEnd) {
      const begin = this.at;
      const name = this.match(NAME)?.[0];
      if (name === undefined) throw this.wrong('A rule begins with its name');
      this.#skip();
      if (!this.take('::=')) throw this.wrong('Behind the name of a rule stands "::="');
      this.#skip();
      if (rules.has(named(name))) throw this.wrong(`The rule "${shown(name)}" is there twice`, begin);
      rules.set(named(name), this.#alternatives());
      if (!this.isAtEnd && !this.sees(RULE_BEGIN))
        throw this.wrong('Something stands here that a rule cannot have');
    }
    if (!rules.has(named(ROOT))) throw this.wrong('There is no rule "root"');
    for (const [name, at] of this.#used)
      if (!rules.has(named(name))) throw this.wrong(`There is no rule "${shown(name)}"`, at);
    return { rules, root: named(ROOT) };
  }

  #alternatives(): Expression {
    if (++this.#depth > MAX_DEPTH) throw tooLarge(`has more than ${MAX_DEPTH} groups within groups`);
    const items = [this.#sequence()];
    while (this.take('|')) {
      this.#skip();
      items.push(this.#sequence());
    }
    this.#depth--;
    return oneOf(items);
  }

  #sequence(): Expression {
    const items: Expression[] = [];
    for (;;) {
      const item = this.#item();
      if (item === null) return sequence(...items);
      items.push(this.#repeated(item));
    }
  }

  #item(): Expression | null {
    const first = this.next;
    switch (first) {
      case '"':
        this.at++;
        return text(this.#quoted());
      case '[':
        this.at++;
        return set(...this.#class());
      case '.':
        this.at++;
        return set(...ANY_CODE_POINT);
      case '(': {
        const begin = this.at++;
        this.#skip();
        const inner = this.#alternatives();
        if (!this.take(')')) throw this.wrong('A group is not closed', begin);
        return inner;
      }
      case '<':
        return this.token();
      case '!':
        return this.#notToken();
      default: {
        if (this.sees(RULE_BEGIN)) return null;
        const at = this.at;
        const name = this.match(NAME)?.[0];
        if (name === undefined) return null;
        if (!this.#used.has(name)) this.#used.set(name, at);
        return rule(named(name));
      }
    }
  }

  /** Text in which a special token does not stand: no special one does. */
  #notToken(): Expression {
    const begin = this.at++;
    const id = this.next === '<' ? this.token().id : -1;
    const sign = this.next;
    if (id < 0 || !this.names.isSpecial(id) || (sign !== '*' && sign !== '+'))
      throw this.wrong('What is left out is one special token, in text of any length: !<token>*', begin);
    return set(...ANY_CODE_POINT);
  }

  #repeated(item: Expression): Expression {
    let made = item;
    for (let times = 0; ; times++) {
      this.#skip();
      if (times > MAX_DEPTH) throw tooLarge('repeats what is repeated too often');
      if (this.take('*')) made = repeat(made, 0, null);
      else if (this.take('+')) made = repeat(made, 1, null);
      else if (this.take('?')) made = repeat(made, 0, 1);
      else if (this.next === '{') {
        const counts = this.match(COUNTS);
        if (counts === null) throw this.wrong('Counts are {n}, {n,} or {n,m}');
        const min = Number(counts[1]);
        const max = counts[2] === undefined ? min : counts[3] === undefined ? null : Number(counts[3]);
        if (max !== null && max < min) throw this.wrong('The most is less than the fewest');
        made = repeat(made, min, max);
      } else return made;
    }
  }

  #quoted(): string {
    const begin = this.at - 1;
    let value = '';
    for (;;) {
      const next = this.next;
      if (next === undefined || next === '\n') throw this.wrong('A text is not closed', begin);
      if (next === '"') {
        this.at++;
        return value;
      }
      value += String.fromCodePoint(this.#character());
    }
  }

  #class(): CodePointRange[] {
    const begin = this.at - 1;
    const negated = this.take('^');
    const ranges: CodePointRange[] = [];
    for (;;) {
      const next = this.next;
      if (next === undefined || next === '\n') throw this.wrong('A class is not closed', begin);
      if (this.take(']')) break;
      const low = this.#character();
      let high = low;
      if (this.next === '-' && this.source[this.at + 1] !== ']') {
        this.at++;
        if (this.isAtEnd) throw this.wrong('A class is not closed', begin);
        high = this.#character();
        if (high < low) throw this.wrong('A range goes from the higher to the lower');
      }
      ranges.push([low, high]);
    }
    return negated ? invertRanges(ranges) : joinRanges(ranges);
  }

  /** The next character, escaped or not. */
  #character(): number {
    const begin = this.at;
    const point = this.source.codePointAt(this.at)!;
    this.at += point > 0xffff ? 2 : 1;
    if (point !== 0x5c) return this.codePoint(point, begin);
    const kind = this.next ?? '';
    this.at++;
    const plain = Object.hasOwn(ESCAPES, kind) ? ESCAPES[kind] : undefined;
    if (plain !== undefined) return plain.codePointAt(0)!;
    const digits = Object.hasOwn(HEX_DIGITS, kind) ? HEX_DIGITS[kind]! : 0;
    const hex = this.source.slice(this.at, this.at + digits);
    if (digits === 0 || hex.length < digits || !/^[0-9A-Fa-f]+$/.test(hex))
      throw this.wrong('There is no such escape', begin);
    this.at += digits;
    return this.codePoint(Number.parseInt(hex, 16), begin);
  }

  #skip(): void {
    this.match(SPACE);
  }
}
