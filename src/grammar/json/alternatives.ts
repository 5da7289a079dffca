/**
 * A schema as a choice of plain ones: `anyOf`, `oneOf`, `allOf` and `$ref` taken apart, so that what is left of an alternative is a
 * list of schemas that all hold, without any of these keywords.
 */

import { type Budget, tooLarge } from '../limits.js';
import {
  assertsSomething,
  checkKeywords,
  nodesAt,
  type SchemaDocument,
  type SchemaNode,
  type SchemaObject,
  unsupported,
} from './schema-nodes.js';

/** All of these hold. */
export type Plain = readonly (SchemaNode & { readonly schema: SchemaObject })[];

const MAX_ALTERNATIVES = 1024;

export class Alternatives {
  readonly #document: SchemaDocument;
  readonly #budget: Budget;
  readonly #areDisjoint: (a: Plain, b: Plain) => boolean;
  readonly #check: (node: SchemaNode) => void;
  /** References that are followed at the moment. */
  readonly #open = new Set<unknown>();

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
  }

  /** Errors: `invalid-schema`, `unsupported-schema`, `grammar-too-large`. */
  of(nodes: readonly SchemaNode[]): Plain[] {
    let all: Plain[] = [[]];
    for (const node of nodes) all = this.#both(all, this.#ofOne(node));
    return all;
  }

  #ofOne(node: SchemaNode): Plain[] {
    this.#budget.spend(1);
    const { schema, pointer } = node;
    if (typeof schema === 'boolean') return schema ? [[]] : [];
    checkKeywords(node);
    this.#check(node);
    let all: Plain[] = assertsSomething(schema) ? [[{ schema, pointer }]] : [[]];
    if (schema.$ref !== undefined) {
      const target = this.#document.resolve(node);
      if (this.#open.has(target.schema))
        throw unsupported(pointer, '$ref', 'It leads back to itself with nothing in between: correct it.');
      this.#open.add(target.schema);
      all = this.#both(all, this.#ofOne(target));
      this.#open.delete(target.schema);
    }
    for (const part of nodesAt(node, 'allOf')) all = this.#both(all, this.#ofOne(part));
    if (schema.anyOf !== undefined)
      all = this.#both(all, this.#bounded(nodesAt(node, 'anyOf').flatMap((branch) => this.#ofOne(branch))));
    if (schema.oneOf !== undefined) all = this.#both(all, this.#oneOf(node));
    return all;
  }

  #oneOf(node: SchemaNode): Plain[] {
    const branches = nodesAt(node, 'oneOf').map((branch) => this.#ofOne(branch));
    branches.forEach((branch, i) => {
      for (const other of branches.slice(i + 1))
        for (const a of branch)
          for (const b of other) {
            this.#budget.spend(10);
            if (!this.#areDisjoint(a, b))
              throw unsupported(
                node.pointer,
                'oneOf',
                'A value may be more than one of its cases. Write `anyOf`, or a required property with another `const` in each.',
              );
          }
    });
    return this.#bounded(branches.flat());
  }

  #both(some: readonly Plain[], others: readonly Plain[]): Plain[] {
    return this.#bounded(
      some.flatMap((one) =>
        others.map((other) => [
          ...one,
          ...other.filter(({ schema }) => !one.some((known) => known.schema === schema)),
        ]),
      ),
    );
  }

  #bounded(alternatives: Plain[]): Plain[] {
    this.#budget.spend(alternatives.length);
    if (alternatives.length > MAX_ALTERNATIVES)
      throw tooLarge(`has more than ${MAX_ALTERNATIVES} alternatives in one place`);
    return alternatives;
  }
}
