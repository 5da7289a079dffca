import { describe, expect, it } from 'vitest';
import { partsOf } from './json-source.js';

describe('partsOf', () => {
  it.each([
    ['{}', []],
    [' [ ] ', []],
    [
      '{"a": 1.0, "b" : {"a": [",", "}"]} , "a":"x:\\"y"}',
      [
        ['a', '1.0'],
        ['b', '{"a": [",", "}"]}'],
        ['a', '"x:\\"y"'],
      ],
    ],
    [
      '[1e5 ,[2, 3],"]", {"k": 4}]',
      [
        ['', '1e5'],
        ['', '[2, 3]'],
        ['', '"]"'],
        ['', '{"k": 4}'],
      ],
    ],
    ['{"\\u0061\\"": []}', [['a"', '[]']]],
  ] as const)('%s', (json, parts) => {
    expect(partsOf(json).map(({ key, text }) => [key, text])).toEqual(parts);
    for (const { text } of partsOf(json)) JSON.parse(text);
  });
});
