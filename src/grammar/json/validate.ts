/** Whether a value that is written out in a schema (`enum`, `const`) is what the rest of the schema says. */

import type { Budget } from '../limits.js';
import { regexWords } from '../regex.js';
import type { Words } from '../words.js';
import type { SchemaDocument } from './document.js';
import { FORMATS } from './formats.js';
import {
  checkKeywords,
  type JsonType,
  NOT_PATTERN,
  NOT_STRINGS,
  NOT_WHOLE,
  nodeAt,
  nodesAt,
  type SchemaNode,
  type SchemaObject,
  unsupported,
} from './schema-nodes.js';

/** Steps of work that looking at a schema takes. */
const ACCEPTED = 4;
/** Schemas that lead to each other for one value. */
const MAX_NESTED = 512;

export class Validator {
  readonly #document: SchemaDocument;
  readonly #budget: Budget;
  readonly #patterns = new Map<string, Words>();
  /** By list of values: what they are, for looking them up. */
  readonly #lists = new WeakMap<readonly unknown[], ReadonlySet<string>>();
  #depth = 0;
  #negations = 0;

  constructor(document: SchemaDocument, budget: Budget) {
    this.#document = document;
    this.#budget = budget;
  }

  /** Errors: those of `checkKeywords` and of patterns. */
  accepts(node: SchemaNode, value: unknown): boolean {
    this.#budget.spend(ACCEPTED);
    const { schema, pointer } = node;
    if (typeof schema === 'boolean') return schema;
    checkKeywords(node);
    if (++this.#depth > MAX_NESTED)
      throw unsupported(pointer, '$ref', 'It leads back to itself with nothing in between: correct it.');
    const accepted = this.#accepts(node, schema, value);
    this.#depth--;
    return accepted;
  }

  /** What `enum` and `const` list, by {@link keyOf}; null where there is neither. */
  listed({ const: only, enum: several }: SchemaObject): ReadonlySet<string> | null {
    if (several === undefined) return only === undefined ? null : new Set([this.keyOf(only)]);
    let keys = this.#lists.get(several as unknown[]);
    if (keys === undefined) {
      keys = new Set((several as unknown[]).map((value) => this.keyOf(value)));
      this.#lists.set(several as unknown[], keys);
    }
    if (only === undefined) return keys;
    const key = this.keyOf(only);
    return new Set(keys.has(key) ? [key] : []);
  }

  /** The same text for values that are the same: the order of keys means nothing. */
  keyOf(value: unknown): string {
    const key = JSON.stringify(value, (_, inner: unknown) =>
      isObject(inner)
        ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
        : inner,
    );
    this.#budget.spend(1 + (key.length >> 2));
    return key;
  }

  #accepts(node: SchemaNode, schema: SchemaObject, value: unknown): boolean {
    return (
      isOfType(schema.type, value) &&
      (this.listed(schema)?.has(this.keyOf(value)) ?? true) &&
      (typeof value !== 'number' || this.#number(schema, value)) &&
      (typeof value !== 'string' || this.#string(schema, value)) &&
      (!Array.isArray(value) || this.#array(node, schema, value)) &&
      (!isObject(value) || this.#object(node, schema, value)) &&
      this.#structure(node, schema, value) &&
      (schema.$ref === undefined || this.accepts(this.#document.resolve(node), value)) &&
      nodesAt(node, 'allOf').every((part) => this.accepts(part, value)) &&
      (schema.anyOf === undefined || nodesAt(node, 'anyOf').some((branch) => this.accepts(branch, value))) &&
      (schema.oneOf === undefined ||
        this.#negated(() => nodesAt(node, 'oneOf').filter((branch) => this.accepts(branch, value)).length) ===
          1) &&
      (schema.not === undefined || !this.#negated(() => this.accepts(nodeAt(node, 'not'), value))) &&
      this.#branch(node, schema, value)
    );
  }

  #branch(node: SchemaNode, schema: SchemaObject, value: unknown): boolean {
    if (schema.if === undefined) return true;
    const keyword = this.#negated(() => this.accepts(nodeAt(node, 'if'), value)) ? 'then' : 'else';
    return schema[keyword] === undefined || this.accepts(nodeAt(node, keyword), value);
  }

  /** Looks at what is not to hold, or not always. */
  #negated<T>(look: () => T): T {
    this.#negations++;
    const found = look();
    this.#negations--;
    return found;
  }

  /** Dependencies; what has not been looked at elsewhere is not looked at here. */
  #structure({ pointer }: SchemaNode, schema: SchemaObject, value: unknown): boolean {
    for (const keyword of ['unevaluatedProperties', 'unevaluatedItems'])
      if (schema[keyword] !== undefined)
        throw unsupported(pointer, keyword, 'Leave it out beside values that are listed.');
    if (!isObject(value)) return true;
    return ['dependentRequired', 'dependentSchemas', 'dependencies'].every((keyword) =>
      Object.entries((schema[keyword] ?? {}) as SchemaObject).every(([name, needs]) => {
        if (!Object.hasOwn(value, name)) return true;
        if (Array.isArray(needs)) return needs.every((other: string) => Object.hasOwn(value, other));
        return this.accepts({ schema: needs as SchemaObject, pointer: `${pointer}/${keyword}` }, value);
      }),
    );
  }

  #number(schema: SchemaObject, value: number): boolean {
    const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf } = schema as Record<
      string,
      number | undefined
    >;
    return (
      !(minimum !== undefined && value < minimum) &&
      !(maximum !== undefined && value > maximum) &&
      !(exclusiveMinimum !== undefined && value <= exclusiveMinimum) &&
      !(exclusiveMaximum !== undefined && value >= exclusiveMaximum) &&
      !(multipleOf !== undefined && !isMultiple(value, multipleOf)) &&
      !(schema[NOT_WHOLE] !== undefined && Number.isInteger(value))
    );
  }

  #string(schema: SchemaObject, value: string): boolean {
    const { minLength, maxLength, pattern, format } = schema as Record<string, never>;
    const { [NOT_PATTERN]: other, [NOT_STRINGS]: strings } = schema as {
      [NOT_PATTERN]?: string;
      [NOT_STRINGS]?: readonly string[];
    };
    const { length } = [...value];
    return (
      !(minLength !== undefined && length < minLength) &&
      !(maxLength !== undefined && length > maxLength) &&
      (pattern === undefined || this.matches(pattern, true, value)) &&
      !(other !== undefined && this.matches(other, true, value)) &&
      !(strings?.includes(value) ?? false) &&
      (format === undefined || !Object.hasOwn(FORMATS, format) || this.#isOfFormat(format, value))
    );
  }

  /** Formats are taken in their usual spelling: what is not of one may be of it all the same. */
  #isOfFormat(format: string, value: string): boolean {
    if (this.matches(FORMATS[format]!, false, value)) return true;
    if (this.#negations > 0)
      throw unsupported('#', 'format', 'Use `pattern` within `not`, `if` and `oneOf`.');
    return false;
  }

  /** Whether a pattern accepts a text. */
  matches(pattern: string, search: boolean, value: string): boolean {
    const key = `${search}${pattern}`;
    let words = this.#patterns.get(key);
    if (words === undefined) {
      words = regexWords(pattern, search, this.#budget);
      this.#patterns.set(key, words);
    }
    let state = 0;
    for (const character of value) {
      const code = character.codePointAt(0)!;
      const edge = words.edges[state]!.find(({ low, high }) => low <= code && code <= high);
      if (edge === undefined) return false;
      state = edge.to;
    }
    return words.final[state]!;
  }

  #array(node: SchemaNode, schema: SchemaObject, value: readonly unknown[]): boolean {
    const { minItems, maxItems } = schema as Record<string, number | undefined>;
    if (minItems !== undefined && value.length < minItems) return false;
    if (maxItems !== undefined && value.length > maxItems) return false;
    if (schema.uniqueItems === true && new Set(value.map((item) => this.keyOf(item))).size < value.length)
      return false;
    if (schema.contains !== undefined) {
      const { minContains = 1, maxContains = Infinity } = schema as Record<string, number | undefined>;
      const count = value.filter((item) => this.accepts(nodeAt(node, 'contains'), item)).length;
      if (count < minContains || count > maxContains) return false;
    }
    const first = nodesAt(node, 'prefixItems');
    return value.every((item, i) => {
      if (i < first.length) return this.accepts(first[i]!, item);
      return schema.items === undefined || this.accepts(nodeAt(node, 'items'), item);
    });
  }

  #object(node: SchemaNode, schema: SchemaObject, value: SchemaObject): boolean {
    const names = Object.keys(value);
    const { minProperties, maxProperties, required } = schema as {
      minProperties?: number;
      maxProperties?: number;
      required?: readonly string[];
    };
    if (minProperties !== undefined && names.length < minProperties) return false;
    if (maxProperties !== undefined && names.length > maxProperties) return false;
    if (required?.some((name) => !Object.hasOwn(value, name)) === true) return false;
    if (
      schema.propertyNames !== undefined &&
      !names.every((name) => this.accepts(nodeAt(node, 'propertyNames'), name))
    )
      return false;
    const { properties = {}, patternProperties = {} } = schema as Record<string, SchemaObject>;
    return names.every((name) => {
      const known = Object.hasOwn(properties, name);
      const patterns = Object.keys(patternProperties).filter((pattern) => this.matches(pattern, true, name));
      const inner = value[name];
      if (known && !this.accepts(nodeAt(node, 'properties', name), inner)) return false;
      if (!patterns.every((pattern) => this.accepts(nodeAt(node, 'patternProperties', pattern), inner)))
        return false;
      if (known || patterns.length > 0 || schema.additionalProperties === undefined) return true;
      return this.accepts(nodeAt(node, 'additionalProperties'), inner);
    });
  }
}

/** Of decimals, as they are written: 0.0075 is one of 0.0001. */
function isMultiple(value: number, step: number): boolean {
  const ratio = Math.round(value / step);
  return Number.isInteger(value / step) || Number((ratio * step).toPrecision(15)) === value;
}

const isObject = (value: unknown): value is SchemaObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

function isOfType(type: unknown, value: unknown): boolean {
  if (type === undefined) return true;
  const types = (Array.isArray(type) ? type : [type]) as readonly JsonType[];
  return types.some((one) => {
    if (one === 'integer') return Number.isInteger(value);
    return one === typeOf(value);
  });
}

/** The type of a value; whole numbers are numbers. */
export function typeOf(value: unknown): Exclude<JsonType, 'integer'> {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  return typeof value as 'boolean' | 'number' | 'string' | 'object';
}
