/** What schemas say of an array: items by place and the others, how many, and what some of them are. */

import { choice, EMPTY, type Expression, isNothing, NOTHING, repeat, sequence } from '../expression.js';
import { countedKind, differentItems } from './places.js';
import { boundsOf, type Plain } from './plain.js';
import { nodeAt, nodesAt, type SchemaNode, unsupported } from './schema-nodes.js';
import type { SchemaValues } from './schema-values.js';
import { braces, COMMA, list, SPACE } from './terminals.js';

interface Item {
  readonly item: Expression;
  readonly optional: boolean;
}

/** Errors: those of the values. */
export function arrayExpression(plain: Plain, values: SchemaValues): Expression {
  const { min, max } = boundsOf(plain, 'minItems', 'maxItems');
  const firsts = plain.map((node) => nodesAt(node, 'prefixItems'));
  const known = Math.max(0, ...firsts.map(({ length }) => length));
  const nodesOf = (i: number): SchemaNode[] =>
    plain.flatMap((node, n) => {
      const own = firsts[n]![i];
      if (own !== undefined) return [own];
      return node.schema.items === undefined ? [] : [nodeAt(node, 'items')];
    });
  const itemAt = (i: number): Expression => values.inner(nodesOf(i));
  if (max !== null && max < min) return NOTHING;
  const listed = Math.min(known, max ?? known);
  const heads = Array.from({ length: listed }, (_, i) => itemAt(i));
  // What cannot be an item ends the array before it.
  const broken = heads.findIndex(isNothing);
  const rest = broken >= 0 || (max !== null && max <= known) ? NOTHING : itemAt(known);
  const most = broken >= 0 ? broken : isNothing(rest) ? listed : max;
  if (most !== null && most < min) return NOTHING;
  const places = { nodesOf, known, min, max: most };
  const different = plain.find(({ schema }) => schema.uniqueItems === true);
  const kinds = plain.filter(({ schema }) => schema.contains !== undefined);
  const [kind, other] = kinds.filter(countsAnything);
  if (different !== undefined && (most === null || most > 1)) {
    if (kind !== undefined)
      throw unsupported(different.pointer, 'uniqueItems', 'Write it without `contains` beside it.');
    return differentItems(different.pointer, places, values);
  }
  if (kind !== undefined) {
    if (other !== undefined)
      throw unsupported(other.pointer, 'contains', 'One of them is taken: put what both say into one.');
    return countedKind(kind, places, values);
  }
  const usable = broken >= 0 ? heads.slice(0, broken) : heads;
  const items = usable.map((item, i) => ({ item, optional: i >= min }));
  if (isNothing(rest)) return braces('[', prefixList(items), ']');
  return withRest(items, rest, Math.max(0, min - usable.length), most === null ? null : most - usable.length);
}

/** What is at least none, and at most any, says nothing. */
const countsAnything = ({ schema }: Plain[number]): boolean =>
  schema.minContains !== 0 || schema.maxContains !== undefined;

/** Items by their places, then `rest` from `least` to `more` times. */
function withRest(items: readonly Item[], rest: Expression, least: number, more: number | null): Expression {
  if (more === null && least === 0) {
    if (items.length === 0) return braces('[', list([], rest), ']');
    const one = sequence(rest, SPACE);
    const some = sequence(one, repeat(sequence(COMMA, one), 0, null));
    return braces('[', prefixList(items, some), ']');
  }
  // `rest`, counted: one, and then more with a comma before each.
  const spaced = sequence(rest, SPACE);
  const counted: Expression = {
    kind: 'counted',
    head: spaced,
    item: sequence(COMMA, spaced),
    tail: EMPTY,
    min: Math.max(0, least - 1),
    max: more === null ? null : more - 1,
  };
  if (items.length > 0) return braces('[', prefixList(items, counted, least > 0), ']');
  return braces('[', least === 0 ? choice(EMPTY, counted) : counted, ']');
}

/** Items that stand in a row, all behind an optional one optional too; `rest` behind the last of them. */
function prefixList(items: readonly Item[], rest: Expression | null = null, needsRest = false): Expression {
  let tail: Expression = EMPTY;
  if (rest !== null) {
    const behind = sequence(COMMA, rest);
    tail = needsRest ? behind : choice(EMPTY, behind);
  }
  for (let i = items.length - 1; i >= 0; i--) {
    const { item, optional } = items[i]!;
    const here = sequence(...(i > 0 ? [COMMA] : []), item, SPACE, tail);
    tail = optional ? choice(EMPTY, here) : here;
  }
  return tail;
}
