import { describe, expect, it } from 'vitest';
import { reader } from '../../../test/setup/schema-reader.js';
import { mayBeRewritten } from './older-drafts.js';

describe('what older drafts write', () => {
  const values: readonly unknown[] = [
    [],
    ['a'],
    [1],
    ['a', 1],
    ['a', 'b'],
    ['a', 1, true],
    ['a', 1, 2],
    [1, 'a'],
    4,
    5,
    6,
    4.5,
    'x',
    null,
    { a: ['x', 3] },
    { a: ['x', 'y'] },
  ];
  it.each<[string, object, object]>([
    [
      'tuples',
      { items: [{ type: 'string' }, { type: 'number' }] },
      { prefixItems: [{ type: 'string' }, { type: 'number' }] },
    ],
    [
      'closed tuples',
      {
        type: 'array',
        items: [{ type: 'string' }, { type: 'number' }],
        additionalItems: false,
        minItems: 2,
        maxItems: 2,
      },
      {
        type: 'array',
        prefixItems: [{ type: 'string' }, { type: 'number' }],
        items: false,
        minItems: 2,
        maxItems: 2,
      },
    ],
    [
      'tuples with a rest',
      { items: [{ type: 'string' }], additionalItems: { type: 'number' } },
      { prefixItems: [{ type: 'string' }], items: { type: 'number' } },
    ],
    ['empty tuples', { items: [], additionalItems: { type: 'number' } }, { items: { type: 'number' } }],
    [
      'a rest beside items for all',
      { items: { type: 'string' }, additionalItems: false },
      { items: { type: 'string' } },
    ],
    [
      'tuples in properties and lists',
      { properties: { a: { anyOf: [{ items: [{}, { type: 'number' }] }] } } },
      { properties: { a: { anyOf: [{ prefixItems: [{}, { type: 'number' }] }] } } },
    ],
    [
      'references into tuples',
      { items: [{ $ref: '#/items/1' }, { type: 'number' }] },
      { prefixItems: [{ type: 'number' }, { type: 'number' }] },
    ],
    [
      'bounds that are strict',
      { type: 'number', minimum: 4, exclusiveMinimum: true },
      { type: 'number', exclusiveMinimum: 4 },
    ],
    [
      'bounds that are not',
      { type: 'number', maximum: 5, exclusiveMaximum: false },
      { type: 'number', maximum: 5 },
    ],
    [
      'what is a value and no schema',
      { enum: [[1], { a: ['x', 3] }], default: { items: [1] } },
      { enum: [[1], { a: ['x', 3] }] },
    ],
  ])('is enforced: %s', (_, older, today) => {
    const before = JSON.stringify(older);
    const [takes, expected] = [reader(older), reader(today)];
    expect(values.map((value) => takes(value))).toEqual(values.map((value) => expected(value)));
    expect(values.some((value) => takes(value))).toBe(true);
    expect(JSON.stringify(older)).toBe(before);
  });

  it('is looked for in a copy, which is made where there is any', () => {
    const today = { items: { type: 'string' }, exclusiveMinimum: 3 };
    expect(mayBeRewritten(today)).toBe(today);
    const older = { properties: { a: { items: [{}] } } };
    expect(mayBeRewritten(older)).not.toBe(older);
    expect(mayBeRewritten(older)).toEqual(older);
  });
});
