/** What schemas say of an object: properties by name, by pattern and the others, and how many. */

import {
  choice,
  EMPTY,
  type Expression,
  isNothing,
  NOTHING,
  oneOf,
  repeat,
  rule,
  sequence,
  text,
} from '../expression.js';
import type { Budget } from '../limits.js';
import { regexWords } from '../regex.js';
import { hasNoWords, intersectWords, listedWords, otherWords, type Words } from '../words.js';
import { boundsOf, type Plain, type PlainNode, requiredOf } from './plain.js';
import { nodeAt, type SchemaNode, type SchemaObject, unsupported } from './schema-nodes.js';
import type { SchemaValues } from './schema-values.js';
import { at, stringOf, stringWords } from './strings.js';
import { ANY, braces, COMMA, list, member, SPACE } from './terminals.js';

interface Member {
  readonly item: Expression;
  readonly optional: boolean;
}

/** Properties that may be left out, of which an object has more than this, are not put into one automaton. */
const MANY_OPTIONAL = 8;

/** Errors: those of the values. */
export function objectExpression(plain: Plain, values: SchemaValues): Expression {
  const required = new Set(requiredOf(plain));
  const names = namesOf(plain);
  values.budget.spend(4 * names.length * plain.length);
  const allowed = nameWords(plain, values);
  const members: Member[] = [];
  for (const name of names) {
    const mayBe = allowed.every(({ accepts }) => accepts(name));
    const value = mayBe ? values.inner(plain.flatMap((node) => schemasOf(node, name, values))) : NOTHING;
    if (!isNothing(value))
      members.push({ item: member(text(JSON.stringify(name)), value), optional: !required.has(name) });
    else if (required.has(name)) return NOTHING;
  }
  const extras = extrasOf(plain, names, allowed, values);
  const more = extras.length === 0 ? null : oneOf(extras);
  const counts = countsOf(plain, members, more !== null);
  if (counts === null) return NOTHING;
  if (counts.max !== null && more !== null) return countedMembers(more, counts.min, counts.max);
  const inner =
    members.filter(({ optional }) => optional).length > MANY_OPTIONAL
      ? longList(members, more, counts.min > 0, values)
      : counts.min > 0
        ? nonEmptyList(members, more)
        : list(members, more);
  return braces('{', inner, '}');
}

/** Names that a schema of objects spells out, in its order. */
export const namesOf = (plain: Plain): string[] => [
  ...new Set([...plain.flatMap(({ schema }) => Object.keys(schema.properties ?? {})), ...requiredOf(plain)]),
];

/** What one schema says of the property of a name. */
export function schemasOf(node: PlainNode, name: string, values: SchemaValues): SchemaNode[] {
  const { properties = {}, patternProperties = {} } = node.schema as Record<string, SchemaObject>;
  const found: SchemaNode[] = [];
  if (Object.hasOwn(properties, name)) found.push(nodeAt(node, 'properties', name));
  for (const pattern of Object.keys(patternProperties))
    if (at(`${node.pointer}/patternProperties`, () => values.matches(pattern, name)))
      found.push(nodeAt(node, 'patternProperties', pattern));
  if (found.length === 0 && node.schema.additionalProperties !== undefined)
    found.push(nodeAt(node, 'additionalProperties'));
  return found;
}

interface AllowedNames {
  readonly words: Words | 'any';
  accepts(name: string): boolean;
}

/** What `propertyNames` says of names. */
function nameWords(plain: Plain, values: SchemaValues): AllowedNames[] {
  const { budget } = values;
  return plain.flatMap((node): AllowedNames[] => {
    if (node.schema.propertyNames === undefined) return [];
    const found = values.alternatives([nodeAt(node, 'propertyNames')]);
    if (found.length === 0) return [{ words: NO_WORDS, accepts: () => false }];
    const [names, other] = found as [Plain, ...Plain[]];
    if (other !== undefined)
      throw unsupported(node.pointer, 'propertyNames', 'Write one `pattern`, or an `enum`.');
    const listed = values.listed(names);
    const words =
      listed === null
        ? stringsOf(names, budget)
        : listedWords(
            listed.filter((value) => typeof value === 'string'),
            budget,
          );
    return [{ words, accepts: (name) => values.accepts(names, name) }];
  });
}

const NO_WORDS: Words = { edges: [[]], final: [false] };

function stringsOf(names: Plain, budget: Budget): Words | 'any' {
  const types = names.flatMap(({ schema }) => (schema.type === undefined ? [] : [schema.type].flat()));
  return types.length > 0 && !types.includes('string') ? NO_WORDS : stringWords(names, budget);
}

/** Properties that are not named: their names and values. */
function extrasOf(
  plain: Plain,
  names: readonly string[],
  allowed: readonly AllowedNames[],
  values: SchemaValues,
): Expression[] {
  interface Part {
    /** Null for all names. */
    readonly words: Words | null;
    readonly schemas: readonly SchemaNode[];
  }
  const named = plain.some(({ schema }) => schema.patternProperties !== undefined);
  if (!named && plain.some(({ schema }) => schema.additionalProperties === false)) return [];
  const { budget } = values;
  let free = names.length === 0 ? null : otherWords(listedWords(names, budget), budget);
  for (const { words } of allowed) if (words !== 'any') free = both(free, words, budget);
  let parts: Part[] = [{ words: free, schemas: [] }].filter(isUsed);
  for (const node of plain) {
    const { patternProperties = {}, additionalProperties } = node.schema as Record<string, SchemaObject>;
    // A part whose names no pattern of this schema has matched so far.
    let open = parts;
    const closed: Part[] = [];
    for (const pattern of Object.keys(patternProperties)) {
      const words = at(`${node.pointer}/patternProperties`, () => regexWords(pattern, true, budget));
      const others = otherWords(words, budget);
      const schema = nodeAt(node, 'patternProperties', pattern);
      const split = (parts: readonly Part[]): [Part[], Part[]] => {
        const inside = parts.map((part) => ({
          words: both(part.words, words, budget),
          schemas: [...part.schemas, schema],
        }));
        const outside = parts.map((part) => ({ ...part, words: both(part.words, others, budget) }));
        return [inside.filter(isUsed), outside.filter(isUsed)];
      };
      const [matched, unmatched] = split(open);
      const [again, not] = split(closed.splice(0));
      closed.push(...matched, ...again, ...not);
      open = unmatched;
      budget.spend(10 * closed.length);
    }
    if (additionalProperties !== undefined)
      open = open.map((part) => ({
        ...part,
        schemas: [...part.schemas, nodeAt(node, 'additionalProperties')],
      }));
    parts = [...closed, ...open];
  }
  return parts.flatMap(({ words, schemas }) => {
    const value = values.inner(schemas);
    if (isNothing(value)) return [];
    const name =
      words === null
        ? rule(ANY.STRING)
        : // A rule of its own: it stands in many places of an object.
          values.define('name', stringOf(words));
    return [member(name, value)];
  });
}

const both = (a: Words | null, b: Words, budget: Budget): Words =>
  a === null ? b : intersectWords(a, b, budget);
const isUsed = ({ words }: { readonly words: Words | null }): boolean => words === null || !hasNoWords(words);

/**
 * How many properties there have to be besides what holds anyway, 0 or 1, and the most where they have to be counted; null where there
 * cannot be so many. Names that are not spelled out may come twice, and are one property then: so more than one cannot be asked for.
 */
function countsOf(
  plain: Plain,
  members: readonly Member[],
  more: boolean,
): { readonly min: number; readonly max: number | null } | null {
  const { min, max } = boundsOf(plain, 'minProperties', 'maxProperties');
  const sure = members.filter(({ optional }) => !optional).length;
  const refuse = (keyword: string, fix: string): never => {
    const node = plain.find(({ schema }) => schema[keyword] !== undefined)!;
    throw unsupported(node.pointer, keyword, fix);
  };
  if ((max !== null && max < Math.max(min, sure)) || (!more && min > members.length)) return null;
  const needed = min > sure ? min : 0;
  if (needed > 1) refuse('minProperties', 'Name the properties, and list them as `required`.');
  if (max === null || (!more && members.length <= max)) return { min: needed, max: null };
  if (members.length > 0) refuse('maxProperties', 'Name the properties, with "additionalProperties": false.');
  return { min: needed, max };
}

/** From `min`, 0 or 1, to `max` members. */
function countedMembers(item: Expression, min: number, max: number): Expression {
  if (max === 0) return braces('{', EMPTY, '}');
  const one = sequence(item, SPACE);
  const some: Expression = {
    kind: 'counted',
    head: one,
    item: sequence(COMMA, one),
    tail: EMPTY,
    min: 0,
    max: max - 1,
  };
  return braces('{', min === 0 ? choice(EMPTY, some) : some, '}');
}

/** Members of which none is required, with one at least. */
function nonEmptyList(members: readonly Member[], more: Expression | null): Expression {
  const behind = (from: number): Expression =>
    sequence(
      ...members.slice(from).map(({ item }) => repeat(sequence(COMMA, item, SPACE), 0, 1)),
      ...(more === null ? [] : [repeat(sequence(COMMA, more, SPACE), 0, null)]),
    );
  const first = members.map(({ item }, i) => sequence(item, SPACE, behind(i + 1)));
  if (more !== null) first.push(sequence(more, SPACE, behind(members.length)));
  return oneOf(first);
}

/**
 * The same as `list`, a rule for each place in it: in one automaton, what may be left out makes states of every place times every
 * name behind it.
 */
function longList(
  members: readonly Member[],
  more: Expression | null,
  nonEmpty: boolean,
  values: SchemaValues,
): Expression {
  const list = values.rename('list');
  const nameOf = (i: number, some: boolean): string => `${list}-${some ? 'some' : 'none'}-${i}`;
  const place = (i: number, some: boolean): Expression => rule(nameOf(i, some));
  const end = members.length;
  const others = more === null ? EMPTY : repeat(sequence(COMMA, more, SPACE), 0, null);
  const first = more === null ? NOTHING : sequence(more, SPACE, others);
  values.defineAs(nameOf(end, false), nonEmpty ? first : choice(EMPTY, first));
  values.defineAs(nameOf(end, true), others);
  members.forEach(({ item, optional }, i) => {
    for (const some of [false, true]) {
      const here = sequence(...(some ? [COMMA] : []), item, SPACE, place(i + 1, true));
      values.defineAs(nameOf(i, some), optional ? choice(here, place(i + 1, some)) : here);
    }
  });
  return place(0, false);
}
