/** What a schema's grammar takes, and values to try it with. */
import { compileAsk } from '../../src/grammar/ask.js';
import { Matcher, type ParserState } from '../../src/grammar/matcher.js';

/** Whether a whole value is what a schema lets be written. */
export function reader(schema: unknown): (value: unknown) => boolean {
  const matcher = new Matcher(compileAsk({ kind: 'schema', schema: JSON.stringify(schema), strict: false }));
  return (value) => {
    let state: ParserState | null = matcher.start;
    for (const byte of Buffer.from(JSON.stringify(value)))
      state = state === null ? null : matcher.step(state, byte);
    return state?.done ?? false;
  };
}

export const TEXTS = ['', 'a', 'b', 'ab', 'foo', 'bar'];
const OBJECTS = [
  {},
  { a: 1 },
  { b: 1 },
  { a: 1, b: 1 },
  { a: 1, b: 'x' },
  { a: 1, b: 1, c: 1 },
  { c: 1 },
  { a: 'x', c: 'y' },
  { foo: 1, bar: 2 },
];
export const ARRAYS = [[], [1], ['a'], [1, 'a'], ['a', 1, 2], [5], [1, 5, 'x'], [[1], 1], [1, 1]];
export const NUMBERS = [0, 1, -1, 0.5, 0.25, 0.75, 1.5, 2.5, 1e-4, 0.0075, 0.00751, 35, 4.5];
export const ANYTHING = [...TEXTS, ...OBJECTS, ...ARRAYS, ...NUMBERS, true, false, null];

/** Of the orders that its names may have, a grammar takes one. */
export function inOrders(value: unknown): unknown[] {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return [value];
  const orders = (names: readonly string[]): (readonly string[])[] =>
    names.length < 2
      ? [names]
      : names.flatMap((name) =>
          orders(names.filter((other) => other !== name)).map((rest) => [name, ...rest]),
        );
  return orders(Object.keys(value)).map((names) =>
    Object.fromEntries(names.map((name) => [name, (value as Record<string, unknown>)[name]])),
  );
}

/** No object has a property of this name here: it would look like a promise. */
export const THEN = 'then';
