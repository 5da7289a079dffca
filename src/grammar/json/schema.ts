/**
 * JSON Schema (draft 2020-12) to a grammar of the values that it allows, in one form: properties in the schema's order, white space as
 * terminals.ts says. A schema of which some part cannot be enforced exactly is refused.
 */

import { choice, type Expression, type Grammar, isNothing, oneOf, rule, text } from '../expression.js';
import type { Budget } from '../limits.js';
import { hasNoWords, intersectWords, listedWords, type Words } from '../words.js';
import { Alternatives } from './alternatives.js';
import { arrayExpression } from './arrays.js';
import { Disjointness } from './disjoint.js';
import { SchemaDocument } from './document.js';
import { NumberExpressions } from './number-bounds.js';
import { namesOf, objectExpression, schemasOf } from './objects.js';
import { type Plain, requiredOf, typesOf, VALUE_TYPES, type ValueType } from './plain.js';
import { type SchemaNode, type SchemaObject, STRUCTURE, trusted, unsupported } from './schema-nodes.js';
import type { SchemaValues } from './schema-values.js';
import { checkStrict } from './strict.js';
import { StringExpressions, textWords } from './strings.js';
import { ANY, anyRules, literal } from './terminals.js';
import { Validator } from './validate.js';

export interface SchemaOptions {
  /** What OpenAI asks of schemas with `strict`: every object lists all its properties as required and takes no others. */
  readonly strict?: boolean;
}

const ROOT = 'answer';
/** Schemas within schemas, references followed. */
const MAX_NESTED = 256;

/** Errors: `invalid-schema`, `unsupported-schema`, `invalid-pattern`, `grammar-too-large`; `where` is `schema`. */
export function schemaGrammar(schema: unknown, budget: Budget, options: SchemaOptions = {}): Grammar {
  const reader = new SchemaReader(new SchemaDocument(schema), budget, options.strict ?? false);
  return { rules: reader.rules(), root: ROOT };
}

/** An argument of a tool: its value as JSON, and as text without quotes where it may be a text; null for what it cannot be. */
export interface ArgumentForm {
  readonly name: string;
  readonly optional: boolean;
  readonly json: Expression | null;
  readonly text: Expression | null;
}

/**
 * The properties that a schema of objects names, one by one: for formats that write each in tags or as a keyword. Others are left out,
 * whatever `additionalProperties` says. Rules that the forms name come with them.
 *
 * @param texts what a text without quotes may be; null: texts are JSON as all else is
 */
export function argumentForms(
  schema: unknown,
  budget: Budget,
  options: SchemaOptions & { readonly texts: Words | null },
): { readonly rules: ReadonlyMap<string, Expression>; readonly forms: readonly ArgumentForm[] } {
  const reader = new SchemaReader(new SchemaDocument(schema), budget, options.strict ?? false);
  const forms = reader.argumentForms(options.texts);
  return { rules: reader.namedRules, forms };
}

/** Any object: what `json_object` asks for. */
export const jsonObjectGrammar = (): Grammar => ({ rules: new Map(anyRules()), root: ANY.OBJECT });

class SchemaReader implements SchemaValues {
  readonly budget: Budget;
  readonly #document: SchemaDocument;
  readonly #alternatives: Alternatives;
  readonly #strings: StringExpressions;
  readonly numbers: NumberExpressions;
  readonly #validator: Validator;
  readonly #rules = new Map<string, Expression>(anyRules());
  /** By what is asked of a value: its expression, or the name of its rule. */
  readonly #known = new Map<string, Expression>();
  readonly #numbers = new Map<unknown, number>();
  readonly #values = new WeakMap<Plain, readonly unknown[] | null>();
  readonly #own = new WeakMap<SchemaObject, SchemaObject>();
  #named = 0;
  #depth = 0;

  constructor(document: SchemaDocument, budget: Budget, strict: boolean) {
    this.#document = document;
    this.budget = budget;
    this.#validator = new Validator(document, budget);
    const define: SchemaValues['define'] = (kind, expression) => this.define(kind, expression);
    this.#strings = new StringExpressions({ budget, define });
    this.numbers = new NumberExpressions({ budget, define });
    const disjointness = new Disjointness(this);
    this.#alternatives = new Alternatives(
      document,
      budget,
      (a, b) => disjointness.of(a, b),
      strict ? checkStrict : () => undefined,
    );
  }

  rules(): ReadonlyMap<string, Expression> {
    this.#rules.set(ROOT, this.#value([this.#document.root]));
    return this.#rules;
  }

  get namedRules(): ReadonlyMap<string, Expression> {
    return this.#rules;
  }

  argumentForms(texts: Words | null): ArgumentForm[] {
    const { root } = this.#document;
    const objects = this.alternatives([root]).filter((plain) => typesOf(plain).has('object'));
    const [plain, other] = objects;
    if (plain === undefined || other !== undefined)
      throw unsupported('#', 'anyOf', 'Arguments are one object: put its properties into the schema itself.');
    const required = new Set(requiredOf(plain));
    return namesOf(plain).map((name) => {
      const nodes = plain.flatMap((node) => schemasOf(node, name, this));
      const parts = this.#deeper(() => this.alternatives(nodes).map((one) => this.#argument(one, texts)));
      const whole = (items: readonly (Expression | null)[]): Expression | null => {
        const found = items.filter((item): item is Expression => item !== null && !isNothing(item));
        return found.length === 0 ? null : choice(...found);
      };
      return {
        name,
        optional: !required.has(name),
        json: whole(parts.map(({ json }) => json)),
        text: whole(parts.map((part) => part.text)),
      };
    });
  }

  #argument(plain: Plain, texts: Words | null): Pick<ArgumentForm, 'json' | 'text'> {
    const { budget } = this;
    if (texts === null) return { json: this.#plain(plain), text: null };
    const words = (own: Words): Expression => ({ kind: 'words', words: own, spelling: 'text' });
    const listed = this.listed(plain);
    if (listed !== null) {
      const strings = listed.filter((value): value is string => typeof value === 'string');
      const others = listed.filter((value) => typeof value !== 'string');
      const own = strings.length === 0 ? null : intersectWords(listedWords(strings, budget), texts, budget);
      return {
        json: others.length === 0 ? null : oneOf(others.map(literal)),
        text: own === null || hasNoWords(own) ? null : words(own),
      };
    }
    const types = typesOf(plain);
    const json = VALUE_TYPES.filter((type) => type !== 'string' && types.has(type));
    const own = types.has('string') ? textWords(plain, budget) : null;
    const both = own === null || own === 'any' ? texts : intersectWords(own, texts, budget);
    return {
      json: json.length === 0 ? null : choice(...json.map((type) => this.#typed(plain, type))),
      text: own === null || hasNoWords(both) ? null : words(both),
    };
  }

  /** A value of which all these schemas hold. */
  #value(nodes: readonly SchemaNode[]): Expression {
    const items = this.alternatives(nodes).map((plain) => this.#plain(plain));
    return oneOf(items.filter((item) => !isNothing(item)));
  }

  inner(nodes: readonly SchemaNode[]): Expression {
    return this.#deeper(() => this.#value(nodes));
  }

  alternatives(nodes: readonly SchemaNode[]): readonly Plain[] {
    return this.#alternatives.of(nodes);
  }

  accepts(plain: Plain, value: unknown): boolean {
    return plain.every((node) => this.#validator.accepts(node, value));
  }

  keyOf(value: unknown): string {
    return this.#validator.keyOf(value);
  }

  matches(pattern: string, value: string): boolean {
    return this.#validator.matches(pattern, true, value);
  }

  define(kind: string, expression: Expression): Expression {
    const name = this.rename(kind);
    this.defineAs(name, expression);
    return rule(name);
  }

  rename(kind: string): string {
    return `${kind}-${this.#named++}`;
  }

  defineAs(name: string, expression: Expression): void {
    this.#rules.set(name, expression);
  }

  #plain(plain: Plain): Expression {
    if (plain.length === 0) return rule(ANY.VALUE);
    const values = this.listed(plain);
    if (values !== null) return oneOf(values.map(literal));
    const types = typesOf(plain);
    const items = VALUE_TYPES.filter((type) => types.has(type)).map((type) => this.#typed(plain, type));
    return choice(...items.filter((item) => !isNothing(item)));
  }

  listed(plain: Plain): readonly unknown[] | null {
    let values = this.#values.get(plain);
    if (values === undefined) {
      values = this.#listedOf(plain);
      this.#values.set(plain, values);
    }
    return values;
  }

  #listedOf(plain: Plain): readonly unknown[] | null {
    const first = plain.find(({ schema }) => schema.const !== undefined || schema.enum !== undefined);
    if (first === undefined) return null;
    const lists = plain.map(({ schema }) => this.#validator.listed(schema)).filter((keys) => keys !== null);
    const { const: only, enum: several } = first.schema;
    const unique = new Map<string, unknown>();
    for (const value of (several ?? [only]) as readonly unknown[])
      unique.set(this.#validator.keyOf(value), value);
    return [...unique].flatMap(([key, value]) => {
      if (!lists.every((keys) => keys.has(key))) return [];
      const isRight = plain.every(({ schema, pointer }) =>
        this.#validator.accepts({ schema: this.#withoutStructure(schema), pointer }, value),
      );
      return isRight ? [value] : [];
    });
  }

  /** What a schema says itself besides its list of values: the schemas that it names have been taken apart already. */
  #withoutStructure(schema: SchemaObject): SchemaObject {
    let own = this.#own.get(schema);
    if (own === undefined) {
      const said = Object.entries(schema).filter(
        ([name]) => name !== 'enum' && name !== 'const' && !STRUCTURE.has(name),
      );
      own = trusted(Object.fromEntries(said));
      this.#own.set(schema, own);
    }
    return own;
  }

  #typed(plain: Plain, type: ValueType): Expression {
    switch (type) {
      case 'null':
        return text('null');
      case 'boolean':
        return choice(text('true'), text('false'));
      case 'string':
        return this.#strings.of(plain);
      case 'number':
        return this.numbers.of(plain);
      case 'array':
        return this.#rule(plain, type, () => arrayExpression(plain, this));
      case 'object':
        return this.#rule(plain, type, () => objectExpression(plain, this));
    }
  }

  /** A rule of its own: it may be within itself, and the same may be in many places. */
  #rule(plain: Plain, type: ValueType, make: () => Expression): Expression {
    const key = `${type}:${plain.map(({ schema }) => this.#numberOf(schema)).join()}`;
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    const name = `value-${this.#known.size}`;
    this.#known.set(key, rule(name));
    this.#rules.set(name, make());
    return rule(name);
  }

  #numberOf(schema: unknown): number {
    let number = this.#numbers.get(schema);
    if (number === undefined) {
      number = this.#numbers.size;
      this.#numbers.set(schema, number);
    }
    return number;
  }

  #deeper<T>(make: () => T): T {
    if (++this.#depth > MAX_NESTED)
      throw unsupported('#', '$ref', 'The schema refers to itself in ever new ways.');
    const made = make();
    this.#depth--;
    return made;
  }
}
