/**
 * JSON Schema (draft 2020-12) to a grammar of the values that it allows, in one form: properties in the schema's order, white space as
 * terminals.ts says. A schema of which some part cannot be enforced exactly is refused.
 */

import {
  choice,
  EMPTY,
  type Expression,
  type Grammar,
  isNothing,
  NOTHING,
  repeat,
  rule,
  sequence,
  text,
} from '../expression.js';
import type { Budget } from '../limits.js';
import { regexWords } from '../regex.js';
import { hasNoWords, intersectWords, listedWords, otherWords, type Words } from '../words.js';
import { Alternatives, type Plain } from './alternatives.js';
import { type Bound, numberWords } from './numbers.js';
import {
  type JsonType,
  nodeAt,
  nodesAt,
  SchemaDocument,
  type SchemaNode,
  type SchemaObject,
  unsupported,
} from './schema-nodes.js';
import { at, mostOf, quoted, StringExpressions, stringWords } from './strings.js';
import { ANY, anyRules, braces, COMMA, list, literal, member, SPACE } from './terminals.js';
import { Validator } from './validate.js';

export interface SchemaOptions {
  /** What OpenAI asks of schemas with `strict`: every object lists all its properties as required and takes no others. */
  readonly strict?: boolean;
}

const ROOT = 'answer';
/** The type of a value, whole numbers apart. */
type ValueType = Exclude<JsonType, 'integer'>;
const VALUE_TYPES: readonly ValueType[] = ['object', 'array', 'string', 'number', 'boolean', 'null'];

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

class SchemaReader {
  readonly #document: SchemaDocument;
  readonly #budget: Budget;
  readonly #alternatives: Alternatives;
  readonly #strings: StringExpressions;
  readonly #validator: Validator;
  readonly #strict: boolean;
  readonly #rules = new Map<string, Expression>(anyRules());
  /** By what is asked of a value: its expression, or the name of its rule. */
  readonly #known = new Map<string, Expression>();
  readonly #numbers = new Map<unknown, number>();
  readonly #values = new WeakMap<Plain, readonly unknown[] | null>();
  readonly #own = new WeakMap<SchemaObject, SchemaObject>();
  /** By alternative and name: what it says of that property. */
  readonly #properties = new WeakMap<Plain, Map<string, readonly Plain[]>>();
  #lists = 0;
  #depth = 0;

  constructor(document: SchemaDocument, budget: Budget, strict: boolean) {
    this.#document = document;
    this.#budget = budget;
    this.#strict = strict;
    this.#validator = new Validator(document, budget);
    this.#strings = new StringExpressions(budget);
    this.#alternatives = new Alternatives(
      document,
      budget,
      (a, b) => this.#disjoint(a, b),
      (node) => this.#checkStrict(node),
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
    const objects = this.#alternatives.of([root]).filter((plain) => typesOf(plain).has('object'));
    const [plain, other] = objects;
    if (plain === undefined || other !== undefined)
      throw unsupported('#', 'anyOf', 'Arguments are one object: put its properties into the schema itself.');
    const required = new Set(plain.flatMap(({ schema }) => (schema.required ?? []) as string[]));
    const names = new Set([
      ...plain.flatMap(({ schema }) => Object.keys(schema.properties ?? {})),
      ...required,
    ]);
    return [...names].map((name) => {
      const nodes = plain.flatMap((node) => this.#schemasOf(node, name));
      const parts = this.#deeper(() => this.#alternatives.of(nodes).map((one) => this.#argument(one, texts)));
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
    const budget = this.#budget;
    if (texts === null) return { json: this.#plain(plain), text: null };
    const words = (own: Words): Expression => ({ kind: 'words', words: own, spelling: 'text' });
    const listed = this.#listed(plain);
    if (listed !== null) {
      const strings = listed.filter((value): value is string => typeof value === 'string');
      const others = listed.filter((value) => typeof value !== 'string');
      const own = strings.length === 0 ? null : intersectWords(listedWords(strings, budget), texts, budget);
      return {
        json: others.length === 0 ? null : choice(...others.map(literal)),
        text: own === null || hasNoWords(own) ? null : words(own),
      };
    }
    const types = typesOf(plain);
    const json = VALUE_TYPES.filter((type) => type !== 'string' && types.has(type));
    const own = types.has('string') ? stringWords(plain, budget) : null;
    const both = own === null || own === 'any' ? texts : intersectWords(own, texts, budget);
    return {
      json: json.length === 0 ? null : choice(...json.map((type) => this.#typed(plain, type))),
      text: own === null || hasNoWords(both) ? null : words(both),
    };
  }

  /** A value of which all these schemas hold. */
  #value(nodes: readonly SchemaNode[]): Expression {
    const items = this.#alternatives.of(nodes).map((plain) => this.#plain(plain));
    return choice(...items.filter((item) => !isNothing(item)));
  }

  #plain(plain: Plain): Expression {
    if (plain.length === 0) return rule(ANY.VALUE);
    const values = this.#listed(plain);
    if (values !== null) return choice(...values.map(literal));
    const types = typesOf(plain);
    const items = VALUE_TYPES.filter((type) => types.has(type)).map((type) => this.#typed(plain, type));
    return choice(...items.filter((item) => !isNothing(item)));
  }

  /** The values that `enum` and `const` leave, null without either. */
  #listed(plain: Plain): readonly unknown[] | null {
    let values = this.#values.get(plain);
    if (values === undefined) {
      values = this.#listedOf(plain);
      this.#values.set(plain, values);
    }
    return values;
  }

  #listedOf(plain: Plain): readonly unknown[] | null {
    const lists = plain.map(({ schema }) => this.#validator.listed(schema)).filter((keys) => keys !== null);
    const first = plain.find(({ schema }) => schema.const !== undefined || schema.enum !== undefined);
    if (first === undefined) return null;
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
      const {
        $ref: _ref,
        allOf: _all,
        anyOf: _any,
        oneOf: _one,
        enum: _enum,
        const: _const,
        ...rest
      } = schema;
      own = rest;
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
        return this.#number(plain);
      case 'array':
        return this.#named(plain, type, () => this.#array(plain));
      case 'object':
        return this.#named(plain, type, () => this.#object(plain));
    }
  }

  /** A rule of its own: it may be within itself, and the same may be in many places. */
  #named(plain: Plain, type: ValueType, make: () => Expression): Expression {
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

  #number(plain: Plain): Expression {
    let low: Bound | null = null;
    let high: Bound | null = null;
    let multipleOf = 1;
    let fractionDigits: number | null = null;
    let integer = wholeOnly(plain);
    let bounded = false;
    for (const { schema, pointer } of plain) {
      const { minimum, maximum, exclusiveMinimum, exclusiveMaximum } = schema as Record<
        string,
        number | undefined
      >;
      const lows = [bound(minimum, false), bound(exclusiveMinimum, true)];
      const highs = [bound(maximum, false), bound(exclusiveMaximum, true)];
      for (const one of lows)
        if (
          one !== null &&
          (low === null || one.value > low.value || (one.value === low.value && one.exclusive))
        )
          low = one;
      for (const one of highs)
        if (
          one !== null &&
          (high === null || one.value < high.value || (one.value === high.value && one.exclusive))
        )
          high = one;
      if (schema.multipleOf === undefined) continue;
      bounded = true;
      const step = schema.multipleOf as number;
      const digits = /^1e-(\d+)$|^0\.(0*)1$/.exec(String(step));
      if (Number.isInteger(step) && step <= MAX_STEP && MAX_STEP / multipleOf >= step) {
        integer = true;
        multipleOf = leastCommonMultiple(multipleOf, step);
      } else if (digits !== null) {
        const places = digits[1] === undefined ? digits[2]!.length + 1 : Number(digits[1]);
        fractionDigits = Math.min(fractionDigits ?? places, places);
      } else
        throw unsupported(
          pointer,
          'multipleOf',
          `Steps are whole numbers up to ${MAX_STEP}, or 0.1, 0.01 and so on.`,
        );
    }
    if (low === null && high === null && !bounded) return rule(integer ? ANY.INTEGER : ANY.NUMBER);
    const words = numberWords({ low, high, integer, multipleOf, fractionDigits }, this.#budget);
    return hasNoWords(words) ? NOTHING : { kind: 'words', words, spelling: 'text' };
  }

  #array(plain: Plain): Expression {
    const { min, max } = mostOf(plain, 'minItems', 'maxItems');
    const firsts = plain.map((node) => nodesAt(node, 'prefixItems'));
    const known = Math.max(0, ...firsts.map(({ length }) => length));
    const itemAt = (i: number): Expression =>
      this.#deeper(() =>
        this.#value(
          plain.flatMap((node, n) => {
            const own = firsts[n]![i];
            if (own !== undefined) return [own];
            return node.schema.items === undefined ? [] : [nodeAt(node, 'items')];
          }),
        ),
      );
    if (max !== null && max < min) return NOTHING;
    const places = Math.min(known, max ?? known);
    const heads = Array.from({ length: places }, (_, i) => itemAt(i));
    // What cannot be an item ends the array before it.
    const broken = heads.findIndex(isNothing);
    const rest = broken >= 0 || (max !== null && max <= known) ? NOTHING : itemAt(known);
    const most = broken >= 0 ? broken : isNothing(rest) ? places : max;
    if (most !== null && most < min) return NOTHING;
    const usable = broken >= 0 ? heads.slice(0, broken) : heads;
    const items = usable.map((item, i) => ({ item, optional: i >= min }));
    if (isNothing(rest)) return braces('[', prefixList(items), ']');
    const more = most === null ? null : most - usable.length;
    const least = Math.max(0, min - usable.length);
    if (more === null && least === 0) {
      if (usable.length === 0) return braces('[', list([], rest), ']');
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
    const tail = least === 0 ? choice(EMPTY, counted) : counted;
    if (usable.length === 0) return braces('[', tail, ']');
    return braces('[', prefixList(items, counted, least > 0), ']');
  }

  #object(plain: Plain): Expression {
    const required = new Set(plain.flatMap(({ schema }) => (schema.required ?? []) as readonly string[]));
    const names = [
      ...new Set([...plain.flatMap(({ schema }) => Object.keys(schema.properties ?? {})), ...required]),
    ];
    this.#budget.spend(4 * names.length * plain.length);
    const members: Member[] = [];
    for (const name of names) {
      const value = this.#deeper(() => this.#value(plain.flatMap((node) => this.#schemasOf(node, name))));
      if (!isNothing(value))
        members.push({ item: member(text(JSON.stringify(name)), value), optional: !required.has(name) });
      else if (required.has(name)) return NOTHING;
    }
    const extras = this.#extras(plain, names);
    this.#checkCounts(plain, members, extras.length > 0);
    const more = extras.length === 0 ? null : choice(...extras);
    const inner =
      members.filter(({ optional }) => optional).length > MANY_OPTIONAL
        ? this.#longList(members, more)
        : list(members, more);
    return braces('{', inner, '}');
  }

  /**
   * The same as `list`, a rule for each place in it: in one automaton, what may be left out makes states of every place times every
   * name behind it.
   */
  #longList(members: readonly Member[], more: Expression | null): Expression {
    const id = this.#lists++;
    const place = (i: number, some: boolean): Expression => rule(`list-${id}-${some ? 'some' : 'none'}-${i}`);
    const define = (i: number, some: boolean, expression: Expression): void => {
      this.#rules.set(`list-${id}-${some ? 'some' : 'none'}-${i}`, expression);
    };
    const end = members.length;
    define(end, false, list([], more));
    define(end, true, more === null ? EMPTY : repeat(sequence(COMMA, more, SPACE), 0, null));
    members.forEach(({ item, optional }, i) => {
      for (const some of [false, true]) {
        const here = sequence(...(some ? [COMMA] : []), item, SPACE, place(i + 1, true));
        define(i, some, optional ? choice(here, place(i + 1, some)) : here);
      }
    });
    return place(0, false);
  }

  /** What one schema says of the property of a name. */
  #schemasOf(node: Plain[number], name: string): SchemaNode[] {
    const { properties = {}, patternProperties = {} } = node.schema as Record<string, SchemaObject>;
    const found: SchemaNode[] = [];
    if (Object.hasOwn(properties, name)) found.push(nodeAt(node, 'properties', name));
    for (const pattern of Object.keys(patternProperties))
      if (at(`${node.pointer}/patternProperties`, () => this.#validator.matches(pattern, true, name)))
        found.push(nodeAt(node, 'patternProperties', pattern));
    if (found.length === 0 && node.schema.additionalProperties !== undefined)
      found.push(nodeAt(node, 'additionalProperties'));
    return found;
  }

  /** Properties that are not named: their names and values. */
  #extras(plain: Plain, names: readonly string[]): Expression[] {
    interface Part {
      /** Null for all names. */
      readonly words: Words | null;
      readonly schemas: readonly SchemaNode[];
    }
    const named = plain.some(({ schema }) => schema.patternProperties !== undefined);
    if (!named && plain.some(({ schema }) => schema.additionalProperties === false)) return [];
    const budget = this.#budget;
    let parts: Part[] = [
      { words: names.length === 0 ? null : otherWords(listedWords(names, budget), budget), schemas: [] },
    ];
    for (const node of plain) {
      const { patternProperties = {}, additionalProperties } = node.schema as Record<string, SchemaObject>;
      // A part whose names no pattern of this schema has matched so far.
      let open = parts;
      const closed: Part[] = [];
      for (const pattern of Object.keys(patternProperties)) {
        const words = at(`${node.pointer}/patternProperties`, () => regexWords(pattern, true, budget));
        const others = otherWords(words, budget);
        const schema = nodeAt(node, 'patternProperties', pattern);
        const split = (list: readonly Part[]): [Part[], Part[]] => {
          const inside = list.map((part) => ({
            words: both(part.words, words, budget),
            schemas: [...part.schemas, schema],
          }));
          const outside = list.map((part) => ({ ...part, words: both(part.words, others, budget) }));
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
      const value = this.#deeper(() => this.#value(schemas));
      if (isNothing(value)) return [];
      return [member(words === null ? rule(ANY.STRING) : this.#nameRule(words), value)];
    });
  }

  /** A rule of its own: it stands in many places of an object. */
  #nameRule(words: Words): Expression {
    const name = `name-${this.#lists++}`;
    this.#rules.set(name, sequence(text('"'), quoted(words), text('"')));
    return rule(name);
  }

  /** How many properties there are is not counted: only bounds that hold anyway are taken. */
  #checkCounts(plain: Plain, members: readonly { readonly optional: boolean }[], more: boolean): void {
    const sure = members.filter(({ optional }) => !optional).length;
    for (const { schema, pointer } of plain) {
      const { minProperties = 0, maxProperties } = schema as Record<string, number | undefined>;
      if (minProperties > sure)
        throw unsupported(pointer, 'minProperties', 'Name the properties, and list them as `required`.');
      if (maxProperties !== undefined && (more || members.length > maxProperties))
        throw unsupported(
          pointer,
          'maxProperties',
          'Name the properties, with "additionalProperties": false.',
        );
    }
  }

  /** Whether no value can be both. False where that cannot be told. */
  #disjoint(a: Plain, b: Plain): boolean {
    this.#budget.spend(a.length + b.length);
    const [listedA, listedB] = [this.#listed(a), this.#listed(b)];
    const accepts = (plain: Plain, value: unknown): boolean =>
      plain.every((node) => this.#validator.accepts(node, value));
    if (listedA !== null) return !listedA.some((value) => accepts(b, value));
    if (listedB !== null) return !listedB.some((value) => accepts(a, value));
    const [typesA, typesB] = [typesOf(a), typesOf(b)];
    const shared = VALUE_TYPES.filter((type) => typesA.has(type) && typesB.has(type));
    if (shared.length === 0) return true;
    if (shared.length > 1 || shared[0] !== 'object') return false;
    const requiredBy = (plain: Plain): string[] =>
      plain.flatMap(({ schema }) => (schema.required ?? []) as string[]);
    const forbids = (plain: Plain, name: string): boolean =>
      plain.some((node) => this.#schemasOf(node, name).some(({ schema }) => schema === false));
    const [namesA, namesB] = [requiredBy(a), requiredBy(b)];
    if (namesA.some((name) => forbids(b, name)) || namesB.some((name) => forbids(a, name))) return true;
    return namesA.some((name) => {
      if (!namesB.includes(name)) return false;
      const [valuesA, valuesB] = [this.#propertyOf(a, name), this.#propertyOf(b, name)];
      return this.#deeper(() => valuesA.every((one) => valuesB.every((other) => this.#disjoint(one, other))));
    });
  }

  #propertyOf(plain: Plain, name: string): readonly Plain[] {
    let known = this.#properties.get(plain);
    if (known === undefined) {
      known = new Map();
      this.#properties.set(plain, known);
    }
    let values = known.get(name);
    if (values === undefined) {
      values = this.#alternatives.of(plain.flatMap((node) => this.#schemasOf(node, name)));
      known.set(name, values);
    }
    return values;
  }

  #deeper<T>(make: () => T): T {
    if (++this.#depth > MAX_NESTED)
      throw unsupported('#', '$ref', 'The schema refers to itself in ever new ways.');
    const made = make();
    this.#depth--;
    return made;
  }

  #checkStrict({ schema, pointer }: SchemaNode): void {
    if (!this.#strict || typeof schema === 'boolean') return;
    const isObject = schema.type === 'object' || schema.properties !== undefined;
    if (!isObject) return;
    const needs = (keyword: string, fix: string): Error => unsupported(pointer, keyword, fix);
    if (schema.additionalProperties !== false)
      throw needs(
        'additionalProperties',
        'With "strict": true every object has "additionalProperties": false. Or leave `strict` out.',
      );
    const required = new Set((schema.required ?? []) as readonly string[]);
    const missing = Object.keys(schema.properties ?? {}).find((name) => !required.has(name));
    if (missing !== undefined)
      throw needs(
        'required',
        'With "strict": true every property is listed as required. Or leave `strict` out.',
      );
  }
}

interface Member {
  readonly item: Expression;
  readonly optional: boolean;
}

/** Properties that may be left out, of which an object has more than this, are not put into one automaton. */
const MANY_OPTIONAL = 8;
/** Schemas within schemas, references followed. */
const MAX_NESTED = 256;
/** Whole numbers that may be a step: the automaton keeps the remainder. */
const MAX_STEP = 1000;

/** Items that stand in a row, all behind an optional one optional too; `rest` behind the last of them. */
function prefixList(
  items: readonly { readonly item: Expression; readonly optional: boolean }[],
  rest: Expression | null = null,
  needsRest = false,
): Expression {
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

/** Types that all allow; whole numbers are numbers. */
function typesOf(plain: Plain): Set<ValueType> {
  let types = new Set(VALUE_TYPES);
  for (const { schema } of plain) {
    if (schema.type === undefined) continue;
    const own = listOfTypes(schema).map((type) => (type === 'integer' ? 'number' : type));
    types = new Set(own.filter((type) => types.has(type)));
  }
  return types;
}

const listOfTypes = ({ type }: SchemaObject): readonly JsonType[] =>
  (Array.isArray(type) ? type : [type]) as readonly JsonType[];

/** Numbers have no fractions. */
const wholeOnly = (plain: Plain): boolean =>
  plain.some(({ schema }) => {
    if (schema.type === undefined) return false;
    const types = listOfTypes(schema);
    return types.includes('integer') && !types.includes('number');
  });

const bound = (value: number | undefined, exclusive: boolean): Bound | null =>
  value === undefined ? null : { value, exclusive };

const both = (a: Words | null, b: Words, budget: Budget): Words =>
  a === null ? b : intersectWords(a, b, budget);
const isUsed = ({ words }: { readonly words: Words | null }): boolean => words === null || !hasNoWords(words);

function leastCommonMultiple(a: number, b: number): number {
  let [x, y] = [a, b];
  while (y > 0) [x, y] = [y, x % y];
  return (a / x) * b;
}
