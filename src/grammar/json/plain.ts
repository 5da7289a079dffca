/** What is left of a schema when the schemas that it names have been taken apart: a list of schemas that all hold. */

import type { JsonType, SchemaNode, SchemaObject } from './schema-nodes.js';

/** All of these hold. */
export type Plain = readonly PlainNode[];
export type PlainNode = SchemaNode & { readonly schema: SchemaObject };

/** The type of a value, whole numbers apart. */
export type ValueType = Exclude<JsonType, 'integer'>;
export const VALUE_TYPES: readonly ValueType[] = ['object', 'array', 'string', 'number', 'boolean', 'null'];

/** Types that all allow; whole numbers are numbers. */
export function typesOf(plain: Plain): ReadonlySet<ValueType> {
  let types = known.get(plain);
  if (types === undefined) {
    types = ALL;
    for (const { schema } of plain) {
      if (schema.type === undefined) continue;
      const own = listOfTypes(schema).map((type) => (type === 'integer' ? 'number' : type));
      const before: ReadonlySet<ValueType> = types;
      types = new Set(own.filter((type) => before.has(type)));
    }
    known.set(plain, types);
  }
  return types;
}

const ALL: ReadonlySet<ValueType> = new Set(VALUE_TYPES);
/** Each alternative is compared with many. */
const known = new WeakMap<Plain, ReadonlySet<ValueType>>();

const listOfTypes = ({ type }: SchemaObject): readonly JsonType[] =>
  (Array.isArray(type) ? type : [type]) as readonly JsonType[];

/** Numbers have no fractions. */
export const wholeOnly = (plain: Plain): boolean =>
  plain.some(({ schema }) => {
    if (schema.type === undefined) return false;
    const types = listOfTypes(schema);
    return types.includes('integer') && !types.includes('number');
  });

export interface Lengths {
  readonly min: number;
  readonly max: number | null;
}

/** The bounds that all keep. */
export function boundsOf(plain: Plain, min: string, max: string): Lengths {
  let least = 0;
  let most: number | null = null;
  for (const { schema } of plain) {
    const { [min]: low = 0, [max]: high } = schema as Record<string, number | undefined>;
    least = Math.max(least, low);
    if (high !== undefined) most = Math.min(most ?? high, high);
  }
  return { min: least, max: most };
}

/** Names that all these require. */
export const requiredOf = (plain: Plain): string[] =>
  plain.flatMap(({ schema }) => (schema.required ?? []) as readonly string[]);
