/** Keywords of JSON Schema, each with values whose verdicts another project's validator gives. */
import { Ajv2020 } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { describe, expect, it } from 'vitest';
import { ANYTHING, reader, THEN } from '../../../test/setup/schema-reader.js';

const item = (pattern: string): object => ({ type: 'object', properties: { [pattern]: {} } });

describe('keywords', () => {
  const ajv = addFormats.default(new Ajv2020({ strict: false, validateSchema: false }));
  ajv.addFormat('phone', true);
  /** Ajv knows no draft 4: the same in today's words. */
  const compiled = (schema: object): ((value: unknown) => boolean) =>
    JSON.stringify(schema).includes('draft-04')
      ? ajv.compile({ properties: { a: { type: 'integer' }, b: { type: 'string' } } })
      : ajv.compile(schema);

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
    ['not a type', { not: { type: ['integer', 'object'] } }],
    ['not a number', { not: { type: 'number' } }],
    ['not these values', { not: { enum: [1, 'a', null, true, [], {}, 0.5] } }],
    ['not a value in bounds', { type: ['number', 'string'], not: { minimum: 0.25, maximum: 1 } }],
    ['not a pattern', { type: 'string', not: { pattern: '^a|o' } }],
    ['not a length', { not: { minLength: 1, maxLength: 2 } }],
    ['not required', { type: 'object', not: { required: ['a', 'b'] } }],
    ['not a property', { properties: { a: { not: {} }, b: { not: { const: 1 } } } }],
    ['not of objects', { not: { properties: { a: { type: 'string' } }, required: ['b'] } }],
    ['not of lists', { not: { items: { type: 'integer' }, minItems: 2 } }],
    ['not the first item', { type: 'array', not: { prefixItems: [{ type: 'string' }, { const: 'a' }] } }],
    ['not contained', { type: 'array', not: { contains: { type: 'string' } } }],
    ['not not', { not: { not: { type: 'string', minLength: 2 } } }],
    [
      'not any, not all',
      { not: { anyOf: [{ type: 'string' }, { allOf: [{ minimum: 1 }, { maximum: 2 }] }] } },
    ],
    [
      'not one',
      {
        not: {
          oneOf: [
            { type: 'number', minimum: 1 },
            { type: 'number', maximum: 2 },
          ],
        },
      },
    ],
    ['not what depends', { type: 'object', not: { dependentRequired: { a: ['b'] } } }],
    ['not by reference', { not: { $ref: '#/$defs/a' }, $defs: { a: { type: 'string', maxLength: 1 } } }],
    ['not beside a list', { enum: [1, 2, 'a', 'ab'], not: { type: 'string', maxLength: 1 } }],
    ['a list of what is not', { enum: [{ a: 1 }, { b: 1 }], not: { required: ['a'] } }],
    [
      'if and then',
      { if: { properties: { a: { const: 1 } }, required: ['a'] }, [THEN]: { required: ['b'] } },
    ],
    ['if and else', { if: { type: 'string' }, else: { type: 'array', maxItems: 1 } }],
    [
      'if, then and else',
      { if: { type: 'integer' }, [THEN]: { minimum: 1 }, else: { not: { type: 'string' } } },
    ],
    ['if alone', { if: { type: 'integer' } }],
    ['then alone', { [THEN]: { type: 'integer' }, else: { type: 'string' } }],
    ['not if', { not: { if: { type: 'integer' }, [THEN]: { minimum: 1 }, else: { type: 'string' } } }],
    [
      'many conditions of one property',
      {
        type: 'object',
        required: ['a'],
        allOf: Array.from({ length: 6 }, (_, i) => ({
          if: { properties: { a: { const: i } } },
          [THEN]: { required: [i === 1 ? 'b' : 'c'] },
        })),
      },
    ],
    ['oneOf of numbers', { oneOf: [{ type: 'integer' }, { minimum: 0.5 }] }],
    ['oneOf of texts', { type: 'string', oneOf: [{ pattern: 'a' }, { minLength: 2 }, { const: 'foo' }] }],
    ['oneOf of required', { type: 'object', oneOf: [{ required: ['a'] }, { required: ['b'] }] }],
    [
      'oneOf of patterns apart',
      {
        oneOf: [
          { type: 'string', pattern: '^a' },
          { type: 'string', pattern: '^b' },
        ],
      },
    ],
    ['oneOf of true', { oneOf: [true, { type: 'string' }] }],
    ['oneOf of two that are the same', { oneOf: [{ type: 'string' }, { type: 'string' }, { type: 'null' }] }],
    ['names that no draft knows', { type: 'integer', myOwn: 5, _format: 'x', $default: 1, readonly: true }],
    [
      'id of draft 4',
      {
        $schema: 'http://json-schema.org/draft-04/schema#',
        id: 'http://example.com/root.json',
        properties: { a: { $ref: '#n' }, b: { $ref: 'other.json' } },
        definitions: {
          n: { id: '#n', type: 'integer' },
          o: { id: 'other.json', $ref: '#/definitions/own', definitions: { own: { type: 'string' } } },
        },
      },
    ],
  ])('%s', (_, schema, values = ANYTHING) => {
    const validate = compiled(schema);
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
    ['email', ['a.b@c.de', "o'x@y", '"a b"@c', 'a@[1.2.3.4]'], ['a@', '@b', 'a..b@c', 'a@-b', 'a@[1.2.3]']],
    ['idn-email', ['ä@bücher.example', 'a@b'], ['ä', '@b', 'a\u0085@', 'a@-b']],
    ['idn-hostname', ['실례.테스트', 'bücher.de'], ['실례..테스트', 'a b', '\u302e실례']],
    ['uri-reference', ['/a?b#c', '../a', '', '//h/p', 'a:b'], [':a', 'a b', '%zz']],
    ['iri', ['http://ƒøø.ßår/?∂éœ=πîx', 'a:\u{20000}'], ['/abc', 'http://a b', 'a:\u007f', 'a:\ud7ff\ufffe']],
    ['iri-reference', ['/âππ', 'ø'], ['\\\\a', 'ø^']],
    ['uri-template', ['/a/{b:3}{?c*,d}', "o'k"], ['{', '{a', '{}', 'a}', '{a*:3}']],
    ['json-pointer', ['', '/a~0~1/', '/'], ['a', '/~2', '#/a']],
    ['relative-json-pointer', ['0', '1/a', '12#'], ['01', '/a', '0##', '-1']],
    [
      'regex',
      ['^a{3,16}$', '([a-z\\\\d]|\\\\.)+?', '(?:a|(b))*', 'a{12,30}b{2,}', '(?=x)y|'],
      ['(', 'a)', '[z-a]', 'a{3,2}', '*', 'a{21,20}', '[', '(?a)'],
    ],
    [
      'date-time',
      ['2020-02-29t23:59:60z', '1998-12-31T23:59:60.5Z'],
      ['1998-12-31T23:58:60Z', '2021-02-29T00:00:00Z'],
    ],
  ])('format %s', (format, right, wrong) => {
    const reads = reader({ type: 'string', format });
    expect(right.filter((text) => !reads(text))).toEqual([]);
    expect(wrong.filter(reads)).toEqual([]);
  });

  it.each<[object, string]>([
    [{ $schema: 'https://example.com/my-own' }, '$schema'],
    [{ $ref: 'https://example.com/elsewhere' }, '$ref'],
    [{ contains: { multipleOf: 3 }, maxContains: 2 }, 'multipleOf'],
    [{ contains: {}, minContains: 5000 }, 'contains'],
    [{ contains: { const: 1 }, allOf: [{ contains: { const: 2 } }] }, 'contains'],
    [{ items: { enum: [...Array(40).keys()] }, uniqueItems: true }, 'uniqueItems'],
    [{ format: 'date_time' }, 'format'],
    [{ uniqueItems: true, maxItems: 2 }, 'uniqueItems'],
    [{ type: 'array', items: { type: 'string' }, uniqueItems: true }, 'uniqueItems'],
    [
      { type: 'array', items: { type: 'string', pattern: '^a*$' }, uniqueItems: true, minItems: 2 },
      'uniqueItems',
    ],
    [{ type: 'array', items: { type: 'object' }, uniqueItems: true }, 'uniqueItems'],
    // What generators mean by these is more than OpenAPI makes of them.
    [{ nullable: true }, 'nullable'],
    [{ nullable: true, $defs: { a: { type: 'string' } }, $ref: '#/$defs/a' }, 'nullable'],
    [{ nullable: true, allOf: [{ type: 'string' }] }, 'nullable'],
    [{ nullable: true, type: 'string', enum: ['a'] }, 'nullable'],
    [{ nullable: true, type: 'string', const: 'a' }, 'nullable'],
    [{ properties: { a: {}, b: {} }, maxProperties: 1 }, 'maxProperties'],
    [{ type: 'number', multipleOf: 0.1234567 }, 'multipleOf'],
    [{ not: { format: 'date' } }, 'format'],
    [{ not: { uniqueItems: true } }, 'uniqueItems'],
    [{ not: { const: [1] } }, 'const'],
    [{ not: { properties: { a: {} }, additionalProperties: false } }, 'additionalProperties'],
    [{ if: { format: 'date' }, else: { maxLength: 3 } }, 'format'],
    [{ enum: ['a'], not: { format: 'date' } }, 'format'],
    [{ oneOf: [{ multipleOf: 2 }, { multipleOf: 3 }] }, 'oneOf'],
    [{ $defs: { a: { not: { $ref: '#/$defs/a' } } }, $ref: '#/$defs/a' }, '$ref'],
    [{ minLenght: 3 }, 'minLenght'],
    [{ $dynamicRef: '#a' }, '$dynamicRef'],
    [{ '\0notWhole': true }, '\\u0000notWhole'],
  ])('refuses what cannot be held: %j', (schema, keyword) => {
    expect(() => reader(schema)).toThrow(`\`${keyword}\``);
  });

  it('takes `nullable` of OpenAPI 3.0 beside a type for null as well', () => {
    const schema = {
      type: 'object',
      properties: {
        a: { type: 'string', nullable: true, maxLength: 2 },
        b: { type: ['integer', 'null'], nullable: true },
        c: { type: 'string', enum: ['x', null], nullable: true },
        d: { type: 'array', nullable: true, items: { type: 'boolean', nullable: true } },
        // No keyword here, but a name.
        nullable: { type: 'boolean', nullable: false },
      },
      required: ['a', 'b', 'c', 'd', 'nullable'],
      additionalProperties: false,
    };
    const given = JSON.stringify(schema);
    const reads = reader(schema);
    const of = (a: unknown, b: unknown, c: unknown, d: unknown, nullable: unknown): object => ({
      a,
      b,
      c,
      d,
      nullable,
    });
    for (const right of [
      of('xy', 1, 'x', [true, null], true),
      of(null, null, null, null, false),
      of('', 2, 'x', [], true),
    ])
      expect([right, reads(right)]).toEqual([right, true]);
    for (const wrong of [
      of('xyz', 1, 'x', [], true),
      of(1, 1, 'x', [], true),
      of('a', 'b', 'x', [], true),
      of('a', 1, 'y', [], true),
      of('a', 1, 'x', [1], true),
      of('a', 1, 'x', [], null),
    ])
      expect([wrong, reads(wrong)]).toEqual([wrong, false]);
    // Whoever gave it sees no change.
    expect(JSON.stringify(schema)).toBe(given);
  });

  it.each<[string, object]>([
    ['at least two of a kind', { contains: { type: 'integer' }, minContains: 2 }],
    ['at most one of a kind', { contains: { type: 'integer' }, maxContains: 1 }],
    ['none or one of a kind', { contains: { type: 'string' }, minContains: 0, maxContains: 1, maxItems: 2 }],
    [
      'two of a kind among three',
      { contains: { const: 1 }, minContains: 2, maxContains: 2, minItems: 2, maxItems: 3 },
    ],
    ['a kind behind others', { prefixItems: [{ const: 1 }], contains: { type: 'string' }, minItems: 2 }],
    ['not two of a kind', { not: { contains: { type: 'integer' }, minContains: 2 } }],
    ['different values', { items: { enum: [1, 'a', 5] }, uniqueItems: true, minItems: 1 }],
    [
      'different by place',
      { prefixItems: [{ enum: [1, 'a'] }, { type: 'boolean' }], items: { const: 1 }, uniqueItems: true },
    ],
    ['a format that nobody knows', { format: 'phone', maxLength: 1 }],
    ['not a format that nobody knows', { not: { format: 'phone', maxLength: 1 } }],
  ])('of arrays are enforced: %s', (_, schema) => {
    const validate = ajv.compile(schema);
    const reads = reader(schema);
    const more = [
      ['a', 'b'],
      [1, 1, 'a'],
      [1, 2, 3],
      [true, 1],
      [1, true],
      [1, false, 1],
      ['a', 'a'],
      [5, 'a', 1],
    ];
    for (const value of [...ANYTHING, ...more])
      expect([value, reads(value)]).toEqual([value, validate(value)]);
  });
});
