/** Whether no value can be two cases of a `oneOf`. */

import { hasNoWords } from '../words.js';
import { schemasOf } from './objects.js';
import { boundsOf, type Plain, requiredOf, typesOf, VALUE_TYPES, type ValueType } from './plain.js';
import { unsupported } from './schema-nodes.js';
import type { SchemaValues } from './schema-values.js';
import { stringWords } from './strings.js';

/** Tags within tags. */
const MAX_NESTED = 64;

export class Disjointness {
  readonly #values: SchemaValues;
  /** By alternative and name: what it says of that property. */
  readonly #properties = new WeakMap<Plain, Map<string, readonly Plain[]>>();
  #depth = 0;

  constructor(values: SchemaValues) {
    this.#values = values;
  }

  /** Whether no value can be both. False where that cannot be told. */
  of(a: Plain, b: Plain): boolean {
    const values = this.#values;
    values.budget.spend(a.length + b.length);
    const [listedA, listedB] = [values.listed(a), values.listed(b)];
    if (listedA !== null) return !listedA.some((value) => values.accepts(b, value));
    if (listedB !== null) return !listedB.some((value) => values.accepts(a, value));
    const [typesA, typesB] = [typesOf(a), typesOf(b)];
    return VALUE_TYPES.every((type) => !typesA.has(type) || !typesB.has(type) || this.#apartAs(type, a, b));
  }

  /** Whether no value of this type can be both. */
  #apartAs(type: ValueType, a: Plain, b: Plain): boolean {
    const { budget, numbers } = this.#values;
    switch (type) {
      case 'object':
        return this.#objects(a, b);
      case 'string': {
        const words = stringWords([...a, ...b], budget);
        return words !== 'any' && hasNoWords(words);
      }
      case 'number':
        return numbers.hasNone([...a, ...b]);
      case 'array': {
        const { min, max } = boundsOf([...a, ...b], 'minItems', 'maxItems');
        return max !== null && max < min;
      }
      default:
        return false;
    }
  }

  #objects(a: Plain, b: Plain): boolean {
    const [namesA, namesB] = [requiredOf(a), requiredOf(b)];
    if (namesA.some((name) => this.#forbids(b, name)) || namesB.some((name) => this.#forbids(a, name)))
      return true;
    return [...new Set([...namesA, ...namesB])].some((name) => this.#apart(a, b, name));
  }

  #forbids(plain: Plain, name: string): boolean {
    return plain.some((node) => schemasOf(node, name, this.#values).some(({ schema }) => schema === false));
  }

  /** Whether a property of this name cannot be what both say of it. */
  #apart(a: Plain, b: Plain, name: string): boolean {
    if (++this.#depth > MAX_NESTED)
      throw unsupported('#', '$ref', 'The schema refers to itself in ever new ways.');
    const [valuesA, valuesB] = [this.#propertyOf(a, name), this.#propertyOf(b, name)];
    const apart = valuesA.every((one) => valuesB.every((other) => this.of(one, other)));
    this.#depth--;
    return apart;
  }

  #propertyOf(plain: Plain, name: string): readonly Plain[] {
    let known = this.#properties.get(plain);
    if (known === undefined) {
      known = new Map();
      this.#properties.set(plain, known);
    }
    let found = known.get(name);
    if (found === undefined) {
      found = this.#values.alternatives(plain.flatMap((node) => schemasOf(node, name, this.#values)));
      known.set(name, found);
    }
    return found;
  }
}
