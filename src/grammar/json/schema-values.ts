/** What the parts of a schema reader ask of the whole: an object's properties and an array's items are values again. */

import type { Expression } from '../expression.js';
import type { Budget } from '../limits.js';
import type { NumberExpressions } from './number-bounds.js';
import type { Plain } from './plain.js';
import type { SchemaNode } from './schema-nodes.js';

export interface SchemaValues {
  readonly budget: Budget;
  readonly numbers: NumberExpressions;
  /** A value of which all these schemas hold, within another. Errors: those of the reader. */
  inner(nodes: readonly SchemaNode[]): Expression;
  /** What is left of these schemas, as alternatives. */
  alternatives(nodes: readonly SchemaNode[]): readonly Plain[];
  /** The values that `enum` and `const` leave, null without either. */
  listed(plain: Plain): readonly unknown[] | null;
  /** Whether a value is what these schemas say. */
  accepts(plain: Plain, value: unknown): boolean;
  /** The same text for values that are the same. */
  keyOf(value: unknown): string;
  /** Whether a pattern matches somewhere in a text. */
  matches(pattern: string, value: string): boolean;
  /** Makes a rule, of a name that no other has. */
  define(kind: string, expression: Expression): Expression;
  /** A name for a rule that is defined later. */
  rename(kind: string): string;
  defineAs(name: string, expression: Expression): void;
}
