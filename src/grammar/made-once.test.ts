import { expect, test } from 'vitest';
import { compileGrammar } from './compile.js';
import { schemaGrammar } from './json/schema.js';
import { Budget } from './limits.js';
import { GrammarMasks } from './masks.js';
import { Matcher } from './matcher.js';
import { prepareTokens } from './token-set.js';

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

test('a mask is the same where there is room for it, whatever was there, and when it is asked for again', () => {
  const texts = ['{', ':', 'b', '"', 'a', 'ab', '": ', '1', '12', '}', ' ', '{"', ','].map((text) =>
    Buffer.from(text),
  );
  const offsets = new Uint32Array(texts.length + 1);
  texts.forEach((text, id) => {
    offsets[id + 1] = offsets[id]! + text.length;
  });
  const data = new Uint8Array(Buffer.concat(texts));
  const set = prepareTokens({ data, offsets, usable: () => true, size: texts.length });
  const budget = new Budget();
  const schema = { type: 'object', properties: { ab: { type: 'integer' } }, required: ['ab'] };
  const matcher = new Matcher(compileGrammar(schemaGrammar(schema, budget), budget));
  const masks = new GrammarMasks(set, [], texts.length);
  const room = new Uint32Array(1).fill(0xffff_ffff);
  let state = matcher.start;
  for (const byte of Buffer.from('{"ab": 12')) {
    const fresh = [...new GrammarMasks(set, [], texts.length).mask(matcher, state)];
    expect(fresh[0]).toBeGreaterThan(0);
    expect(masks.mask(matcher, state, room)).toBe(room);
    expect([...room]).toEqual(fresh);
    room.fill(0xffff_ffff);
    for (let again = 0; again < 2; again++) {
      const kept = masks.mask(matcher, state, room);
      expect(kept).not.toBe(room);
      expect([...kept]).toEqual(fresh);
    }
    state = matcher.step(state, byte)!;
  }
});
