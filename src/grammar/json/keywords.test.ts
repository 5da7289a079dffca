/** Keywords of JSON Schema, each with values whose verdicts another project's validator gives. */
import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { describe, expect, it } from 'vitest';
import { compileAsk } from '../ask.js';
import { Matcher, type ParserState } from '../matcher.js';

function reader(schema: unknown): (value: unknown) => boolean {
  const matcher = new Matcher(compileAsk({ kind: 'schema', schema: JSON.stringify(schema), strict: false }));
  return (value) => {
    let state: ParserState | null = matcher.start;
    for (const byte of Buffer.from(JSON.stringify(value)))
      state = state === null ? null : matcher.step(state, byte);
    return state?.done ?? false;
  };
}

const TEXTS = ['', 'a', 'b', 'ab', 'foo', 'bar'];
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
const ARRAYS = [[], [1], ['a'], [1, 'a'], ['a', 1, 2], [5], [1, 5, 'x'], [[1], 1], [1, 1]];
const NUMBERS = [0, 1, -1, 0.5, 0.25, 0.75, 1.5, 2.5, 1e-4, 0.0075, 0.00751, 35, 4.5];
const ANYTHING = [...TEXTS, ...OBJECTS, ...ARRAYS, ...NUMBERS, true, false, null];

const item = (pattern: string): object => ({ type: 'object', properties: { [pattern]: {} } });

describe('keywords', () => {
  const ajv = addFormats.default(new Ajv2020({ strict: false, validateSchema: false }));

  it.each<[string, object, unknown[]?]>([
    ['dependentRequired', { dependentRequired: { a: ['b'], c: [] } }],
    [
      'dependentSchemas',
      { dependentSchemas: { a: { properties: { b: { type: 'integer' } } } } },
      [{}, { b: 1 }, { b: 'x' }, { b: 1, a: 1 }, { b: 'x', a: 1 }, { a: 1 }, 3],
    ],
    ['two dependencies', { properties: { a: {}, b: {} }, dependentRequired: { a: ['b'], b: ['c'] } }],
    ['propertyNames by length', { propertyNames: { maxLength: 1 } }],
    ['propertyNames by pattern', { properties: { foo: {} }, propertyNames: { pattern: '^f' } }],
    ['propertyNames by list', { propertyNames: { enum: ['a', 'c', 3] } }],
    ['no propertyNames', { propertyNames: false }],
    ['minProperties of any', { minProperties: 1 }],
    [
      'minProperties of some',
      { properties: { a: {}, b: {} }, additionalProperties: false, minProperties: 1 },
    ],
    [
      'minProperties of many',
      {
        properties: Object.fromEntries(['a', ...'defghijkl'].map((name) => [name, {}])),
        minProperties: 1,
      },
    ],
    ['maxProperties', { maxProperties: 2 }],
    ['maxProperties of none', { maxProperties: 0, type: 'object' }],
    ['more than there may be', { maxProperties: 1, minProperties: 2, type: ['object', 'null'] }],
    ['contains', { contains: { type: 'string' } }],
    [
      'contains beside items',
      { items: { type: ['integer', 'string'] }, contains: { minimum: 5 }, minItems: 1 },
    ],
    ['contains nothing needed', { contains: { type: 'string' }, minContains: 0 }],
    ['uniqueItems of one', { uniqueItems: true, maxItems: 1 }],
    ['unevaluatedProperties', { properties: { a: {} }, unevaluatedProperties: false }],
    [
      'unevaluatedProperties of all',
      {
        allOf: [{ properties: { a: {} } }, { patternProperties: { '^b': {} } }],
        unevaluatedProperties: { type: 'string' },
      },
    ],
    [
      'unevaluatedProperties beside others',
      { allOf: [{ properties: { a: {} } }, { properties: { b: {} }, unevaluatedProperties: false }] },
    ],
    [
      'unevaluatedProperties of a case',
      {
        oneOf: [
          { type: 'object', properties: { a: { const: 1 }, b: {} }, required: ['a'] },
          { type: 'object', properties: { a: { const: 'x' }, c: {} }, required: ['a'] },
        ],
        unevaluatedProperties: false,
      },
    ],
    ['unevaluatedItems', { prefixItems: [{ type: 'integer' }], unevaluatedItems: false }],
    [
      'unevaluatedItems of all',
      { allOf: [{ prefixItems: [{}, { type: 'string' }] }], unevaluatedItems: { type: 'integer' } },
    ],
    ['unevaluatedItems where all are', { allOf: [{ items: {} }], unevaluatedItems: false }],
    ['steps of halves', { multipleOf: 0.5 }],
    ['steps of two and a half', { multipleOf: 2.5, minimum: -3 }],
    ['small steps', { multipleOf: 0.0001 }],
    [
      'steps of both',
      { allOf: [{ multipleOf: 0.5 }, { multipleOf: 0.75 }] },
      [0, 0.5, 0.75, 1.5, -1.5, 3, 2.25],
    ],
    ['whole numbers in halves', { type: 'integer', multipleOf: 0.5 }, [0, 1, 0.5, -7]],
    [
      '$anchor and $id',
      {
        $id: 'https://example.com/root',
        properties: { a: { $ref: '#number' }, b: { $ref: 'other' }, c: { $ref: 'other#/$defs/own' } },
        $defs: {
          n: { $anchor: 'number', type: 'integer' },
          o: { $id: 'other', type: 'string', $defs: { own: { type: 'string', minLength: 1 } } },
        },
      },
    ],
    [
      'a list of objects',
      { const: { a: [1, { b: 2 }] }, dependentRequired: { a: [] } },
      [{ a: [1, { b: 2 }] }, {}],
    ],
    ['values that depend', { enum: [{ a: 1 }, { a: 1, b: 1 }, {}], dependentRequired: { a: ['b'] } }],
    ['values with names', { enum: [{ a: 1 }, { foo: 1, bar: 2 }], propertyNames: { minLength: 2 } }],
    ['values that contain', { enum: [[1], ['a'], [1, 1]], contains: { type: 'integer' }, uniqueItems: true }],
    ['an unused kind', item('a')],
  ])('%s', (_, schema, values = ANYTHING) => {
    const validate = ajv.compile(schema);
    const reads = reader(schema);
    for (const value of values) expect([value, reads(value)]).toEqual([value, validate(value)]);
  });

  it.each<[string, string[], string[]]>([
    [
      'hostname',
      ['a', 'a-b.example', `${'a'.repeat(63)}.b`],
      [
        '-a',
        'a-.b',
        'xn--ab',
        `${'a'.repeat(64)}`,
        'a..b',
        [63, 63, 63, 63].map((n) => 'a'.repeat(n)).join('.'),
      ],
    ],
    [
      'ipv6',
      ['::', '::1', '1::d6:192.168.0.1', '1:2::192.168.0.1', '::ffff:1.2.3.4', '1:2:3:4:5:6:7.8.9.1'],
      ['1::2::3', '1:2:3:4:5:6:7:1.2.3.4', '::1.2.3', ':1'],
    ],
    [
      'uri',
      ['http://a.b:80/c?d#e', 'ldap://[2001:db8::7]/c=GB?x', 'urn:a:b', 'http://u:p@h'],
      ['http://h:abc/', '//h', 'a b:', 'http://[::1'],
    ],
    ['email', ['a.b@c.de', "o'x@y"], ['a@', '@b', 'a..b@c', 'a@-b']],
  ])('format %s', (format, right, wrong) => {
    const reads = reader({ type: 'string', format });
    expect(right.filter((text) => !reads(text))).toEqual([]);
    expect(wrong.filter(reads)).toEqual([]);
  });

  it.each<[object, string]>([
    [{ $schema: 'https://example.com/my-own' }, '$schema'],
    [{ $ref: 'https://example.com/elsewhere' }, '$ref'],
    [{ anyOf: [{ properties: { a: {} } }, {}], unevaluatedProperties: false }, 'unevaluatedProperties'],
    [{ contains: {}, minContains: 2 }, 'contains'],
    [{ uniqueItems: true, maxItems: 2 }, 'uniqueItems'],
    [{ properties: { a: {}, b: {} }, maxProperties: 1 }, 'maxProperties'],
    [{ type: 'number', multipleOf: 0.1234567 }, 'multipleOf'],
  ])('refuses what cannot be held: %j', (schema, keyword) => {
    expect(() => reader(schema)).toThrow(`\`${keyword}\``);
  });
});
