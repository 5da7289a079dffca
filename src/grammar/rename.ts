/** Puts grammars together: rules of one are kept apart from those of another. */

import { type Expression, type Grammar, withInner } from './expression.js';

export interface RenameOptions {
  /** Rules that keep their names: those that mean the same in all grammars. */
  readonly shared?: ReadonlySet<string>;
  /** Replaces texts that stand by themselves. */
  readonly text?: (text: string) => string;
}

/** The same with a prefix before the names of its rules. What is one object stays one. */
export class Renamer {
  readonly #prefix: string;
  readonly #shared: ReadonlySet<string>;
  readonly #text: (text: string) => string;
  readonly #known = new Map<Expression, Expression>();

  constructor(prefix: string, { shared = new Set(), text = (same) => same }: RenameOptions = {}) {
    this.#prefix = prefix;
    this.#shared = shared;
    this.#text = text;
  }

  name(rule: string): string {
    return this.#shared.has(rule) ? rule : this.#prefix + rule;
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
        return { kind: 'rule', rule: this.name(expression.rule) };
      case 'text':
        return { kind: 'text', text: this.#text(expression.text) };
      case 'string-rest':
        return { ...expression, rule: this.name(expression.rule) };
      default:
        return withInner(expression, (inner) => this.of(inner));
    }
  }
}
