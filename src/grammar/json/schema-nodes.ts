/** Schemas as they come: keywords, places, references. What is not enforced is refused here, by its name and place. */

import { didYouMean } from '../../did-you-mean.js';
import { KvantError } from '../../errors.js';
import { shown } from '../../printable.js';

export type SchemaObject = Readonly<Record<string, unknown>>;

/** A schema and where it stands. */
export interface SchemaNode {
  readonly schema: SchemaObject | boolean;
  /** A JSON pointer as a fragment: `#/properties/name`. */
  readonly pointer: string;
}

export const TYPES = ['null', 'boolean', 'integer', 'number', 'string', 'array', 'object'] as const;
export type JsonType = (typeof TYPES)[number];

/** Keywords that say something of a value, by what is checked of theirs. */
const KEYWORDS: Readonly<Record<string, (value: unknown) => boolean>> = {
  type: (value) => isType(value) || (Array.isArray(value) && value.length > 0 && value.every(isType)),
  enum: (value) => Array.isArray(value),
  const: () => true,
  properties: isSchemaMap,
  patternProperties: isSchemaMap,
  additionalProperties: isSchema,
  required: isNames,
  propertyNames: isSchema,
  dependentRequired: (value) =>
    isSchema(value) && typeof value !== 'boolean' && Object.values(value).every(isNames),
  dependentSchemas: isSchemaMap,
  dependencies: (value) =>
    isSchema(value) &&
    typeof value !== 'boolean' &&
    Object.values(value).every((one) => isNames(one) || isSchema(one)),
  unevaluatedProperties: isSchema,
  minProperties: isCount,
  maxProperties: isCount,
  items: isSchema,
  prefixItems: isSchemaList,
  contains: isSchema,
  minContains: isCount,
  maxContains: isCount,
  unevaluatedItems: isSchema,
  minItems: isCount,
  maxItems: isCount,
  uniqueItems: (value) => typeof value === 'boolean',
  minLength: isCount,
  maxLength: isCount,
  pattern: (value) => typeof value === 'string',
  format: (value) => typeof value === 'string',
  minimum: isNumber,
  maximum: isNumber,
  exclusiveMinimum: isNumber,
  exclusiveMaximum: isNumber,
  multipleOf: (value) => isNumber(value) && value > 0,
  anyOf: isSchemaList,
  oneOf: isSchemaList,
  allOf: isSchemaList,
  not: isSchema,
  if: isSchema,
  // biome-ignore lint/suspicious/noThenProperty: the keyword is called so.
  then: isSchema,
  else: isSchema,
  $ref: (value) => typeof value === 'string',
};

/** What says nothing of a value. */
const ANNOTATIONS = new Set([
  '$id',
  '$anchor',
  '$comment',
  '$defs',
  'definitions',
  'title',
  'description',
  'default',
  'example',
  'examples',
  'deprecated',
  'readOnly',
  'writeOnly',
  'contentEncoding',
  'contentMediaType',
  'contentSchema',
  'discriminator',
  'externalDocs',
  'propertyOrdering',
]);

/** Why a keyword is refused, where there is more to say than that it is. */
const REFUSED: ReadonlyMap<string, string> = new Map([
  ['additionalItems', 'It is of an older draft: write `prefixItems`, and `items` for the rest.'],
  [
    'nullable',
    'Write `type` beside it, and null in an `enum`; or `anyOf` with {"type": "null"} in its place.',
  ],
  ['$dynamicRef', 'Write `$ref`.'],
  ['$dynamicAnchor', 'Write `$ref` with a JSON pointer.'],
  ['$recursiveRef', 'Write `$ref`.'],
  ['$recursiveAnchor', 'Write `$ref` with a JSON pointer.'],
  ['$vocabulary', 'It belongs to a schema of schemas: leave it out.'],
  ['extends', 'It is of an older draft: write `allOf`.'],
  ['disallow', 'It is of an older draft: write `not`.'],
  ['divisibleBy', 'It is of an older draft: write `multipleOf`.'],
  ['constant', 'Write `const`.'],
  ['formatMinimum', 'Use `pattern`.'],
  ['formatMaximum', 'Use `pattern`.'],
  ['patternRequired', 'Name the properties, and list them as `required`.'],
  ['regexp', 'Use `pattern`.'],
]);

/**
 * What negation.ts says of values, which no keyword does: a string that a pattern does not match, or that is none of these; a number
 * with a fraction. No schema that comes from outside has such names.
 */
export const NOT_PATTERN = '\0notPattern';
export const NOT_STRINGS = '\0notStrings';
export const NOT_WHOLE = '\0notWhole';

/** Keywords that only name other schemas, or say nothing. */
export const STRUCTURE: ReadonlySet<string> = new Set([
  '$ref',
  'allOf',
  'anyOf',
  'oneOf',
  'not',
  'if',
  'then',
  'else',
  'dependentRequired',
  'dependentSchemas',
  'dependencies',
  'unevaluatedProperties',
  'unevaluatedItems',
]);

/** Whether a schema itself says anything of a value, beside what the schemas that it names say. */
export const assertsSomething = (schema: SchemaObject): boolean =>
  Object.keys(schema).some((name) => Object.hasOwn(KEYWORDS, name) && !STRUCTURE.has(name));

/** Whether a keyword says something of a value. */
export const isKeyword = (name: string): boolean => Object.hasOwn(KEYWORDS, name);

/** A schema of our own, which need not be looked at. */
export function trusted(schema: SchemaObject): SchemaObject {
  checked.add(schema);
  return schema;
}

/** Others may mean anything by a keyword. */
const DRAFT = /^https?:\/\/json-schema\.org\//;
/** Schemas that have been looked at. */
const checked = new WeakSet<SchemaObject>();

/** Errors: `invalid-schema`, `unsupported-schema`. */
export function checkKeywords({ schema, pointer }: SchemaNode): void {
  if (typeof schema === 'boolean' || checked.has(schema)) return;
  for (const [name, value] of Object.entries(schema)) {
    if (ANNOTATIONS.has(name) || name.startsWith('x-')) continue;
    if (name === '$schema') {
      if (typeof value === 'string' && DRAFT.test(value)) continue;
      throw unsupported(pointer, name, 'Leave it out, or name a draft of json-schema.org.');
    }
    if (name === 'nullable' && value === false) continue;
    if (!isKeyword(name)) {
      if (name === 'additionalItems' && !Array.isArray(schema.items)) continue;
      const instead = REFUSED.get(name) ?? (name.startsWith('\0') ? 'Leave it out.' : mistaken(name));
      if (instead === '') continue;
      throw unsupported(pointer, name, instead);
    }
    if (name === 'items' && Array.isArray(value))
      throw invalidSchema(pointer, 'has a list of `items` beside `prefixItems`');
    if (!KEYWORDS[name]!(value))
      throw invalidSchema(`${pointer}/${name}`, `has a value that \`${shown(name)}\` does not take`);
  }
  checked.add(schema);
}

/**
 * What no draft knows is an annotation, as the standard has it, unless it looks like a slip: that would be left out in silence.
 * Names that begin with a sign, such as `_format`, have been put out of use.
 */
const mistaken = (name: string): string =>
  /^[A-Za-z$]/.test(name) ? didYouMean(name, Object.keys(KEYWORDS)).trim() : '';

/** The schema at a keyword of another, and at a name below it. */
export function nodeAt({ schema, pointer }: SchemaNode, keyword: string, name?: string | number): SchemaNode {
  const value = (schema as SchemaObject)[keyword];
  if (name === undefined) return { schema: value as SchemaObject, pointer: `${pointer}/${keyword}` };
  const inner = (value as SchemaObject)[name] as SchemaObject;
  return { schema: inner, pointer: `${pointer}/${keyword}/${escapePointer(String(name))}` };
}

export function nodesAt(node: SchemaNode, keyword: string): SchemaNode[] {
  const list = (node.schema as SchemaObject)[keyword] as readonly unknown[] | undefined;
  return (list ?? []).map((_, i) => nodeAt(node, keyword, i));
}

const escapePointer = (name: string): string => name.replaceAll('~', '~0').replaceAll('/', '~1');

function isType(value: unknown): boolean {
  return TYPES.includes(value as JsonType);
}
function isNumber(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value);
}
function isCount(value: unknown): boolean {
  return isNumber(value) && Number.isInteger(value) && value >= 0;
}
function isNames(value: unknown): boolean {
  return Array.isArray(value) && value.every((name) => typeof name === 'string');
}
export function isSchema(value: unknown): value is SchemaObject | boolean {
  return typeof value === 'boolean' || (typeof value === 'object' && value !== null && !Array.isArray(value));
}
function isSchemaMap(value: unknown): boolean {
  return isSchema(value) && typeof value !== 'boolean' && Object.values(value).every(isSchema);
}
function isSchemaList(value: unknown): boolean {
  return Array.isArray(value) && value.length > 0 && value.every(isSchema);
}

export function invalidSchema(
  pointer: string,
  what: string,
  fix = 'Correct it: see json-schema.org, draft 2020-12.',
): KvantError {
  return new KvantError('invalid-schema', `The schema at ${shown(pointer)} ${what}.`, {
    kind: 'invalid-request',
    where: 'schema',
    fix,
  });
}

export function unsupported(pointer: string, keyword: string, fix: string): KvantError {
  return new KvantError(
    'unsupported-schema',
    `The keyword \`${shown(keyword)}\` at ${shown(pointer)} cannot be enforced.`,
    { kind: 'unsupported', where: 'schema', fix },
  );
}
