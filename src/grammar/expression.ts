/**
 * What may be written, as an expression: the form that schemas, regular expressions, grammars and the formats of tool calls
 * become, and that automata are made of (compile.ts). Plain data. `yes` or `no`, then any number of exclamation marks:
 *
 *     sequence(choice(text('yes'), text('no')), repeat(text('!'), 0, null))
 */

import { KvantError } from '../errors.js';
import type { CodePointRange } from './code-points.js';
import type { Words } from './words.js';

export type Expression =
  /** This text, in UTF-8. */
  | { readonly kind: 'text'; readonly text: string }
  /** One byte of these: `[low, high]`. For what is no text. */
  | { readonly kind: 'byte'; readonly low: number; readonly high: number }
  /** One code point out of these, in UTF-8. */
  | { readonly kind: 'set'; readonly ranges: readonly CodePointRange[] }
  | { readonly kind: 'sequence'; readonly items: readonly Expression[] }
  /** One of these; of none of them there is nothing to write. */
  | { readonly kind: 'choice'; readonly items: readonly Expression[] }
  /** `max` null: without an end. */
  | {
      readonly kind: 'repeat';
      readonly item: Expression;
      readonly min: number;
      readonly max: number | null;
    }
  /**
   * `head`, then `item` from `min` to `max` times, then `tail`: counted when it is read instead of written out, so that any numbers
   * cost the same.
   */
  | {
      readonly kind: 'counted';
      readonly head: Expression;
      readonly item: Expression;
      readonly tail: Expression;
      readonly min: number;
      readonly max: number | null;
    }
  /** Items in this order with `separator` between those that are there; `more` any number of times behind them. */
  | {
      readonly kind: 'list';
      readonly items: readonly { readonly item: Expression; readonly optional: boolean }[];
      readonly more: Expression | null;
      readonly separator: Expression;
    }
  /** What another rule says. */
  | { readonly kind: 'rule'; readonly rule: string }
  /** One token, by its id: bytes never spell it. */
  | { readonly kind: 'token'; readonly id: number }
  /** A word that an automaton over code points accepts; `json`: as it stands between the quotes of a JSON string. */
  | { readonly kind: 'words'; readonly words: Words; readonly spelling: 'text' | 'json' }
  /**
   * The rest of a JSON string behind its opening quote: such a word and the closing quote. In the state `any` all may follow: `rule` has
   * the rest from there.
   */
  | { readonly kind: 'string-rest'; readonly words: Words; readonly any: number; readonly rule: string };

/** Rules by name, and the one that says what a whole answer is. */
export interface Grammar {
  readonly rules: ReadonlyMap<string, Expression>;
  readonly root: string;
}

const lasting = new WeakSet<Expression>();

/** Marks what is the same in all grammars that have it: its automaton is made once. It calls no rules, and counts nothing. */
export function lasts(expression: Expression): Expression {
  lasting.add(expression);
  return expression;
}

export const isLasting = (expression: Expression): boolean => lasting.has(expression);

export const NOTHING: Expression = { kind: 'choice', items: [] };
export const EMPTY: Expression = { kind: 'sequence', items: [] };

export const text = (value: string): Expression => ({ kind: 'text', text: value });
export const set = (...ranges: readonly CodePointRange[]): Expression => ({ kind: 'set', ranges });
export const sequence = (...items: readonly Expression[]): Expression => ({ kind: 'sequence', items });
export const choice = (...items: readonly Expression[]): Expression => oneOf(items);
/** The same for a list of any length. */
export const oneOf = (items: readonly Expression[]): Expression =>
  items.length === 1 ? items[0]! : { kind: 'choice', items };
export const repeat = (item: Expression, min: number, max: number | null): Expression => ({
  kind: 'repeat',
  item,
  min,
  max,
});
export const optional = (item: Expression): Expression => repeat(item, 0, 1);
export const rule = (name: string): Expression => ({ kind: 'rule', rule: name });
export const isNothing = (expression: Expression): boolean =>
  expression.kind === 'choice' && expression.items.length === 0;

/** The same with every expression directly inside it replaced by what `of` gives for it; one without any is given back as it is. */
export function withInner(expression: Expression, of: (inner: Expression) => Expression): Expression {
  switch (expression.kind) {
    case 'sequence':
    case 'choice':
      return { kind: expression.kind, items: expression.items.map(of) };
    case 'repeat':
      return { ...expression, item: of(expression.item) };
    case 'counted': {
      const { head, item, tail } = expression;
      return { ...expression, head: of(head), item: of(item), tail: of(tail) };
    }
    case 'list': {
      const { items, more, separator } = expression;
      return {
        kind: 'list',
        items: items.map(({ item, optional }) => ({ item: of(item), optional })),
        more: more === null ? null : of(more),
        separator: of(separator),
      };
    }
    default:
      return expression;
  }
}

/** Errors: `invalid-grammar`. */
export function invalidGrammar(message: string, fix: string): KvantError {
  return new KvantError('invalid-grammar', message, { kind: 'invalid-request', fix });
}
