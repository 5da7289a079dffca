/** Keywords that depend on one another: what others have looked at, and random schemas of several. */
import { Ajv2020 } from 'ajv/dist/2020.js';
import { describe, expect, it } from 'vitest';
import { ANYTHING, inOrders, NUMBERS, reader, TEXTS, THEN } from '../../../test/setup/schema-reader.js';

describe('keywords together', () => {
  const ajv = new Ajv2020({ strict: false, validateSchema: false });

  // Verdicts of python-jsonschema: Ajv does not see all that `if` and `contains` have looked at.
  it.each<[object, unknown[], unknown[]]>([
    [
      {
        anyOf: [{ properties: { a: { type: 'integer' } } }, { required: ['b'], properties: { b: true } }],
        unevaluatedProperties: false,
      },
      [{}, { a: 1 }, { a: 1, b: 1 }, { b: 1 }, 1],
      [{ c: 1 }, { a: 'x' }, { a: 'x', b: 1 }, { a: 1, c: 1 }],
    ],
    [
      { if: { required: ['a'], properties: { a: true } }, unevaluatedProperties: false },
      [{}, { a: 1 }],
      [{ b: 1 }, { a: 1, b: 1 }],
    ],
    [
      {
        properties: { a: true },
        not: { required: ['b'], properties: { c: true } },
        unevaluatedProperties: false,
      },
      [{}, { a: 1 }],
      [{ c: 1 }, { a: 1, b: 1 }],
    ],
    [
      {
        if: { properties: { a: { const: 1 } }, required: ['a'] },
        [THEN]: { properties: { b: true } },
        else: { properties: { c: true } },
        unevaluatedProperties: false,
      },
      [{ a: 1 }, { a: 1, b: 1 }, { c: 1 }, {}],
      [{ b: 1 }, { a: 2 }, { a: 1, c: 1 }],
    ],
    [
      { anyOf: [{ required: ['a'] }, { prefixItems: [{ type: 'integer' }] }], unevaluatedItems: false },
      [[], [1]],
      [['a'], [1, 2]],
    ],
    [
      { prefixItems: [true], contains: { type: 'string' }, unevaluatedItems: { type: 'integer' } },
      [['a'], [null, 'a', 1], ['a', 1, 'b']],
      [[], [1], ['a', null]],
    ],
    [
      {
        oneOf: [{ prefixItems: [{ const: 1 }, true] }, { prefixItems: [true], maxItems: 1 }],
        unevaluatedItems: false,
      },
      [[2], [1, 2]],
      [[1], [2, 2], [1, 2, 3]],
    ],
  ])('of what no other has looked at are enforced: %j', (schema, right, wrong) => {
    const reads = reader(schema);
    expect(right.filter((value) => !inOrders(value).some(reads))).toEqual([]);
    expect(wrong.filter((value) => inOrders(value).some(reads))).toEqual([]);
  });

  it('turn round what they say of a value, whatever it is', () => {
    let seed = 11;
    const below = (n: number): number => {
      seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
      return Math.floor((seed / 2 ** 32) * n);
    };
    const one = <T>(list: readonly T[]): T => list[below(list.length)]!;
    const schema = (depth: number): object | boolean => {
      const leaf: (() => object | boolean)[] = [
        () => ({ type: one(['string', 'integer', 'number', 'object', 'array', 'null', 'boolean']) }),
        () => ({ const: one([1, 'a', null, true, 0.5]) }),
        () => ({ enum: [one(TEXTS), one(NUMBERS), 7] }),
        () => ({ minimum: below(3) - 1, maximum: below(5) }),
        () => ({ minLength: below(2), maxLength: 1 + below(3) }),
        () => ({ pattern: one(['^a', 'o', '^.$']) }),
        () => ({ required: [one(['a', 'b', 'c'])] }),
        () => ({ minItems: below(3) }),
      ];
      const inner: (() => object | boolean)[] = [
        () => ({ not: schema(depth - 1) }),
        () => ({ [one(['anyOf', 'allOf', 'oneOf'])]: [schema(depth - 1), schema(depth - 1)] }),
        () => ({ properties: { [one(['a', 'b'])]: schema(depth - 1) } }),
        () => ({ if: schema(depth - 1), [THEN]: schema(depth - 1), else: schema(depth - 1) }),
        () => ({ prefixItems: [schema(depth - 1)] }),
      ];
      return one(depth > 0 && below(3) > 0 ? inner : leaf)();
    };
    const seen = { true: 0, false: 0, refused: 0 };
    for (let i = 0; i < 150; i++) {
      const whole = { [one(['not', 'not', 'oneOf'])]: schema(2) } as Record<string, unknown>;
      if (whole.oneOf !== undefined) whole.oneOf = [whole.oneOf, schema(1)];
      let reads: (value: unknown) => boolean;
      try {
        reads = reader(whole);
      } catch (error) {
        const { code } = error as { code?: string };
        if (code === 'unsupported-schema') seen.refused++;
        // Nothing may be written; all else would be a fault.
        else expect([code, JSON.stringify(whole)]).toEqual(['invalid-grammar', JSON.stringify(whole)]);
        if (code === 'invalid-grammar')
          expect(ANYTHING.filter((value) => ajv.validate(whole, value))).toEqual([]);
        continue;
      }
      const validate = ajv.compile(whole);
      for (const value of ANYTHING) {
        const expected = validate(value);
        seen[`${expected}`]++;
        expect([JSON.stringify(whole), value, inOrders(value).some(reads)]).toEqual([
          JSON.stringify(whole),
          value,
          expected,
        ]);
      }
    }
    expect([seen.true > 500, seen.false > 500, seen.refused < 40]).toEqual([true, true, true]);
  });
});
