/** Grammars of JSON values in the notation of Gemma's families: no white space, names bare, texts between marks as they are. */
import {
  EMPTY,
  type Expression,
  type Grammar,
  NOTHING,
  rule,
  sequence,
  text,
  withInner,
} from '../../grammar/expression.js';
import { COLON, SPACE_RULE } from '../../grammar/json/terminals.js';
import { ANY_JSON_CHARACTER } from '../../grammar/json-characters.js';
import type { Budget } from '../../grammar/limits.js';
import { wordsWithout } from '../../grammar/triggered.js';
import { intersectWords, type Words, wordsOfLength } from '../../grammar/words.js';

const BARE_NAME = /^[\w.$-]+$/;

/** Turns a grammar of JSON into one of the notation, its rules under names of their own. */
export class BracedValues {
  readonly #prefix: string;
  readonly #quote: string;
  readonly #mark: Expression;
  readonly #budget: Budget;
  /** Texts that do not end before they should. */
  readonly #texts: Words;
  readonly #known = new Map<Expression, Expression>();

  /** `mark`: how the quote is written. Errors, here and below: `grammar-too-large`. */
  constructor(prefix: string, quote: string, mark: Expression, budget: Budget) {
    this.#prefix = prefix;
    this.#quote = quote;
    this.#mark = mark;
    this.#budget = budget;
    this.#texts = wordsWithout([quote], budget);
  }

  name(of: string): string {
    return this.#prefix + of;
  }

  rules({ rules }: Pick<Grammar, 'rules'>): [string, Expression][] {
    return [...rules].map(([name, expression]) => [this.name(name), this.of(expression)]);
  }

  of(expression: Expression): Expression {
    let made = this.#known.get(expression);
    if (made === undefined) {
      made = this.#make(expression);
      this.#known.set(expression, made);
    }
    return made;
  }

  #make(expression: Expression): Expression {
    switch (expression.kind) {
      case 'rule':
        return expression.rule === SPACE_RULE ? EMPTY : rule(this.name(expression.rule));
      case 'text':
        return this.#literal(expression.text);
      case 'words':
        return this.#words(expression.words);
      case 'string-rest':
        // Its opening quote stands before it.
        return sequence(this.#words(expression.words), this.#mark);
      case 'sequence':
        return { kind: 'sequence', items: this.#members(expression.items) };
      case 'counted': {
        const { head, item, tail, min, max } = expression;
        if (item !== ANY_JSON_CHARACTER) return withInner(expression, (inner) => this.of(inner));
        const words =
          min === 0 && max === null ? this.#texts : this.#limited(wordsOfLength(min, max, this.#budget));
        return sequence(this.of(head), { kind: 'words', words, spelling: 'text' }, this.of(tail));
      }
      default:
        return withInner(expression, (inner) => this.of(inner));
    }
  }

  /** A name that is spelled out before its colon stands without quotes. */
  #members(items: readonly Expression[]): Expression[] {
    return items.map((item, i) => {
      if (item.kind !== 'text' || items[i + 1] !== COLON) return this.of(item);
      const name = JSON.parse(item.text) as string;
      return BARE_NAME.test(name) ? text(name) : this.of(item);
    });
  }

  /** A quote by itself, a text in quotes, or what is no text. */
  #literal(source: string): Expression {
    if (source === '"') return this.#mark;
    if (!source.startsWith('"')) return text(source);
    const value = JSON.parse(source) as string;
    return value.includes(this.#quote) ? NOTHING : sequence(this.#mark, text(value), this.#mark);
  }

  #words(words: Words): Expression {
    return { kind: 'words', words: this.#limited(words), spelling: 'text' };
  }

  #limited(words: Words): Words {
    return intersectWords(words, this.#texts, this.#budget);
  }
}
