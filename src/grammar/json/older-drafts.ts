/**
 * What older drafts and OpenAPI 3.0 write otherwise, and generators of schemas still do: lists of `items` with `additionalItems` (up to draft
 * 2019-09), `exclusiveMinimum` and `exclusiveMaximum` as yes or no (draft 4), `nullable` (OpenAPI 3.0).
 */

import { isSchema, type SchemaObject } from './schema-nodes.js';

/** The document itself where nothing in it is of an older draft, else a copy: whoever gave it sees no change. */
export function mayBeRewritten(root: SchemaObject | boolean): SchemaObject | boolean {
  const todo: unknown[] = [root];
  for (let at = todo.pop(); at !== undefined; at = todo.pop()) {
    if (typeof at !== 'object' || at === null) continue;
    if (isOlder(at as SchemaObject)) return copied(root) as SchemaObject;
    todo.push(...Object.values(at).filter((value) => value !== undefined));
  }
  return root;
}

/** Rewrites one schema of such a copy, and none within it. */
export function rewrite(schema: SchemaObject): void {
  if (!isOlder(schema)) return;
  const own = schema as Record<string, unknown>;
  if (Array.isArray(own.items)) {
    // An empty list says nothing of any place.
    if (own.items.length > 0) own.prefixItems = own.items;
    own.items = own.additionalItems ?? true;
    delete own.additionalItems;
  }
  for (const [strict, plain] of BOUNDS) {
    if (own[strict] === true && typeof own[plain] === 'number') {
      own[strict] = own[plain];
      delete own[plain];
    } else if (own[strict] === false) delete own[strict];
  }
  if (isNullable(own)) {
    own.type = [...new Set([own.type, 'null'].flat())];
    delete own.nullable;
  }
}

/**
 * OpenAPI 3.0.3: a value may be null as well where the same schema has a `type`, and an `enum` beside it says null too. Without these
 * generators mean more than it says, so it is refused (schema-nodes.ts).
 */
function isNullable({ nullable, type, enum: values, const: value }: SchemaObject): boolean {
  if (nullable !== true || type === undefined) return false;
  return (!Array.isArray(values) || values.includes(null)) && (value === undefined || value === null);
}

/** The member of a schema that a pointer names: `items/0` is `prefixItems/0` in what was rewritten. */
export function memberOf(value: unknown, name: string, next: string | undefined): unknown {
  if (typeof value !== 'object' || value === null) return undefined;
  const own = value as SchemaObject;
  const isPlace = name === 'items' && next !== undefined && /^[0-9]+$/.test(next);
  const inList = isPlace && typeof own.items === 'boolean' && Array.isArray(own.prefixItems);
  const key =
    inList || (isPlace && isSchema(own.items) && !Object.hasOwn(own.items as SchemaObject, next!))
      ? 'prefixItems'
      : name;
  return Object.hasOwn(own, key) ? own[key] : undefined;
}

const BOUNDS = [
  ['exclusiveMinimum', 'minimum'],
  ['exclusiveMaximum', 'maximum'],
] as const;

const isOlder = (schema: SchemaObject): boolean =>
  (Array.isArray(schema.items) && schema.prefixItems === undefined) ||
  BOUNDS.some(([strict]) => typeof schema[strict] === 'boolean') ||
  isNullable(schema);

function copied(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(copied);
  if (typeof value !== 'object' || value === null || value instanceof Number) return value;
  // With its symbols: they may tell the order of keys.
  const copy: Record<string, unknown> = { ...(value as SchemaObject) };
  for (const name of Object.keys(copy))
    Object.defineProperty(copy, name, {
      value: copied(copy[name]),
      writable: true,
      enumerable: true,
      configurable: true,
    });
  return copy;
}
