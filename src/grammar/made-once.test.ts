import { expect, test } from 'vitest';
import { compileGrammar } from './compile.js';
import { schemaGrammar } from './json/schema.js';
import { Budget } from './limits.js';

/** Steps and states of a schema, and the tables that it becomes. */
function made(schema: unknown): { work: number; states: number; key: string } {
  const budget = new Budget();
  const { key } = compileGrammar(schemaGrammar(schema, budget), budget);
  return { work: budget.work, states: budget.states, key };
}

test('what grammars have in common is paid for by each of them, whoever asks first', () => {
  const schema = {
    type: 'object',
    properties: {
      when: { type: 'string', format: 'date-time' },
      where: { type: 'string', format: 'uri' },
      again: { type: 'string', format: 'uri' },
      many: { type: 'number' },
    },
  };
  const first = made(schema);
  expect(first.work).toBeGreaterThan(10_000);
  expect(made(schema)).toEqual(first);
});

test('long texts and numbers of which the same is said are one rule', () => {
  const properties = (count: number): Record<string, unknown> =>
    Object.fromEntries(
      Array.from({ length: count }, (_, i) => [
        `p${i}`,
        i % 2 === 0
          ? { type: 'string', pattern: '^[a-z]{3,12}(-[a-z]{3,12}){1,3}$' }
          : { type: 'number', minimum: 0, maximum: 1 },
      ]),
    );
  const statesOf = (count: number): number => {
    const budget = new Budget();
    const grammar = schemaGrammar({ type: 'object', properties: properties(count) }, budget);
    return compileGrammar(grammar, budget).ruleOf.length;
  };
  // A property more is a name and the signs about it.
  expect(statesOf(8) - statesOf(6)).toBeLessThan(60);
});
