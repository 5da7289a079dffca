/**
 * Grammars in the notation of Lark (https://lark-parser.readthedocs.io/en/stable/grammar.html), as vLLM and llguidance take them: rules in small
 * letters, terminals in capitals, `%ignore`, `%import common.NAME`; and of llguidance `%json {…}` and single tokens, `<|call|>` or `<[1000]>`. The
 * answer is what the rule `start` says.
 *
 * They stand for the texts that Lark's Earley parser reads with `lexer="dynamic_complete"`: a terminal is any text that it describes, wherever that
 * lets the rules go on. What shapes Lark's tree alone (`?`, `!`, `-> name`, priorities) changes no text.
 */

import { shown } from '../printable.js';
import {
  type Expression,
  type Grammar,
  oneOf,
  optional,
  repeat,
  rule,
  sequence,
  set,
  text,
} from './expression.js';
import { schemaGrammar } from './json/schema.js';
import { COMMON_NAMES, commonTerminal } from './lark-common.js';
import { LarkReader } from './lark-reader.js';
import { withoutLeftRecursion } from './left-recursion.js';
import { type Budget, checkSource, MAX_DEPTH, tooLarge } from './limits.js';
import { regexWords } from './regex.js';
import { Renamer } from './rename.js';
import { NO_TOKENS, type TokenNames } from './token-names.js';

const START = 'start';
/** The rule of what may stand before every terminal, and at the end. */
const IGNORED = 'grammar/%ignore';
const WHOLE = 'grammar/%whole';
/** What rules are called beside those of others, such as a tool format's. */
const named = (name: string): string => `grammar/${name}`;

const DEFINITION = /[?!]*(_?[A-Z][A-Z0-9_]*|_?[a-z][a-z0-9_]*)/y;
const NAME = /_?[A-Z][A-Z0-9_]*|_?[a-z][a-z0-9_]*/y;
const PRIORITY = /\.-?\d+/y;
const ALIAS = /->[ \t]*[A-Za-z_]\w*/y;
const DIRECTIVE = /%[a-z]+/y;
const COUNTS = /~[ \t]*(\d+)(?:[ \t]*\.\.[ \t]*(\d+))?/y;
const IMPORT = /[ \t]+([A-Za-z_.]+)/y;
const IMPORT_AS = /[ \t]*->[ \t]*([A-Z_][A-Z0-9_]*)/y;
const IMPORT_LIST = /[ \t]*\(([^()\n]*)\)/y;

/**
 * Errors: `invalid-grammar` with line and column, `invalid-pattern`, `grammar-too-large`; those of schemas for `%json`.
 *
 * @example
 * larkGrammar('start: "yes" | "no"', budget);
 */
export function larkGrammar(source: string, budget: Budget, names: TokenNames = NO_TOKENS): Grammar {
  checkSource(source);
  return new LarkParser(source, budget, names).grammar();
}

/** GBNF and EBNF have `::=` in every rule, Lark nowhere but in texts: as vLLM tells them apart. */
export function isLark(source: string): boolean {
  return (
    !/^[^"\n]*::=/m.test(source) &&
    /^[ \t]*(?:[?!]*\w+(?:\.-?\d+|\[[^\]\n]*\]|\{[^}\n]*\})?[ \t]*:|%[a-z])/m.test(source)
  );
}

class LarkParser extends LarkReader {
  readonly #budget: Budget;
  readonly #rules = new Map<string, Expression>();
  readonly #ignored: Expression[] = [];
  readonly #used = new Map<string, number>();
  readonly #ignores: boolean;
  /** What a terminal says has nothing ignored within. */
  #inTerminal = false;
  #schemas = 0;

  constructor(source: string, budget: Budget, names: TokenNames) {
    super(source, names);
    this.#budget = budget;
    this.#ignores = /^[ \t]*%ignore/m.test(source);
  }

  grammar(): Grammar {
    for (this.skipLines(); !this.isAtEnd; this.skipLines()) {
      if (this.next === '%') this.#directive();
      else this.#definition();
      this.endOfLine();
    }
    if (!this.#rules.has(named(START))) throw this.wrong('There is no rule "start"', 0);
    for (const [name, at] of this.#used)
      if (!this.#rules.has(named(name)))
        throw this.wrong(`There is no ${isTerminal(name) ? 'terminal' : 'rule'} "${name}"`, at);
    const rules = withoutLeftRecursion(this.#rules);
    if (!this.#ignores) return { rules, root: named(START) };
    rules.set(IGNORED, repeat(oneOf(this.#ignored), 0, null));
    rules.set(WHOLE, sequence(rule(named(START)), rule(IGNORED)));
    return { rules, root: WHOLE };
  }

  #definition(): void {
    const begin = this.at;
    const name = this.match(DEFINITION)?.[1];
    if (name === undefined) throw this.wrong('A rule begins with its name, in small letters or in capitals');
    if (this.next === '{') throw this.wrong('Rules with parameters are not taken: write one for each use');
    if (this.next === '[') throw this.wrong('Attributes of rules are not taken');
    this.match(PRIORITY);
    this.skip();
    if (!this.take(':')) throw this.wrong('Behind the name of a rule stands ":"');
    this.#inTerminal = isTerminal(name);
    this.#define(name, this.#alternatives(), begin);
  }

  #define(name: string, expression: Expression, begin: number): void {
    if (this.#rules.has(named(name))) throw this.wrong(`"${name}" is there twice`, begin);
    this.#rules.set(named(name), expression);
  }

  #directive(): void {
    const begin = this.at;
    const word = this.match(DIRECTIVE)?.[0];
    switch (word) {
      case '%ignore':
        this.#inTerminal = true;
        this.#ignored.push(this.#alternatives());
        return;
      case '%import':
        this.#import(begin);
        return;
      default:
        throw this.wrong('Of directives %ignore and %import are taken', begin);
    }
  }

  /** `%import common.NAME -> OTHER` or `%import common (NAME, OTHER)`. */
  #import(begin: number): void {
    const [library = '', ...path] = (this.match(IMPORT)?.[1] ?? '').split('.');
    if (library !== 'common')
      throw this.wrong('What is imported comes from "common": %import common.WS', begin);
    const list = path.length === 0 ? this.match(IMPORT_LIST)?.[1] : undefined;
    const wanted = list === undefined ? path : list.split(',').map((name) => name.trim());
    const as = list === undefined ? this.match(IMPORT_AS)?.[1] : undefined;
    for (const name of wanted.length === 0 ? [''] : wanted) {
      const pattern = commonTerminal(name);
      if (pattern === undefined)
        throw this.wrong(
          `"common" has no terminal "${shown(name)}"; it has ${COMMON_NAMES.join(', ')}`,
          begin,
        );
      this.#define(as ?? name, this.#words(pattern), begin);
    }
  }

  #alternatives(): Expression {
    if (++this.depth > MAX_DEPTH) throw tooLarge(`has more than ${MAX_DEPTH} groups within groups`);
    const items: Expression[] = [];
    do {
      items.push(this.#sequence());
      if (this.match(ALIAS) !== null) this.skip();
    } while (this.take('|'));
    this.depth--;
    return oneOf(items);
  }

  #sequence(): Expression {
    const items: Expression[] = [];
    for (;;) {
      this.skip();
      const item = this.#item();
      if (item === null) return sequence(...items);
      items.push(this.#repeated(item));
    }
  }

  #item(): Expression | null {
    switch (this.next) {
      case '(':
      case '[':
        return this.#group();
      case '"':
        return this.#terminal(this.#text());
      case '/': {
        const { pattern, anyCase, dotAll } = this.pattern();
        return this.#terminal(this.#words(pattern, { anyCase, dotAll }));
      }
      case '<':
        return this.#terminal(this.token());
      case '%':
        return this.#terminal(this.#schema());
      default:
        return this.#named();
    }
  }

  #group(): Expression {
    const begin = this.at;
    const isOptional = this.take('[');
    if (!isOptional) this.at++;
    const inner = this.#alternatives();
    if (!this.take(isOptional ? ']' : ')')) throw this.wrong('A group is not closed', begin);
    return isOptional ? optional(inner) : inner;
  }

  #named(): Expression | null {
    const at = this.at;
    const name = this.match(NAME)?.[0];
    if (name === undefined) return null;
    if (this.next === '{')
      throw this.wrong('Rules with parameters are not taken: write one for each use', at);
    if (!this.#used.has(name)) this.#used.set(name, at);
    if (isTerminal(name)) return this.#terminal(rule(named(name)));
    if (this.#inTerminal) throw this.wrong('A terminal is made of texts, patterns and terminals', at);
    return rule(named(name));
  }

  /** A text, or a range of characters: `"a".."z"`. */
  #text(): Expression {
    const begin = this.at;
    const { value, anyCase } = this.quoted();
    if (!this.take('..')) return anyCase ? this.#words(escaped(value), { anyCase }) : text(value);
    const end = this.next === '"' ? this.quoted() : null;
    const ends = [value, end?.value ?? ''].map((one) => [...one]);
    if (end === null || anyCase || end.anyCase || ends.some((one) => one.length !== 1))
      throw this.wrong('A range is between two characters: "a".."z"', begin);
    const [low, high] = ends.map(([character]) => character!.codePointAt(0)!);
    if (high! < low!) throw this.wrong('A range goes from the higher to the lower', begin);
    return set([low!, high!]);
  }

  #words(pattern: string, options: { anyCase?: boolean; dotAll?: boolean } = {}): Expression {
    const words = regexWords(pattern, false, this.#budget, { ...options, part: true });
    return { kind: 'words', words, spelling: 'text' };
  }

  #schema(): Expression {
    const { value } = this.json();
    const renamer = new Renamer(`grammar/%json-${this.#schemas++}:`);
    const made = schemaGrammar(value, this.#budget);
    for (const [name, expression] of renamer.rules(made)) this.#rules.set(name, expression);
    return rule(renamer.name(made.root));
  }

  /** With what is ignored before it, unless it is part of a terminal. */
  #terminal(item: Expression): Expression {
    return this.#inTerminal || !this.#ignores ? item : sequence(rule(IGNORED), item);
  }

  #repeated(item: Expression): Expression {
    this.skip();
    if (this.take('*')) return repeat(item, 0, null);
    if (this.take('+')) return repeat(item, 1, null);
    if (this.take('?')) return optional(item);
    const begin = this.at;
    const counts = this.match(COUNTS);
    if (counts === null) return item;
    const min = Number(counts[1]);
    const max = counts[2] === undefined ? min : Number(counts[2]);
    if (max < min) throw this.wrong('The most is less than the fewest', begin);
    return repeat(item, min, max);
  }
}

const isTerminal = (name: string): boolean => /^_?[A-Z]/.test(name);

/** A pattern of this text. */
const escaped = (value: string): string => value.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&');
