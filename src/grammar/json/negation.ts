/**
 * What a schema does not allow, as plain schemas of which one holds: for `not`, for what `if` leaves to `else`, and for cases of a
 * `oneOf` that overlap. Exact or refused: a value is one of them where it is not what the schema says, and nowhere else.
 */

import type { SchemaDocument } from './document.js';
import { formatMeant, isFormat } from './formats.js';
import { type Plain, VALUE_TYPES, type ValueType } from './plain.js';
import {
  checkKeywords,
  isKeyword,
  NOT_PATTERN,
  NOT_STRINGS,
  NOT_WHOLE,
  nodeAt,
  nodesAt,
  type SchemaNode,
  type SchemaObject,
  trusted,
  unsupported,
} from './schema-nodes.js';

/** Alternatives, as alternatives.ts has them. */
export interface AlternativesOf {
  of(nodes: readonly SchemaNode[]): readonly Plain[];
  /** What is one of each. */
  both(some: readonly Plain[], others: readonly Plain[]): readonly Plain[];
}

export class Negations {
  readonly #document: SchemaDocument;
  readonly #alternatives: AlternativesOf;
  /** They are the same objects each time: rules are told apart by them. */
  readonly #known = new WeakMap<SchemaObject, readonly Plain[]>();
  readonly #open = new Set<unknown>();

  constructor(document: SchemaDocument, alternatives: AlternativesOf) {
    this.#document = document;
    this.#alternatives = alternatives;
  }

  /** Errors: `unsupported-schema` with the keyword that cannot be negated. */
  of(node: SchemaNode): readonly Plain[] {
    const { schema, pointer } = node;
    if (typeof schema === 'boolean') return schema ? [] : [[]];
    let known = this.#known.get(schema);
    if (known === undefined) {
      if (this.#open.has(schema))
        throw unsupported(pointer, 'not', 'It leads back to itself with nothing in between: correct it.');
      this.#open.add(schema);
      checkKeywords(node);
      known = Object.keys(schema).flatMap((name) => (isKeyword(name) ? this.#without(node, name) : []));
      this.#open.delete(schema);
      this.#known.set(schema, known);
    }
    return known;
  }

  /** Where one keyword does not hold. */
  #without(node: SchemaNode, keyword: string): readonly Plain[] {
    const { pointer } = node;
    const schema = node.schema as SchemaObject;
    const value = schema[keyword] as never;
    const { both, of } = this.#alternatives;
    const only = (...schemas: readonly SchemaObject[]): readonly Plain[] =>
      schemas.map((own) => [{ schema: trusted(own), pointer }]);
    const no = (...nodes: readonly SchemaNode[]): readonly Plain[] =>
      nodes.map((one) => this.of(one)).reduce<readonly Plain[]>((all, one) => both(all, one), [[]]);
    const refuse = (): never => {
      throw unsupported(
        pointer,
        keyword,
        'Say what may be instead: what it leaves is not to be told exactly.',
      );
    };
    const members = typeof value === 'object' && value !== null ? Object.entries(value as SchemaObject) : [];
    switch (keyword) {
      case 'type':
        return only(...otherTypes([value].flat()));
      case 'const':
        return only(...otherValues([value], refuse));
      case 'enum':
        return only(...otherValues(value, refuse));
      case 'minimum':
        return only({ type: 'number', exclusiveMaximum: value });
      case 'maximum':
        return only({ type: 'number', exclusiveMinimum: value });
      case 'exclusiveMinimum':
        return only({ type: 'number', maximum: value });
      case 'exclusiveMaximum':
        return only({ type: 'number', minimum: value });
      case 'multipleOf':
        return value === 1 ? only({ type: 'number', [NOT_WHOLE]: true }) : refuse();
      case 'minLength':
        return value === 0 ? [] : only({ type: 'string', maxLength: value - 1 });
      case 'maxLength':
        return only({ type: 'string', minLength: value + 1 });
      case 'pattern':
        return only({ type: 'string', [NOT_PATTERN]: value });
      case 'minItems':
        return value === 0 ? [] : only({ type: 'array', maxItems: value - 1 });
      case 'maxItems':
        return only({ type: 'array', minItems: value + 1 });
      case 'minProperties':
        return value === 0 ? [] : only({ type: 'object', maxProperties: value - 1 });
      case 'maxProperties':
        return only({ type: 'object', minProperties: value + 1 });
      case 'uniqueItems':
        return value === false ? [] : refuse();
      case 'required':
        return only(
          ...(value as string[]).map((name) => ({ type: 'object', properties: named(name, false) })),
        );
      case 'properties':
        return only(
          ...members
            .filter(([, own]) => !isTrue(own))
            .map(([name, own]) => ({ type: 'object', required: [name], properties: named(name, not(own)) })),
        );
      case 'prefixItems':
        return only(
          ...(value as unknown[]).map((own, i) => ({
            type: 'array',
            minItems: i + 1,
            prefixItems: [...Array.from({ length: i }, () => true), not(own)],
          })),
        );
      case 'items':
        if (isTrue(value)) return [];
        return schema.prefixItems === undefined ? only({ type: 'array', contains: not(value) }) : refuse();
      case 'contains': {
        const { minContains: least = 1, maxContains: most } = schema as Record<string, number | undefined>;
        const fewer = { type: 'array', contains: value, minContains: 0, maxContains: least - 1 };
        return [
          ...(least === 0 ? [] : only(least === 1 ? { type: 'array', items: not(value) } : fewer)),
          ...(most === undefined ? [] : only({ type: 'array', contains: value, minContains: most + 1 })),
        ];
      }
      case 'minContains':
      case 'maxContains':
        return [];
      case 'format':
        return isFormat(value) || formatMeant(value) !== undefined ? refuse() : [];
      case 'additionalProperties':
      case 'propertyNames':
        return isTrue(value) ? [] : refuse();
      case 'patternProperties':
        return members.every(([, own]) => isTrue(own)) ? [] : refuse();
      case 'dependentRequired':
        return only(
          ...members.flatMap(([name, needs]) =>
            (needs as string[]).map((need) => ({
              type: 'object',
              required: [name],
              properties: named(need, false),
            })),
          ),
        );
      case 'dependentSchemas':
        return members.flatMap(([name]) =>
          both(only({ type: 'object', required: [name] }), no(nodeAt(node, keyword, name))),
        );
      case '$ref':
        return no(this.#document.resolve(node));
      case 'not':
        return of([nodeAt(node, 'not')]);
      case 'allOf':
        return nodesAt(node, 'allOf').flatMap((part) => this.of(part));
      case 'anyOf':
        return no(...nodesAt(node, 'anyOf'));
      case 'oneOf': {
        // None of them, or two.
        const cases = nodesAt(node, 'oneOf');
        const two = cases.flatMap((one, i) => cases.slice(i + 1).flatMap((other) => of([one, other])));
        return [...no(...cases), ...two];
      }
      case 'if': {
        const wrong = (branch: 'then' | 'else'): readonly Plain[] =>
          schema[branch] === undefined ? [] : no(nodeAt(node, branch));
        return [
          ...both(of([nodeAt(node, 'if')]), wrong('then')),
          ...both(no(nodeAt(node, 'if')), wrong('else')),
        ];
      }
      case 'then':
      case 'else':
        return [];
      default:
        return refuse();
    }
  }
}

const isTrue = (schema: unknown): boolean =>
  schema === true || (typeof schema === 'object' && schema !== null && Object.keys(schema).length === 0);

const not = (schema: unknown): SchemaObject | boolean =>
  typeof schema === 'boolean' ? !schema : { not: schema };

/** Names may be such as `__proto__`. */
const named = (name: string, schema: SchemaObject | boolean): SchemaObject =>
  Object.fromEntries([[name, schema]]);

function otherTypes(types: readonly string[]): SchemaObject[] {
  const isWhole = types.includes('integer') && !types.includes('number');
  const others = VALUE_TYPES.filter((type) => !types.includes(type) && !(isWhole && type === 'number'));
  return [
    ...(others.length === 0 ? [] : [{ type: others }]),
    ...(isWhole ? [{ type: 'number', [NOT_WHOLE]: true }] : []),
  ];
}

function otherValues(values: readonly unknown[], refuse: () => never): SchemaObject[] {
  const ofType = (type: ValueType): unknown[] => values.filter((value) => typeOf(value) === type);
  const others = VALUE_TYPES.filter((type) => ofType(type).length === 0);
  const found: SchemaObject[] = others.length === 0 ? [] : [{ type: others }];
  for (const list of ofType('array')) {
    if ((list as unknown[]).length > 0) return refuse();
    found.push({ type: 'array', minItems: 1 });
  }
  for (const object of ofType('object')) {
    if (Object.keys(object as object).length > 0) return refuse();
    found.push({ type: 'object', minProperties: 1 });
  }
  const booleans = ofType('boolean');
  const left = [true, false].filter((value) => !booleans.includes(value));
  if (left.length === 1) found.push({ const: left[0] });
  const strings = ofType('string');
  if (strings.length > 0) found.push({ type: 'string', [NOT_STRINGS]: strings });
  const numbers = [...new Set(ofType('number') as number[])].sort((a, b) => a - b);
  numbers.forEach((value, i) => {
    const low = i === 0 ? {} : { exclusiveMinimum: numbers[i - 1] };
    found.push({ type: 'number', ...low, exclusiveMaximum: value });
  });
  if (numbers.length > 0) found.push({ type: 'number', exclusiveMinimum: numbers.at(-1) });
  return found;
}

function typeOf(value: unknown): ValueType {
  if (value === null) return 'null';
  return Array.isArray(value) ? 'array' : (typeof value as ValueType);
}
