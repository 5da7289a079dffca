/** Arrays by their places, where what came before decides what may come: items of a kind that are counted, and items that are all different. */

import { EMPTY, type Expression, isNothing, NOTHING, oneOf, rule, sequence } from '../expression.js';
import { type Plain, typesOf } from './plain.js';
import { nodeAt, type SchemaNode, type SchemaObject, trusted, unsupported } from './schema-nodes.js';
import type { SchemaValues } from './schema-values.js';
import { braces, COMMA, literal, SPACE } from './terminals.js';

/** An array without what is counted. */
export interface Places {
  /** What all items at a place have to be. */
  nodesOf(place: number): readonly SchemaNode[];
  /** Places from this one on have the same. */
  readonly known: number;
  readonly min: number;
  readonly max: number | null;
}

/** Rules of one array. */
const MAX_PLACES = 2048;

interface Step {
  readonly item: Expression;
  readonly to: string;
}

class PlaceRules {
  readonly #values: SchemaValues;
  readonly #name: string;
  #made = 0;

  constructor(values: SchemaValues) {
    this.#values = values;
    this.#name = values.rename('places');
  }

  /** @param first whether no item stands before, @param ends whether the array may be over */
  define(state: string, first: boolean, ends: boolean, steps: readonly Step[], tooMany: () => Error): void {
    if (++this.#made > MAX_PLACES) throw tooMany();
    const items = steps.map(({ item, to }) =>
      sequence(...(first ? [] : [COMMA]), item, SPACE, rule(this.#nameOf(to))),
    );
    this.#values.defineAs(this.#nameOf(state), oneOf([...(ends ? [EMPTY] : []), ...items]));
  }

  array(state: string): Expression {
    return braces('[', rule(this.#nameOf(state)), ']');
  }

  #nameOf(state: string): string {
    return `${this.#name}-${state}`;
  }
}

/** An array of which from `minContains` to `maxContains` items are of a kind. Errors: `unsupported-schema`. */
export function countedKind(node: SchemaNode, places: Places, values: SchemaValues): Expression {
  const schema = node.schema as SchemaObject;
  const { minContains: least = 1, maxContains: most } = schema as Record<string, number | undefined>;
  const { known, min, max } = places;
  if (most !== undefined && most < least) return NOTHING;
  if (max !== null && max < least) return NOTHING;
  // With more than enough of them it is not counted on.
  const enough = most ?? least;
  const from = Math.max(known, min, 1);
  const end = max ?? from;
  const tooMany = (): Error =>
    unsupported(
      node.pointer,
      'contains',
      'Items of a kind are counted in short arrays: lower `maxItems`, `minContains` or `maxContains`.',
    );
  if ((end + 1) * (enough + 1) > MAX_PLACES) throw tooMany();
  const wanted = nodeAt(node, 'contains');
  const other = { schema: trusted({ not: schema.contains }), pointer: node.pointer };
  const kinds = Array.from({ length: Math.min(end, known) + 1 }, (_, place) => {
    const nodes = places.nodesOf(place);
    const own = values.inner([...nodes, wanted]);
    return { own, other: otherItems(nodes, other, most === undefined, values) };
  });
  const rules = new PlaceRules(values);
  for (let place = 0; place <= end; place++)
    for (
      let count = 0;
      count <= (max === null && place === end ? enough : Math.min(place, enough));
      count++
    ) {
      const { own, other: rest } = kinds[Math.min(place, kinds.length - 1)]!;
      const next = max === null ? Math.min(place + 1, end) : place + 1;
      const steps: Step[] = [];
      if (max === null || place < max) {
        const isFull = count === enough;
        if (!(isFull && most !== undefined) && !isNothing(own))
          steps.push({ item: own, to: `${next}-${Math.min(count + 1, enough)}` });
        if (!isNothing(rest)) steps.push({ item: rest, to: `${next}-${count}` });
      }
      const ends = place >= min && count >= least;
      rules.define(`${place}-${count}`, place === 0, ends, steps, tooMany);
    }
  return rules.array('0-0');
}

/** Items that are not of the kind; where that cannot be told and they are not counted to an end, any. */
function otherItems(
  nodes: readonly SchemaNode[],
  other: SchemaNode,
  orAny: boolean,
  values: SchemaValues,
): Expression {
  try {
    return values.inner([...nodes, other]);
  } catch (error) {
    if (!orAny || (error as { code?: unknown }).code !== 'unsupported-schema') throw error;
    return values.inner(nodes);
  }
}

/** An array of items that are all different, of few values that are spelled out. Errors: `unsupported-schema`. */
export function differentItems(
  pointer: string,
  { nodesOf, known, min, max }: Places,
  values: SchemaValues,
): Expression {
  const tooMany = (): Error =>
    unsupported(
      pointer,
      'uniqueItems',
      'It is taken where items are a few values that the schema spells out (`enum`, `const`). Leave it out, and check the answer.',
    );
  const numbers = new Map<string, number>();
  const literals: Expression[] = [];
  const numberOf = (value: unknown): number => {
    const key = values.keyOf(value);
    let number = numbers.get(key);
    if (number === undefined) {
      number = literals.length;
      numbers.set(key, number);
      literals.push(literal(value));
    }
    return number;
  };
  const choices = Array.from({ length: Math.min(known, max ?? known) + 1 }, (_, place) => {
    const found = values.alternatives(nodesOf(place)).map((plain) => spelledOut(plain, values));
    if (found.some((one) => one === null)) throw tooMany();
    return [...new Set(found.flatMap((one) => one!.map(numberOf)))];
  });
  // Sets of them are counted.
  if (literals.length > 30) throw tooMany();
  const rules = new PlaceRules(values);
  const todo: [place: number, used: number][] = [[0, 0]];
  const seen = new Set<string>();
  for (let next = todo.pop(); next !== undefined; next = todo.pop()) {
    const [place, used] = next;
    const state = `${place}-${used}`;
    if (seen.has(state)) continue;
    seen.add(state);
    const steps: Step[] = [];
    if (max === null || place < max)
      for (const number of choices[Math.min(place, choices.length - 1)]!) {
        if ((used & (1 << number)) !== 0) continue;
        const then = used | (1 << number);
        todo.push([place + 1, then]);
        steps.push({ item: literals[number]!, to: `${place + 1}-${then}` });
      }
    rules.define(state, place === 0, place >= min, steps, tooMany);
  }
  return rules.array('0-0');
}

/** All values that it leaves; null where there are others. */
function spelledOut(plain: Plain, values: SchemaValues): readonly unknown[] | null {
  const listed = values.listed(plain);
  if (listed !== null) return listed;
  const types = [...typesOf(plain)];
  const known: unknown[] = [];
  for (const type of types) {
    if (type !== 'boolean' && type !== 'null') return null;
    known.push(...(type === 'null' ? [null] : [true, false]));
  }
  return known;
}
