/**
 * A schema as a choice of plain ones: `anyOf`, `oneOf`, `allOf`, `not`, `if` and `$ref` taken apart, so that what is left of an alternative is a
 * list of schemas that all hold, without any of these keywords.
 */

import { type Budget, tooLarge } from '../limits.js';
import type { SchemaDocument } from './document.js';
import { Negations } from './negation.js';
import type { Plain, PlainNode } from './plain.js';
import {
  assertsSomething,
  checkKeywords,
  nodeAt,
  nodesAt,
  type SchemaNode,
  type SchemaObject,
  trusted,
  unsupported,
} from './schema-nodes.js';

const REST = ['unevaluatedProperties', 'unevaluatedItems'] as const;
/** What looks at parts of a value. */
const LOOKS = ['properties', 'patternProperties', 'additionalProperties', 'items', 'prefixItems', 'contains'];
const looksAtParts = ({ schema }: PlainNode): boolean => LOOKS.some((name) => schema[name] !== undefined);

const MAX_ALTERNATIVES = 1024;
/** Of so many it is asked which can be at all. */
const MANY = 8;
/** Steps of work that putting two of them together takes, whatever they are. */
const JOINED = 4;
/** And looking into a schema. */
const OPENED = 8;

export class Alternatives {
  readonly #document: SchemaDocument;
  readonly #budget: Budget;
  readonly #areDisjoint: (a: Plain, b: Plain) => boolean;
  readonly #check: (node: SchemaNode) => void;
  /** References that are followed at the moment. */
  readonly #open = new Set<unknown>();
  readonly #numbers = new Map<unknown, number>();
  readonly #rests = new Map<string, SchemaObject | null>();
  readonly #negations: Negations;
  /** What was made of schemas that are not to hold: they have looked at nothing. */
  readonly #negative = new WeakSet<SchemaObject>();
  readonly #marked = new WeakMap<SchemaObject, SchemaObject>();
  /** Schemas around that ask what others have looked at. */
  #asking = 0;

  /** `areDisjoint`: whether no value can be both, for `oneOf`. `check`: looks at each schema besides. */
  constructor(
    document: SchemaDocument,
    budget: Budget,
    areDisjoint: (a: Plain, b: Plain) => boolean,
    check: (node: SchemaNode) => void,
  ) {
    this.#document = document;
    this.#budget = budget;
    this.#areDisjoint = areDisjoint;
    this.#check = check;
    this.#negations = new Negations(document, {
      of: (nodes) => this.of(nodes),
      both: (some, others) => this.#both(some, others),
    });
  }

  /** Errors: `invalid-schema`, `unsupported-schema`, `grammar-too-large`. */
  of(nodes: readonly SchemaNode[]): readonly Plain[] {
    const asking = this.#asking;
    this.#asking = 0;
    try {
      let all: readonly Plain[] = [[]];
      for (const node of nodes) all = this.#both(all, this.#ofOne(node));
      return all;
    } finally {
      this.#asking = asking;
    }
  }

  #ofOne(node: SchemaNode): readonly Plain[] {
    this.#budget.spend(OPENED);
    const { schema, pointer } = node;
    if (typeof schema === 'boolean') return schema ? [[]] : [];
    checkKeywords(node);
    this.#check(node);
    let all: readonly Plain[] = assertsSomething(schema) ? [[{ schema, pointer }]] : [[]];
    const rests = REST.filter((keyword) => schema[keyword] !== undefined);
    this.#asking += rests.length;
    if (schema.$ref !== undefined) {
      const target = this.#document.resolve(node);
      if (this.#open.has(target.schema))
        throw unsupported(pointer, '$ref', 'It leads back to itself with nothing in between: correct it.');
      this.#open.add(target.schema);
      all = this.#both(all, this.#ofOne(target));
      this.#open.delete(target.schema);
    }
    for (const part of nodesAt(node, 'allOf')) all = this.#both(all, this.#ofOne(part));
    for (const branches of dependenciesOf(node)) {
      const cases = branches.flatMap((branch) => this.#ofOne(branch));
      all = this.#both(all, this.#bounded(cases));
    }
    if (schema.anyOf !== undefined) all = this.#both(all, this.#anyOf(node));
    if (schema.oneOf !== undefined) all = this.#both(all, this.#oneOf(node));
    if (schema.not !== undefined) all = this.#possible(all, this.#not(nodeAt(node, 'not')));
    const branches = schema.then !== undefined || schema.else !== undefined;
    // By itself it changes nothing but what has been looked at.
    if (schema.if !== undefined && (branches || this.#asking > 0))
      all = this.#possible(all, this.#conditional(node));
    this.#asking -= rests.length;
    for (const keyword of rests) all = all.map((plain) => this.#withRest(plain, node, keyword));
    return all;
  }

  /** One of the cases or more. */
  #anyOf(node: SchemaNode): readonly Plain[] {
    const nodes = nodesAt(node, 'anyOf');
    const branches = nodes.map((branch) => this.#ofOne(branch));
    const flat = this.#bounded(branches.flat());
    // A value that is several cases has been looked at by all of them.
    const looks = branches.some((branch) => branch.some((plain) => plain.some(looksAtParts)));
    const apart = (i: number, j: number): boolean => !this.#overlap(branches[i]!, branches[j]!);
    if (this.#asking === 0 || !looks || nodes.every((_, i) => nodes.every((_, j) => j <= i || apart(i, j))))
      return flat;
    if (nodes.length > MANY)
      throw unsupported(
        node.pointer,
        'anyOf',
        'Beside `unevaluated…` its cases are few, or have nothing in common.',
      );
    let none: readonly Plain[] = [[]];
    let some: readonly Plain[] = [];
    nodes.forEach((branch, i) => {
      const other = this.#not(branch);
      const more = this.#possible(none, branches[i]!);
      some = [...this.#possible(some, branches[i]!), ...this.#possible(some, other), ...more];
      none = this.#possible(none, other);
    });
    return this.#bounded(some);
  }

  /** What of a value no schema of these has looked at is what `keyword` says. */
  #withRest(plain: Plain, node: SchemaNode, keyword: (typeof REST)[number]): Plain {
    const key = `${keyword}:${[node, ...plain].map(({ schema }) => this.#numberOf(schema)).join()}`;
    let rest = this.#rests.get(key);
    if (rest === undefined) {
      const positive = plain.filter(({ schema }) => !this.#negative.has(schema));
      rest = restOf(positive, node, keyword);
      this.#rests.set(key, rest);
    }
    return rest === null ? plain : [...plain, { schema: rest, pointer: node.pointer }];
  }

  #numberOf(schema: unknown): number {
    let number = this.#numbers.get(schema);
    if (number === undefined) {
      number = this.#numbers.size;
      this.#numbers.set(schema, number);
    }
    return number;
  }

  #not(node: SchemaNode): readonly Plain[] {
    return this.#negations
      .of(node)
      .map((plain) => plain.map(({ schema, pointer }) => ({ schema: this.#marks(schema), pointer })));
  }

  /** The same schema, as one that is not to hold. */
  #marks(schema: SchemaObject): SchemaObject {
    let marked = this.#marked.get(schema);
    if (marked === undefined) {
      marked = this.#negative.has(schema) ? schema : trusted({ ...schema });
      this.#marked.set(schema, marked);
      this.#negative.add(marked);
    }
    return marked;
  }

  #conditional(node: SchemaNode): readonly Plain[] {
    const branch = (keyword: 'then' | 'else'): readonly Plain[] =>
      (node.schema as SchemaObject)[keyword] === undefined ? [[]] : this.#ofOne(nodeAt(node, keyword));
    const condition = nodeAt(node, 'if');
    return this.#bounded([
      ...this.#possible(this.#ofOne(condition), branch('then')),
      ...this.#possible(this.#not(condition), branch('else')),
    ]);
  }

  /** One of the cases, and none of those that it shares values with. */
  #oneOf(node: SchemaNode): readonly Plain[] {
    const nodes = nodesAt(node, 'oneOf');
    const branches = nodes.map((branch) => this.#ofOne(branch));
    const cases = branches.map((branch) => [branch] as (readonly Plain[])[]);
    branches.forEach((branch, i) => {
      for (let j = i + 1; j < branches.length; j++) {
        if (!this.#overlap(branch, branches[j]!)) continue;
        cases[i]!.push(this.#notCase(node, nodes[j]!));
        cases[j]!.push(this.#notCase(node, nodes[i]!));
      }
    });
    return this.#bounded(cases.flatMap((parts) => parts.reduce((all, part) => this.#possible(all, part))));
  }

  /** Whether a value may be both, as far as can be told. */
  #overlap(one: readonly Plain[], other: readonly Plain[]): boolean {
    return one.some((a) =>
      other.some((b) => {
        this.#budget.spend(10);
        return !this.#areDisjoint(a, b);
      }),
    );
  }

  #notCase({ pointer }: SchemaNode, branch: SchemaNode): readonly Plain[] {
    try {
      return this.#not(branch);
    } catch (error) {
      if ((error as { code?: unknown }).code !== 'unsupported-schema') throw error;
      throw unsupported(
        pointer,
        'oneOf',
        'A value may be more than one of its cases. Write `anyOf`, or a required property with another `const` in each.',
      );
    }
  }

  /** What is one of each, without what cannot be both. */
  #possible(some: readonly Plain[], others: readonly Plain[]): readonly Plain[] {
    return this.#bounded(
      some.flatMap((one) =>
        others.flatMap((other) => {
          this.#budget.spend(10);
          if (one.length > 0 && other.length > 0 && this.#areDisjoint(one, other)) return [];
          return [this.#joined(one, other)];
        }),
      ),
    );
  }

  #both(some: readonly Plain[], others: readonly Plain[]): readonly Plain[] {
    // Most schemas are one alternative that says nothing, or nothing new.
    if (some.length === 1 && some[0]!.length === 0) return this.#bounded(others);
    if (others.length === 1 && others[0]!.length === 0) return this.#bounded(some);
    if (some.length * others.length > MANY) return this.#possible(some, others);
    return this.#bounded(some.flatMap((one) => others.map((other) => this.#joined(one, other))));
  }

  #joined(one: Plain, other: Plain): Plain {
    this.#budget.spend(JOINED + one.length * (1 + other.length));
    const more = other.filter(({ schema }) => !one.some((known) => known.schema === schema));
    return more.length === 0 ? one : [...one, ...more];
  }

  #bounded(alternatives: readonly Plain[]): readonly Plain[] {
    this.#budget.spend(alternatives.length);
    this.#refuseMore(alternatives.length);
    return alternatives;
  }

  #refuseMore(count: number): void {
    if (count > MAX_ALTERNATIVES)
      throw tooLarge(`has more than ${MAX_ALTERNATIVES} alternatives in one place`);
  }
}

/** By dependency: its cases, as schemas. They are the same objects each time. */
function dependenciesOf({ schema, pointer }: SchemaNode): readonly (readonly SchemaNode[])[] {
  const own = schema as SchemaObject;
  let known = dependencies.get(own);
  if (known === undefined) {
    known = ['dependentRequired', 'dependentSchemas', 'dependencies'].flatMap((keyword) =>
      Object.entries((own[keyword] ?? {}) as SchemaObject).map(([name, needs]) => {
        const more = Array.isArray(needs)
          ? { required: [name, ...needs] }
          : { required: [name], allOf: [needs] };
        return [{ properties: { [name]: false } }, more].map((branch) => ({
          schema: branch,
          pointer: `${pointer}/${keyword}`,
        }));
      }),
    );
    dependencies.set(own, known);
  }
  return known;
}

const dependencies = new WeakMap<SchemaObject, readonly (readonly SchemaNode[])[]>();

/** Null where all has been looked at. */
function restOf(plain: Plain, { schema }: SchemaNode, keyword: (typeof REST)[number]): SchemaObject | null {
  const rest = (schema as SchemaObject)[keyword];
  if (keyword === 'unevaluatedItems') {
    if (plain.some(({ schema: one }) => one.items !== undefined)) return null;
    const kinds = plain.flatMap(({ schema: one }) => (one.contains === undefined ? [] : [one.contains]));
    const known = Math.max(
      0,
      ...plain.map(({ schema: one }) => ((one.prefixItems ?? []) as unknown[]).length),
    );
    return {
      ...(known === 0 ? {} : { prefixItems: Array.from({ length: known }, () => true) }),
      // Items of a kind that is asked for have been looked at.
      items: kinds.length === 0 ? rest : { anyOf: [...kinds, rest] },
    };
  }
  if (plain.some(({ schema: one }) => one.additionalProperties !== undefined)) return null;
  const seen = (name: 'properties' | 'patternProperties'): SchemaObject =>
    Object.fromEntries(
      plain.flatMap(({ schema: one }) => Object.keys(one[name] ?? {})).map((key) => [key, true]),
    );
  return {
    properties: seen('properties'),
    patternProperties: seen('patternProperties'),
    additionalProperties: rest,
  };
}
